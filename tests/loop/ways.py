"""The four ways to take a turn (sync or async, streamed or not), so that each behaviour is written once."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest

from prompty import Message, PromptAgent, PromptyError, turn, turn_async
from prompty.events import Done, MessagesChanged, RunStarted, ToolFinished, ToolGated, ToolStarted
from prompty.model.event import Event
from tests.loop.bodies import assert_sendable

E = TypeVar("E")
WIRES = ("chat", "responses", "messages")
# Long enough for what certainly happens; nobody ever waits so long.
LONG = 20


@dataclass
class Seen:
    """What came of a turn. Its messages are those of the result or of the error."""

    events: list[Event] = field(default_factory=list)
    result: Any = None
    error: PromptyError | None = None

    @property
    def messages(self) -> Sequence[Message]:
        return self.error.messages if self.error else self.of(Done)[-1].messages

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def told(self) -> list[str]:
        """What the tools said to the model, in the order of the conversation."""
        return [message.text for message in self.messages if message.role == "tool"]

    @property
    def without_run(self) -> list[Event]:
        """The events without what no two runs have in common, and those of tools in the order of the calls."""
        events = [_without_run(event) for event in self.events]
        return sorted(events, key=_place(events))


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
    """One way to take a turn."""

    asynchronous: bool
    streamed: bool

    def __str__(self) -> str:
        return ("async" if self.asynchronous else "sync") + (" stream" if self.streamed else "")

    def turn(self, agent: PromptAgent, inputs: dict[str, Any] | None = None, **options: Any) -> Seen:
        """Take a turn to its end; an error of ours is kept, any other is a failure of the test. What it leaves behind
        can always be sent."""
        if self.asynchronous:
            return asyncio.run(self.turn_async(agent, inputs, **options))
        seen = Seen()
        options = listening(seen, options)
        try:
            if not self.streamed:
                seen.result = turn(agent, inputs, **options)
            else:
                with turn(agent, inputs, stream=True, **options) as stream:
                    assert list(stream.events()) == seen.events
                    seen.result = stream.result
                    assert stream.messages == seen.messages
        except PromptyError as error:
            seen.error = error
        return checked(seen)

    async def turn_async(self, agent: PromptAgent, inputs: dict[str, Any] | None = None, **options: Any) -> Seen:
        seen = Seen()
        options = listening(seen, options)
        try:
            if not self.streamed:
                seen.result = await turn_async(agent, inputs, **options)
            else:
                async with await turn_async(agent, inputs, stream=True, **options) as stream:
                    assert [event async for event in stream.events()] == seen.events
                    seen.result = await stream.result()
                    assert stream.messages == seen.messages
        except PromptyError as error:
            seen.error = error
        return checked(seen)


def listening(seen: Seen, options: dict[str, Any]) -> dict[str, Any]:
    """The options with a listener that notes everything, before the one that the test gives."""
    own = options.pop("on_event", None)

    def hear(event: Event) -> None:
        seen.events.append(event)
        if own:
            own(event)

    return {**options, "on_event": hear}


def checked(seen: Seen) -> Seen:
    if seen.events and seen.messages:
        assert_sendable(seen.messages)
    return seen


WAYS: Sequence[Way] = [Way(asynchronous, streamed) for asynchronous in (False, True) for streamed in (False, True)]
every_way = pytest.mark.parametrize("way", WAYS, ids=str)
every_wire = pytest.mark.parametrize("wire", WIRES)


def agent_of(wire: str = "chat", **parts: Any) -> PromptAgent:
    """A prompt that a script answers."""
    model = {"id": "m", "provider": "scripted", "apiType": wire, **parts.pop("model", {})}
    return PromptAgent.model_validate({"model": model, "instructions": "user:\nHi", **parts})


def tool_events(seen: Seen) -> list[tuple[str, str]]:
    """What happened to calls: the kind of each event and the name of its tool."""
    kinds = (ToolGated, ToolStarted, ToolFinished)
    return [(type(event).__name__, event.call.name) for event in seen.events if isinstance(event, kinds)]
