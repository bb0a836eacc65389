"""Tools that run beside each other, one after the other, and at most so many at a time."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from prompty import tool, turn
from prompty.events import Event, MessagesChanged, ToolFinished, ToolStarted
from prompty.testing import Script, call
from tests.loop.bodies import results_in
from tests.ways import LONG, WAYS, Seen, Way, agent_of, every_way, every_wire

AGENT = agent_of()
both_kinds = pytest.mark.parametrize("kind", ["functions", "coroutines"])


def meeting(kind: str, parties: int) -> Callable[[int], Any]:
    """A tool that ends only when so many run at once."""
    barrier, async_barrier = threading.Barrier(parties, timeout=LONG), asyncio.Barrier(parties)

    def meet(number: int) -> str:
        barrier.wait()
        return f"met {number}"

    async def meet_async(number: int) -> str:
        await asyncio.wait_for(async_barrier.wait(), LONG)
        return f"met {number}"

    return meet if kind == "functions" else tool(name="meet")(meet_async)


def calls(name: str, *numbers: int) -> list[Any]:
    return [call(name, number=number) for number in numbers]


@every_way
@both_kinds
@pytest.mark.spec("001 Parallel Tool Calling", "approved calls run in parallel by default")
def test_tools_of_one_answer_run_beside_each_other(way: Way, kind: str) -> None:
    with Script(calls("meet", 1, 2, 3), "Done."):
        seen = way.turn(AGENT, tools=[meeting(kind, 3)])
    assert (seen.result, seen.told) == ("Done.", ["met 1", "met 2", "met 3"])


class Overlaps:
    """Tools that note when another one begins before they end."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.running = 0
        self.most = 0
        self.another = threading.Event()
        self.lock = threading.Lock()

    def work(self, number: int) -> str:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.log.append(f"begin {number}")
            if self.running > 1:
                self.another.set()
        self.another.wait(0.03)
        with self.lock:
            self.running -= 1
            self.log.append(f"end {number}")
        return f"worked {number}"

    async def work_async(self, number: int) -> str:
        return await asyncio.to_thread(self.work, number)

    def tool(self, kind: str, **options: Any) -> Callable[..., Any]:
        def work(number: int) -> str:
            return self.work(number)

        async def work_async(number: int) -> str:
            return await self.work_async(number)

        return tool(name="work", **options)(work if kind == "functions" else work_async)


IN_ORDER = ["begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3"]


@pytest.mark.spec("001 Parallel Tool Calling", "the options for it are called executionMode and toolExecution")
@every_way
@both_kinds
@pytest.mark.parametrize(
    ("marked", "execution"), [(False, "sequential"), (True, "parallel")], ids=["whole run", "one tool"]
)
@pytest.mark.spec("001 Parallel Tool Calling", "calls of a run, or of a tool, can be made one after the other")
def test_sequential_tools_never_overlap(way: Way, kind: str, marked: bool, execution: str) -> None:
    overlaps = Overlaps()
    with Script(calls("work", 1, 2, 3), "Done."):
        seen = way.turn(AGENT, tools=[overlaps.tool(kind, sequential=marked)], tool_execution=execution)
    assert (overlaps.most, overlaps.log) == (1, IN_ORDER)
    assert seen.tool_events == [("ToolStarted", "work"), ("ToolFinished", "work")] * 3


@every_way
@both_kinds
@pytest.mark.parametrize(
    ("options", "most"), [({"max_parallel": 2}, 2), ({}, 16), ({"max_parallel": None}, 20)], ids=str
)
def test_no_more_tools_run_at_once_than_may(way: Way, kind: str, options: dict[str, Any], most: int) -> None:
    overlaps, meet = Overlaps(), meeting(kind, most)
    numbers = range(1, 2 * most + 1) if most < 20 else range(1, most + 1)

    def counted(number: int) -> str:
        with overlaps.lock:
            overlaps.running += 1
            overlaps.most = max(overlaps.most, overlaps.running)
        said = str(meet(number))
        with overlaps.lock:
            overlaps.running -= 1
        return said

    async def counted_async(number: int) -> str:
        overlaps.running += 1
        overlaps.most = max(overlaps.most, overlaps.running)
        said = str(await meet(number))
        overlaps.running -= 1
        return said

    run = tool(name="meet")(counted if kind == "functions" else counted_async)
    with Script(calls("meet", *numbers), "Done."):
        seen = way.turn(AGENT, tools=[run], **options)
    assert overlaps.most == most
    assert seen.told == [f"met {number}" for number in numbers]


@every_way
@both_kinds
def test_a_sequential_tool_parts_those_before_it_from_those_after_it_and_no_others(way: Way, kind: str) -> None:
    ended: list[str] = []

    @tool(sequential=True)
    def alone() -> str:
        ended.append("alone")
        return "alone"

    batch = [*calls("meet", 1, 2), call("alone"), *calls("meet", 3, 4)]

    def hear(event: Event) -> None:
        if isinstance(event, ToolFinished) and event.call.name == "meet":
            ended.append("meet")

    with Script(batch, "Done."):
        seen = way.turn(AGENT, tools=[meeting(kind, 2), alone], on_event=hear)
    assert ended == ["meet", "meet", "alone", "meet", "meet"]
    assert seen.told == ["met 1", "met 2", "alone", "met 3", "met 4"]
    started = [event.call.name for event in seen.of(ToolStarted)]
    assert started == ["meet", "meet", "alone", "meet", "meet"]


class Race:
    """A tool where the last call ends first: each waits until the one after it is known to have ended."""

    def __init__(self) -> None:
        self.may_end = [threading.Event() for _ in range(4)]
        self.may_end[3].set()

    def hear(self, event: Event) -> None:
        if isinstance(event, ToolFinished):
            self.may_end[int(event.result.text[-1]) - 1].set()

    def tool(self, kind: str) -> Callable[..., Any]:
        def race(number: int) -> str:
            assert self.may_end[number].wait(LONG)
            return f"ran {number}"

        async def race_async(number: int) -> str:
            return await asyncio.to_thread(race, number)

        return race if kind == "functions" else tool(name="race")(race_async)


@every_way
@every_wire
@both_kinds
@pytest.mark.spec("001 Parallel Tool Calling", "results stand in request order, whatever finishes first")
@pytest.mark.spec("001 Pairing: One Result per Call", "results are paired by order")
def test_results_stand_in_the_order_of_the_calls_whatever_finishes_first(way: Way, wire: str, kind: str) -> None:
    race = Race()
    with Script(calls("race", 1, 2, 3), "Done.") as script:
        seen = way.turn(agent_of(wire), tools=[race.tool(kind)], on_event=race.hear)
    assert [event.result.text for event in seen.of(ToolFinished)] == ["ran 3", "ran 2", "ran 1"]
    assert seen.told == ["ran 1", "ran 2", "ran 3"]
    assert [one["content"] for one in results_in(wire, script.requests[1])] == ["ran 1", "ran 2", "ran 3"]


@every_way
@pytest.mark.spec("001 Parallel Tool Calling", "one failure does not break the batch")
def test_one_failure_does_not_break_the_batch(way: Way) -> None:
    def fail(number: int) -> str:
        raise RuntimeError(f"broken {number}")

    with Script([*calls("fail", 1), *calls("meet", 2, 3), *calls("fail", 4)], "Done."):
        seen = way.turn(AGENT, tools=[fail, meeting("functions", 2)])
    broken = [f"Error: Tool 'fail' failed: broken {number}" for number in (1, 4)]
    assert seen.told == [broken[0], "met 2", "met 3", broken[1]]
    assert seen.result == "Done."


@every_wire
def test_the_same_happens_in_sync_and_in_async_code(wire: str) -> None:
    def look(at: str) -> str:
        return f"saw {at}"

    async def listen(to: str) -> str:
        return f"heard {to}"

    def taken(way: Way) -> Seen:
        batch = [call("look", at="the sky"), call("listen", to="her"), call("nobody"), call("look")]
        with Script(batch, call("look", at="me"), "Done."):
            return way.turn(agent_of(wire), tools=[look, listen], gate=lambda asked: [True] * len(asked))

    plain, streamed, plain_async, streamed_async = map(taken, WAYS)
    assert plain.without_run == plain_async.without_run
    assert streamed.without_run == streamed_async.without_run
    assert len({str(seen.messages) for seen in (plain, streamed, plain_async, streamed_async)}) == 1
    assert [type(event) for event in plain.events].count(MessagesChanged) == 2


def test_a_sync_tool_does_not_hold_up_async_ones() -> None:
    """It runs on a thread of its own, so what it waits for can happen."""
    happened = threading.Event()

    def wait() -> str:
        return str(happened.wait(LONG))

    async def happen() -> str:
        happened.set()
        return "it did"

    for way in WAYS:
        happened.clear()
        with Script([call("wait"), call("happen")], "Done."):
            assert way.turn(AGENT, tools=[wait, happen]).told == ["True", "it did"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@both_kinds
def test_a_sync_turn_works_inside_a_running_event_loop(streamed: bool, kind: str) -> None:
    async def cell_of_a_notebook() -> Seen:
        with Script(calls("meet", 1, 2), "Done."):
            return Way(asynchronous=False, streamed=streamed).turn(AGENT, tools=[meeting(kind, 2)])

    seen = asyncio.run(cell_of_a_notebook())
    assert (seen.result, seen.told) == ("Done.", ["met 1", "met 2"])


@pytest.mark.spec("001 How a Turn Interleaves", "tools run in the process of the caller")
def test_a_single_tool_that_nothing_can_interrupt_runs_on_the_thread_of_the_caller() -> None:
    threads = []

    def where() -> None:
        threads.append(threading.current_thread())

    with Script(call("where"), "Done."):
        turn(AGENT, tools=[where])
    assert threads == [threading.current_thread()]
