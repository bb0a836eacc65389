"""The ways to run a prompt: sync or async, streamed or not, so that a behaviour is written once.

`every_way` is for what a driver does: threads, tasks, streams, time-outs, cancellation. `one_way` is for what the loop
decides, because both drivers run the same loop. `whole_and_streamed` is for what an answer becomes on the way, because
both drivers read answers by the same code. `tests/drivers/test_parity.py` holds all ways to the same outcome.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest

import prompty
from prompty import Message, ModelError, PromptAgent, PromptyError
from prompty.events import (
    Done,
    Event,
    MessagesChanged,
    ModelReply,
    ReasoningDelta,
    Retry,
    RunStarted,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolGated,
    ToolStarted,
)
from tests.loop.bodies import assert_sendable

E = TypeVar("E")
WIRES = ("chat", "responses", "messages")
# Long enough for what certainly happens; nobody ever waits so long.
LONG = 20


@dataclass
class Seen:
    """The outcome of a run: its events, and its result or its error."""

    events: list[Event] = field(default_factory=list)
    result: Any = None
    error: PromptyError | None = None

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation at the end, from the error or from the last event."""
        return self.error.messages if self.error else self.of(Done)[-1].messages

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    @property
    def told(self) -> list[str]:
        """What the tools said to the model, in the order of the conversation."""
        return [message.text for message in self.messages if message.role == "tool"]

    @property
    def answer(self) -> list[Event]:
        """The events of the model's answers, without those of the run around them."""
        kinds = TextDelta | ReasoningDelta | ToolCallDelta | Retry | ModelReply
        return [event for event in self.events if isinstance(event, kinds)]

    @property
    def outcome(self) -> tuple[object, ...]:
        """What can be compared with another run: the answers, the result and the words of the error."""
        return self.answer, self.result, self.cause

    @property
    def cause(self) -> str:
        """The words of the error, without the call of a model that it names."""
        return self.error.cause if isinstance(self.error, ModelError) else str(self.error)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.of(TextDelta))

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def tool_events(self) -> list[tuple[str, str]]:
        """What happened to tool calls: the kind of each event and the name of its tool."""
        kinds = ToolGated | ToolStarted | ToolFinished
        return [(type(event).__name__, event.call.name) for event in self.events if isinstance(event, kinds)]

    @property
    def without_run(self) -> list[Event]:
        """The events without what no two runs have in common, and those of tools in the order of the calls."""
        events = [_without_run(event) for event in self.events]
        return sorted(events, key=_place(events))

    def listening(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options with a listener that notes every event before the test's own one hears it."""
        own = options.get("on_event")

        def hear(event: Event) -> None:
            self.events.append(event)
            if own:
                own(event)

        return {**options, "on_event": hear}

    def checked(self) -> "Seen":
        """Return it, if every API takes the conversation that is left."""
        if (self.error or self.of(Done)) and self.messages:
            assert_sendable(self.messages)
        return self


def _without_run(event: Event) -> Event:
    if isinstance(event, RunStarted):
        return replace(event, run_id="")
    return replace(event, key="") if isinstance(event, ToolStarted | ToolFinished) else event


def _place(events: list[Event]) -> Callable[[Event], tuple[int, str]]:
    """Where an event belongs: tools of one round may finish in any order."""
    rounds = {
        id(event): sum(isinstance(one, MessagesChanged) for one in events[:at]) for at, event in enumerate(events)
    }
    order = {id(event): at for at, event in enumerate(events)}
    finished = {
        number: [
            order[id(event)] for event in events if rounds[id(event)] == number and isinstance(event, ToolFinished)
        ]
        for number in set(rounds.values())
    }

    def place(event: Event) -> tuple[int, str]:
        if isinstance(event, ToolFinished):
            return min(finished[rounds[id(event)]]), repr(event.call)
        return order[id(event)], ""

    return place


@dataclass(frozen=True)
class Way:
    """One way to run a prompt. An error of ours is kept in what is seen; any other is a failure of the test."""

    asynchronous: bool = False
    streamed: bool = False

    def __str__(self) -> str:
        return ("async" if self.asynchronous else "sync") + (" stream" if self.streamed else "")

    def invoke(self, prompt: Any, inputs: Any = None, **options: Any) -> Seen:
        return self._run("invoke", prompt, inputs, **options)

    def turn(self, prompt: Any, inputs: Any = None, *, sendable: bool = True, **options: Any) -> Seen:
        """Take a turn. What it leaves behind can be sent to every API, unless the test says otherwise."""
        seen = self._run("turn", prompt, inputs, **options)
        return seen.checked() if sendable else seen

    def resume(self, prompt: Any, paused: Any, verdicts: Any, **options: Any) -> Seen:
        """Go on with a paused turn."""
        return self._run("resume", prompt, paused, verdicts, **options).checked()

    async def invoke_async(self, prompt: Any, inputs: Any = None, **options: Any) -> Seen:
        return await self._run_async("invoke", prompt, inputs, **options)

    async def turn_async(self, prompt: Any, inputs: Any = None, **options: Any) -> Seen:
        return (await self._run_async("turn", prompt, inputs, **options)).checked()

    def invoke_often(self, times: int, prompt: Any, **options: Any) -> list[Seen]:
        """Call several times in a row, in one event loop."""

        async def often() -> list[Seen]:
            return [await self.invoke_async(prompt, **options) for _ in range(times)]

        return asyncio.run(often()) if self.asynchronous else [self.invoke(prompt, **options) for _ in range(times)]

    def invoke_until_heard(self, prompt: Any, timeout: float) -> Seen:
        """Call with a time limit, and with longer ones as long as nothing is heard: on a busy machine even a first
        word may take its time."""
        seen = self.invoke(prompt, timeout=timeout)
        return seen if seen.text or timeout > 3 else self.invoke_until_heard(prompt, timeout * 2)

    def _run(self, verb: str, *arguments: Any, **options: Any) -> Seen:
        if self.asynchronous:
            return asyncio.run(self._run_async(verb, *arguments, **options))
        seen = Seen()
        options = seen.listening(options)
        try:
            if not self.streamed:
                seen.result = getattr(prompty, verb)(*arguments, **options)
            else:
                with getattr(prompty, verb)(*arguments, stream=True, **options) as stream:
                    assert list(stream.events()) == seen.events
                    seen.result = stream.result
                    assert not seen.of(Done) or stream.messages == seen.messages
        except PromptyError as error:
            seen.error = error
        return seen

    async def _run_async(self, verb: str, *arguments: Any, **options: Any) -> Seen:
        seen = Seen()
        options = seen.listening(options)
        function = getattr(prompty, f"{verb}_async")
        try:
            if not self.streamed:
                seen.result = await function(*arguments, **options)
            else:
                async with await function(*arguments, stream=True, **options) as stream:
                    assert [event async for event in stream.events()] == seen.events
                    seen.result = await stream.result()
                    assert not seen.of(Done) or stream.messages == seen.messages
        except PromptyError as error:
            seen.error = error
        return seen


SYNC, ASYNC = Way(), Way(asynchronous=True)
WHOLE: Sequence[Way] = (SYNC, ASYNC)
STREAMED: Sequence[Way] = tuple(replace(way, streamed=True) for way in WHOLE)
WAYS: Sequence[Way] = (SYNC, STREAMED[0], ASYNC, STREAMED[1])

every_way = pytest.mark.parametrize("way", WAYS, ids=str)
sync_and_async = pytest.mark.parametrize("way", WHOLE, ids=str)
whole_and_streamed = pytest.mark.parametrize("way", [SYNC, STREAMED[0]], ids=str)
one_way = pytest.mark.parametrize("way", [SYNC], ids=str)
every_wire = pytest.mark.parametrize("wire", WIRES)


def agent_of(wire: str = "chat", **parts: Any) -> PromptAgent:
    """A prompt that a script answers."""
    model = {"id": "m", "provider": "scripted", "apiType": wire, **parts.pop("model", {})}
    return PromptAgent.model_validate({"model": model, "instructions": "user:\nHi", **parts})
