"""Ending a turn from elsewhere: at any moment, at once, and with a history to go on from."""

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from prompty import CancelToken, ModelError, Stop, ToolContext, tool, turn, turn_async
from prompty.errors import Cancelled
from prompty.events import Event, GatedCall, Retry, RunCancelled, TextDelta, ToolFinished, ToolStarted
from prompty.model.message import Reply
from prompty.testing import Fault, Script, call
from prompty.testing.encoding import WIRES as ENCODINGS
from tests.drivers.clients import close_clients
from tests.drivers.wires import WIRES, Wire
from tests.legality import assert_legal
from tests.loop.bodies import APIS, assert_sendable
from tests.loopback import Hold, Reply as Steps, Server, json_reply, stream
from tests.ways import LONG, WAYS, Way, agent_of, every_way

AGENT = agent_of()
NOT_RUN = "Error: Tool '{}' was not run: the turn was cancelled"
INTERRUPTED = "Error: Tool '{}' was interrupted; it may or may not have taken effect"
every_server = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
        close_clients()


def sent(wire: Wire, reply: Reply, streamed: bool) -> Steps:
    """An answer as a server of this API sends it."""
    path = APIS["messages" if wire.name == "anthropic" else wire.name].path
    encoding = ENCODINGS[path]
    return stream(*encoding.events(reply)) if streamed else json_reply(encoding.whole(reply))


def cancelling(token: CancelToken, when: Callable[[Event], bool]) -> Callable[[Event], None]:
    """A listener that cancels once something happens."""

    def hear(event: Event) -> None:
        if when(event):
            token.cancel()

    return hear


def later(token: CancelToken, reached: threading.Event) -> threading.Thread:
    """A thread that cancels once a moment is reached."""

    def wait() -> None:
        assert reached.wait(LONG)
        token.cancel()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def look(at: str) -> str:
    return f"saw {at}"


BATCH = [call("look", at="a"), call("look", at="b"), call("look", at="c")]


@every_way
def test_a_turn_that_is_cancelled_before_it_starts_asks_nobody(way: Way) -> None:
    token = CancelToken()
    token.cancel("never mind")
    with Script() as script:
        seen = way.turn(AGENT, tools=[look], cancel=token)
    assert isinstance(seen.error, Cancelled)
    assert (seen.error.reason, script.requests) == ("never mind", [])
    assert [message.text for message in seen.messages] == ["Hi"]
    assert seen.of(RunCancelled) == [RunCancelled("never mind")]


@every_way
def test_what_was_done_between_two_tools_stays_and_the_rest_is_not_run(way: Way) -> None:
    token = CancelToken()
    hear = cancelling(token, lambda event: isinstance(event, ToolFinished))
    with Script(BATCH):
        seen = way.turn(AGENT, tools=[look], cancel=token, tool_execution="sequential", on_event=hear)
    assert isinstance(seen.error, Cancelled)
    assert seen.told == ["saw a", NOT_RUN.format("look"), NOT_RUN.format("look")]
    assert len(seen.of(ToolStarted)) == 1


@every_way
def test_a_turn_that_is_cancelled_after_its_tools_does_not_ask_the_model_again(way: Way) -> None:
    token = CancelToken()
    done: list[Event] = []

    def hear(event: Event) -> None:
        done.extend([event] if isinstance(event, ToolFinished) else [])
        if len(done) == 3:
            token.cancel()

    with Script(BATCH) as script:
        seen = way.turn(AGENT, tools=[look], cancel=token, on_event=hear)
    assert isinstance(seen.error, Cancelled)
    assert (seen.told, len(script.requests)) == (["saw a", "saw b", "saw c"], 1)


@every_way
@pytest.mark.parametrize("kind", ["functions", "coroutines"])
def test_a_turn_ends_while_tools_run(way: Way, kind: str) -> None:
    """A function goes on by itself and can know that it is not wanted any more; a coroutine is stopped."""
    token, release, stopped = CancelToken(), threading.Event(), threading.Event()
    running = threading.Barrier(3, timeout=LONG)
    threads: list[threading.Thread] = []

    @tool(name="work")
    def work(context: ToolContext) -> bool:
        threads.append(threading.current_thread())
        running.wait()
        release.wait(LONG)
        return context.cancel.cancelled

    @tool(name="work")
    async def work_async() -> None:
        try:
            await asyncio.to_thread(running.wait)
            await asyncio.sleep(LONG)
        finally:
            stopped.set()

    def cancel() -> None:
        running.wait()
        token.cancel("enough")

    canceller = threading.Thread(target=cancel)
    canceller.start()
    batch = [call("look", at="a"), call("work"), call("work")]
    function = work if kind == "functions" else work_async
    with Script(batch):
        seen = way.turn(AGENT, tools=[look, function], cancel=token)
    release.set()
    for thread in (canceller, *threads):
        thread.join(LONG)
    assert isinstance(seen.error, Cancelled)
    assert seen.told[1:] == [INTERRUPTED.format("work")] * 2
    assert kind == "functions" or stopped.wait(LONG)


def cancelling_tool(token: CancelToken) -> Callable[..., Any]:
    async def work() -> None:
        token.cancel("enough")
        await asyncio.sleep(LONG)

    return work


@every_way
@pytest.mark.parametrize("execution", ["parallel", "sequential"])
@pytest.mark.parametrize("most", [None, 1], ids=["all at once", "one at a time"])
def test_why_a_turn_is_cancelled_while_a_tool_runs_is_told(way: Way, execution: str, most: int | None) -> None:
    token = CancelToken()
    with Script([call("work"), call("look", at="b")]):
        seen = way.turn(
            AGENT, tools=[cancelling_tool(token), look], cancel=token, tool_execution=execution, max_parallel=most
        )
    assert str(seen.error) == "enough"
    assert seen.of(RunCancelled) == [RunCancelled("enough")]
    assert seen.told[0] == INTERRUPTED.format("work")
    assert most is None or seen.told[1] == "Error: Tool 'look' was not run: enough"


@every_way
def test_a_turn_that_is_cancelled_is_not_done_even_if_it_would_stop_then(way: Way) -> None:
    token = CancelToken()
    with Script(call("work")):
        seen = way.turn(AGENT, tools=[cancelling_tool(token)], cancel=token, stop=Stop.steps(1))
    assert isinstance(seen.error, Cancelled)


@every_way
@every_server
@pytest.mark.parametrize("within", [False, True], ids=["before a word", "in the middle"])
def test_a_turn_ends_while_the_model_is_silent(way: Way, wire: Wire, within: bool, server: Server) -> None:
    hold, token = Hold(), CancelToken()
    said = sent(wire, Reply(text="Let me see.", id="r", model="m"), way.streamed)
    called = sent(wire, Reply(tool_calls=(call("look", at="a", id="call_a"),), id="r", model="m"), way.streamed)
    server.answer(called, [*said[: 3 if way.streamed else 1], hold] if within else [hold])
    thread = later(token, hold.reached)
    seen = way.turn(wire.agent(server), tools=[look], cancel=token, timeout=LONG)
    thread.join()
    assert isinstance(seen.error, Cancelled)
    assert [message.role for message in seen.messages] == ["user", "assistant", "tool"]
    assert seen.told == ["saw a"]
    hold.release()  # a thread that waits for the beginning of an answer gives its connection up when there is one
    assert server.wait_until(lambda: server.busy == 0)


@pytest.mark.parametrize("way", [way for way in WAYS if way.streamed], ids=str)
@every_server
def test_a_streamed_turn_ends_at_the_delta_that_cancels_it(way: Way, wire: Wire, server: Server) -> None:
    """The whole answer arrives in one piece, so that no later read can notice it."""
    token = CancelToken()
    hear = cancelling(token, lambda event: isinstance(event, TextDelta))
    path = APIS["messages" if wire.name == "anthropic" else wire.name].path
    server.answer(stream(b"".join(ENCODINGS[path].events(Reply(text="word " * 50, id="r", model="m")))))
    seen = way.turn(wire.agent(server), cancel=token, on_event=hear)
    assert isinstance(seen.error, Cancelled)
    assert len(seen.of(TextDelta)) == 1


@every_way
def test_a_turn_ends_while_it_waits_to_try_again(way: Way) -> None:
    token = CancelToken()
    heard = threading.Event()
    thread = later(token, heard)
    fault = Fault(ModelError("busy", retryable=True, retry_after=LONG))
    with Script(fault) as script:
        seen = way.turn(AGENT, cancel=token, on_event=lambda event: heard.set() if isinstance(event, Retry) else None)
    thread.join()
    assert isinstance(seen.error, Cancelled)
    assert len(script.requests) == 1


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_async_turn_ends_while_its_gate_waits(streamed: bool) -> None:
    token, asked = CancelToken(), threading.Event()

    async def gate(_: list[GatedCall]) -> None:
        asked.set()
        await asyncio.sleep(LONG)

    thread = later(token, asked)
    with Script(BATCH):
        seen = Way(asynchronous=True, streamed=streamed).turn(AGENT, tools=[look], gate=gate, cancel=token)
    thread.join()
    assert isinstance(seen.error, Cancelled)
    assert seen.told == [NOT_RUN.format("look")] * 3


def test_an_error_that_carries_its_messages_can_be_gone_on_from() -> None:
    token = CancelToken()
    hear = cancelling(token, lambda event: isinstance(event, ToolStarted))
    with Script(BATCH), pytest.raises(Cancelled) as ended:
        turn(AGENT, tools=[look], cancel=token, on_event=hear, tool_execution="sequential")
    with Script("Where were we?") as script:
        said = turn(AGENT, tools=[look], messages=[*ended.value.messages, {"role": "user", "content": "Go on."}])
    assert said == "Where were we?"
    assert_legal("chat", script.requests[0])


# asyncio's own way.


def causes(error: BaseException | None) -> list[type[BaseException]]:
    return [] if error is None else [type(error), *causes(error.__cause__)]


def ours(error: BaseException) -> Cancelled:
    """Our own error behind that of asyncio."""
    found = error
    while not isinstance(found, Cancelled):
        assert found.__cause__ is not None, causes(error)
        found = found.__cause__
    return found


async def taken(streamed: bool, **options: Any) -> object:
    if not streamed:
        return await turn_async(AGENT, **options)
    async with await turn_async(AGENT, stream=True, **options) as events:
        return [event async for event in events.events()]


class Stuck:
    """A tool that never ends. A `limit` of time is over once it runs."""

    def __init__(self, limit: asyncio.Timeout | None = None) -> None:
        self.running, self.stopped, self._limit = asyncio.Event(), False, limit

    async def work(self) -> None:
        self.running.set()
        if self._limit:
            self._limit.reschedule(0)
        try:
            await asyncio.sleep(LONG)
        finally:
            self.stopped = True


STUCK_BATCH = [call("look", at="a"), call("work"), call("look", at="c")]


def check_left(error: Cancelled, stuck: Stuck) -> None:
    """The tools have ended, and each call has its result."""
    assert stuck.stopped
    told = [message.text for message in error.messages if message.role == "tool"]
    assert told[1] == INTERRUPTED.format("work")
    assert len(told) == 3
    assert_sendable(error.messages)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("with_token", [False, True], ids=["without a token", "with one"])
def test_a_task_that_is_cancelled_ends_as_asyncio_wants_and_keeps_the_messages(
    streamed: bool, with_token: bool
) -> None:
    async def main() -> None:
        stuck = Stuck()
        token = CancelToken() if with_token else None
        task = asyncio.create_task(taken(streamed, tools=[look, stuck.work], cancel=token))
        await stuck.running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as ended:
            await task
        assert task.cancelled()
        check_left(ours(ended.value), stuck)

    with Script(STUCK_BATCH):
        asyncio.run(main())


def test_a_task_that_is_cancelled_keeps_the_messages_even_if_the_turn_would_stop_then() -> None:
    async def main() -> None:
        stuck = Stuck()
        task = asyncio.create_task(taken(False, tools=[look, stuck.work], stop=Stop.steps(1)))
        await stuck.running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as ended:
            await task
        check_left(ours(ended.value), stuck)

    with Script(STUCK_BATCH):
        asyncio.run(main())


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("execution", ["parallel", "sequential"])
def test_a_time_limit_of_asyncio_ends_a_turn_and_keeps_the_messages(streamed: bool, execution: str) -> None:
    async def main() -> None:
        stuck = Stuck(limit := asyncio.timeout(None))
        with pytest.raises(TimeoutError) as ended:
            async with limit:
                await taken(streamed, tools=[look, stuck.work], tool_execution=execution)
        check_left(ours(ended.value), stuck)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]  # there is a task here

    with Script(STUCK_BATCH):
        asyncio.run(main())


def test_a_task_that_is_cancelled_while_the_model_is_silent_keeps_the_messages(server: Server) -> None:
    hold, wire = Hold(), WIRES[0]
    called = sent(wire, Reply(tool_calls=(call("look", at="a", id="call_a"),), id="r", model="m"), streamed=False)
    server.answer(called, [hold])

    async def main() -> None:
        task = asyncio.create_task(turn_async(wire.agent(server), tools=[look]))
        await asyncio.to_thread(hold.reached.wait, LONG)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as ended:
            await task
        assert [message.role for message in ours(ended.value).messages] == ["user", "assistant", "tool"]

    asyncio.run(main())


def test_a_task_and_a_token_that_are_cancelled_together_end_the_task() -> None:
    """Whoever cancels a task must see it end cancelled, whatever else happens at that moment."""

    async def main() -> None:
        stuck, token = Stuck(), CancelToken()
        task = asyncio.create_task(taken(False, tools=[look, stuck.work], cancel=token))
        await stuck.running.wait()
        token.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as ended:
            await task
        check_left(ours(ended.value), stuck)

    with Script(STUCK_BATCH):
        asyncio.run(main())


class Lasting:
    """Async tools: one that would last, and takes a moment to end, and one that ends once that one runs."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), threading.Event()

    async def quick(self) -> str:
        await self.begun.wait()
        return "quick"

    async def lasting(self) -> str:
        self.begun.set()
        try:
            await asyncio.sleep(LONG)
            return "too late"
        finally:
            await asyncio.sleep(0.05)
            self.ended.set()


def test_closing_a_stream_ends_async_tools_and_waits_for_their_end() -> None:
    tools = Lasting()
    with Script([call("quick"), call("lasting")]):
        answer = turn(AGENT, tools=[tools.quick, tools.lasting], stream=True)
        assert any(isinstance(event, ToolFinished) for event in answer.events())
        answer.close()
    assert tools.ended.is_set()


def test_closing_an_async_stream_ends_async_tools_and_waits_for_their_end() -> None:
    tools = Lasting()

    async def main() -> None:
        answer = await turn_async(AGENT, tools=[tools.quick, tools.lasting], stream=True)
        async for event in answer.events():
            if isinstance(event, ToolFinished):
                break
        await answer.aclose()
        assert tools.ended.is_set()

    with Script([call("quick"), call("lasting")]):
        asyncio.run(main())


def test_a_stream_that_is_dropped_in_sync_code_ends_async_tools() -> None:
    tools = Lasting()
    with Script([call("quick"), call("lasting")]):
        answer = turn(AGENT, tools=[tools.quick, tools.lasting], stream=True)
        assert any(isinstance(event, ToolFinished) for event in answer.events())
        del answer
        gc.collect()
    assert tools.ended.is_set()


def test_a_token_ends_async_tools_of_sync_code_and_waits_for_their_end() -> None:
    tools, token = Lasting(), CancelToken()
    listener = cancelling(token, lambda event: isinstance(event, ToolFinished))
    with Script([call("quick"), call("lasting")]), pytest.raises(Cancelled):
        turn(AGENT, tools=[tools.quick, tools.lasting], cancel=token, on_event=listener)
    assert tools.ended.is_set()


def test_closing_a_stream_does_not_wait_for_a_tool_that_refuses_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prompty.concurrency.END_SECONDS", 0.1)
    released = threading.Event()

    tools = Lasting()

    async def stubborn() -> str:
        tools.begun.set()
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        return "at last"

    with Script([call("quick"), call("stubborn")]):
        answer = turn(AGENT, tools=[tools.quick, stubborn], stream=True)
        assert any(isinstance(event, ToolFinished) for event in answer.events())
        answer.close()
    released.set()


def test_who_listens_to_a_token_that_is_cancelled_already_hears_of_it_once() -> None:
    cancel, heard = CancelToken(), list[str]()
    cancel.cancel()
    with cancel.listening(lambda: heard.append("cancelled")):
        cancel.cancel()
    assert heard == ["cancelled"]
