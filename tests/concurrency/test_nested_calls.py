"""Sync calls from inside async tools, gates and threads of other calls, and what an async tool can do to its loop."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import prompty
from prompty import tool
from tests.concurrency.nesting import CHAT, ToolCaller, look
from tests.watchdog import within


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
