"""Sync code that runs coroutines, also from inside a coroutine, which blocks the event loop it runs on."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

import prompty
from prompty import tool
from prompty.concurrency import LoopFuture, cancel_and_wait, in_event_loop, run_in_event_loop, waiting_loops
from prompty.errors import RequestError
from prompty.tools.mcp.sessions import run_on_loop, sessions_loop
from tests.concurrency.nesting import CHAT, ToolCaller, look
from tests.watchdog import within

NAME: ContextVar[str] = ContextVar("name", default="nobody")


@pytest.fixture
def server() -> Iterator[ToolCaller]:
    with ToolCaller() as server:
        yield server


@pytest.fixture
def ask(server: ToolCaller) -> Callable[..., Any]:
    """Run a turn in which the model calls each of the tools once, and then repeats their results."""
    return lambda *tools, **options: prompty.turn(CHAT.agent(server), tools=tools, **options)


@tool
async def name_loop() -> str:
    return str(id(asyncio.get_running_loop()))


def test_an_async_tool_may_call_sync_code_that_has_async_tools(ask: Callable[..., Any]) -> None:
    @tool
    async def middle() -> str:
        return str(ask(look))

    @tool
    async def outer() -> str:
        return str(ask(middle))

    assert within(lambda: ask(outer)) == "looked"


def test_so_may_async_tools_that_run_in_parallel(ask: Callable[..., Any]) -> None:
    @tool
    async def first() -> str:
        return str(ask(look, look_twice))

    @tool
    async def second() -> str:
        return str(ask(look_twice, look))

    @tool
    async def look_twice() -> str:
        await asyncio.sleep(0.01)
        return "looked twice"

    assert within(lambda: ask(first, second)) == "looked looked twice looked twice looked"


def test_threads_of_a_nested_call_do_not_need_the_loop_that_waits_for_them(ask: Callable[..., Any]) -> None:
    @tool
    def left() -> str:
        return str(ask(look))

    @tool
    def right() -> str:
        return str(ask(look))

    @tool
    async def outer() -> str:
        return str(ask(left, right))

    assert within(lambda: ask(outer)) == "looked looked"


def test_a_gate_of_a_batch_may_call_sync_code_that_has_async_tools(ask: Callable[..., Any], server: ToolCaller) -> None:
    def gate(calls: list[Any]) -> list[bool]:
        return [ask(look) == "looked"] * len(calls)

    [row] = within(lambda: prompty.batch(CHAT.agent(server), [{}], tools=[look], gate=gate))
    assert row.value == "looked"


def test_calls_one_after_the_other_share_an_event_loop(ask: Callable[..., Any]) -> None:
    assert within(lambda: ask(name_loop)) == within(lambda: ask(name_loop))


@pytest.mark.parametrize("parallel", [False, True])
def test_a_blocked_loop_is_found_out_when_the_context_is_lost(
    ask: Callable[..., Any], parallel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the host's own does not tell who waits for it."""
    monkeypatch.setattr(LoopFuture, "START_SECONDS", 0.2)

    @tool
    async def blocks() -> str:
        with ThreadPoolExecutor(1) as threads:
            return str(threads.submit(ask, look, *[name_loop] * parallel).result())

    answer = within(lambda: ask(blocks))
    assert answer.startswith("looked")


def test_a_batch_finds_out_too(server: ToolCaller, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Any]) -> None:
    monkeypatch.setattr(LoopFuture, "START_SECONDS", 0.2)

    @tool
    async def blocks() -> str:
        with ThreadPoolExecutor(1) as threads:
            [row] = threads.submit(prompty.batch, CHAT.agent(server), [{}], tools=[look]).result()
            return str(row.value)

    assert within(lambda: ask(blocks)) == "looked"


def test_an_async_tool_that_exits_ends_its_caller_and_not_the_event_loop(ask: Callable[..., Any]) -> None:
    @tool
    async def leave() -> str:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        within(lambda: ask(leave))
    assert within(lambda: ask(look)) == "looked"


def test_an_async_tool_cannot_stop_the_event_loop(ask: Callable[..., Any]) -> None:
    @tool
    async def stop() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return "still there"

    assert within(lambda: ask(stop)) == "still there"


def test_an_interrupted_wait_cancels_the_coroutine() -> None:
    ended = threading.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    future = in_event_loop(work())
    with pytest.raises(TimeoutError):
        future.result(0.05)
    cancel_and_wait([future])
    assert ended.is_set()


def test_a_coroutine_that_is_cancelled_before_it_starts_never_runs() -> None:
    ran = []

    async def block() -> None:
        begun.set()
        released.wait(10)

    async def work() -> None:
        ran.append(True)

    begun, released = threading.Event(), threading.Event()
    blocker = in_event_loop(block())
    assert begun.wait(10)
    future = in_event_loop(work())
    assert future.cancel()
    released.set()
    blocker.result(10)
    assert within(lambda: run_in_event_loop(asyncio.sleep(0, "next"))) == "next"
    assert not ran


def test_a_coroutine_has_the_context_of_its_caller() -> None:
    async def read() -> str:
        return NAME.get()

    NAME.set("somebody")
    assert run_in_event_loop(read()) == "somebody"


def test_what_would_wait_for_itself_is_an_error_that_says_so() -> None:
    """A function on the loop of MCP sessions, such as a handler of their log, cannot wait for them."""

    async def handle() -> None:
        async def use() -> str:
            return await run_on_loop(asyncio.sleep(0, "used"))

        run_in_event_loop(use())

    with pytest.raises(RequestError, match="needs an event loop that waits for it"):
        within(lambda: in_event_loop(handle(), sessions_loop()).result())


def test_nobody_waits_outside_of_event_loops() -> None:
    assert within(waiting_loops) == frozenset()


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="only POSIX forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # this process has threads, which is the point
def test_a_forked_process_starts_a_loop_of_its_own() -> None:
    assert within(lambda: run_in_event_loop(asyncio.sleep(0, "parent"))) == "parent"
    child = os.fork()
    if not child:
        logging.disable()
        threading.Timer(20, os._exit, [1]).start()
        os._exit(0 if run_in_event_loop(asyncio.sleep(0, "child")) == "child" else 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
