"""The event loops that run the coroutines of sync code: their contexts, cancellation, and what blocks them."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

import prompty
from prompty import tool
from prompty.concurrency import (
    LoopFuture,
    Portal,
    cancel_and_wait,
    in_event_loop,
    run_in_event_loop,
    waiting_loops,
)
from prompty.errors import RequestError
from prompty.tools.mcp.sessions import SESSIONS, run_on_loop
from tests.concurrency.nesting import CHAT, ToolCaller, look, peek
from tests.watchdog import within

NAME: ContextVar[str] = ContextVar("name", default="nobody")


@pytest.mark.parametrize("parallel", [False, True])
def test_a_blocked_loop_is_found_out_when_the_context_is_lost(
    ask: Callable[..., Any], parallel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the host's own does not tell who waits for it."""
    monkeypatch.setattr(LoopFuture, "START_SECONDS", 0.2)

    @tool
    async def blocks() -> str:
        with ThreadPoolExecutor(1) as threads:
            return str(threads.submit(ask, look, *[peek] * parallel).result())

    assert within(lambda: ask(blocks)).startswith("looked")


def test_a_batch_finds_out_too(server: ToolCaller, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Any]) -> None:
    monkeypatch.setattr(LoopFuture, "START_SECONDS", 0.2)

    @tool
    async def blocks() -> str:
        with ThreadPoolExecutor(1) as threads:
            [row] = threads.submit(lambda: prompty.batch(CHAT.agent(server), [{}], tools=[look])).result()
            return str(row.value)

    assert within(lambda: ask(blocks)) == "looked"


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
        within(lambda: in_event_loop(handle(), SESSIONS).result())


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


@pytest.fixture
def portal(monkeypatch: pytest.MonkeyPatch) -> Portal:
    portal = Portal()
    monkeypatch.setattr("prompty.concurrency.PORTAL", portal)
    return portal


def count_loop_threads() -> int:
    return sum(thread.name.startswith("prompty ") for thread in threading.enumerate())


def test_a_closed_portal_has_no_threads_and_cancels_what_runs(portal: Portal) -> None:
    ended, before = threading.Event(), count_loop_threads()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    futures = [in_event_loop(work()), in_event_loop(work(), SESSIONS)]
    assert count_loop_threads() == before + 2
    within(portal.close)
    assert count_loop_threads() == before
    assert ended.is_set()
    for future in futures:  # one that had not begun when the portal closed ends too
        with pytest.raises(CancelledError):
            within(future.result)
    assert within(lambda: run_in_event_loop(asyncio.sleep(0, "again"))) == "again"
    within(portal.close)


def test_a_portal_can_be_closed_from_its_own_loop(portal: Portal) -> None:
    before = count_loop_threads()

    async def work() -> None:
        portal.close()
        await asyncio.sleep(60)

    with pytest.raises(CancelledError):
        within(lambda: run_in_event_loop(work()))
    within(portal.close)
    while count_loop_threads() > before:
        time.sleep(0.001)
