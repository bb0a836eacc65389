"""Does what a loop asks for, in synchronous code."""

import inspect
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from random import uniform
from typing import Any, Protocol, TypeVar, cast

from prompty.cancellation import CancelToken
from prompty.concurrency import in_event_loop
from prompty.drivers.deadline import Clock, Deadline, within
from prompty.drivers.decoding import without_secrets
from prompty.drivers.host import Host, Question
from prompty.drivers.stage import run_stage
from prompty.drivers.toolruns import ToolRuns
from prompty.drivers.watch import UNWATCHED, Unwatched, Watch
from prompty.errors import PromptyError
from prompty.loop.effects import (
    AskGate,
    CallModel,
    CallTools,
    CheckGuardrail,
    Checkpoint,
    DescribeTools,
    DrainSteering,
    Effect,
    Emit,
    LoadMemory,
    Loop,
    SaveMemory,
    Summarise,
    Wait,
)
from prompty.model.event import Event
from prompty.model.message import Json
from prompty.model.reply import Reply
from prompty.model.request import WireRequest

T = TypeVar("T")
LOCK_POLL = 0.02


class Model(Protocol):
    """What answers requests."""

    def answer(self, request: WireRequest, deadline: Deadline) -> Generator[Event, None, Reply]: ...


@dataclass(kw_only=True, slots=True)
class SyncDriver:
    """Performs effects: models, the tools of one run, and what the host gave with it."""

    models: Sequence[Model]
    tools: ToolRuns | None = None
    host: Host = field(default_factory=Host)
    cancel: CancelToken | None = None
    clock: Clock = field(default_factory=Clock)
    watch: Watch | Unwatched = UNWATCHED

    def __post_init__(self) -> None:
        self.watch.attach(self.host, self.tools)

    def run(self, loop: Loop[T]) -> Generator[Event, None, T]:
        """Drive a loop to its end: yields what happens, returns its result."""
        answer: object = None
        failure: PromptyError | None = None
        try:
            while True:
                try:
                    with self.watch.within():
                        effect = loop.throw(failure) if failure else loop.send(answer)
                except StopIteration as end:
                    return cast(T, end.value)
                answer = failure = None
                try:
                    answer = yield from self._perform(effect)
                except PromptyError as error:
                    failure = without_secrets(error, self.models)
        finally:
            loop.close()
            self.host.end()
            self.watch.end()

    def _perform(self, effect: Effect[object]) -> Generator[Event, None, object]:
        match effect:
            case Emit(event):
                self.host.tell(event)
                yield event
                return None
            case SaveMemory(session_id, messages):  # what happened is stored, whatever ends the turn
                self.host.save(session_id, messages)
                return None
        check(self.cancel, self.clock)
        match effect:
            case CallModel(request, number):
                events = self.models[number].answer(request, self.clock.deadline(request))
                return (yield from self._heard(self.watch.answer(effect, self.models[number], events)))
            case CallTools() if self.tools:
                return (yield from self._heard(run_stage(self.tools, effect, alone=self.cancel is None)))
            case DescribeTools() if self.tools and self.tools.has_kinds:
                with self.watch.within():
                    in_event_loop(self.tools.find_kinds(sync=True)).result()
        with self.watch.within():
            return self._answer(effect)

    def _answer(self, effect: Effect[object]) -> object:
        match effect:
            case DescribeTools():
                return self.tools.offered() if self.tools else ()
            case AskGate() | CheckGuardrail() | Summarise():
                return self._asked(effect)
            case DrainSteering(follow_ups):
                return self.host.said(follow_ups=follow_ups)
            case LoadMemory(session_id):
                return self._loaded(session_id)
            case Checkpoint():
                return None
            case Wait(seconds):
                self._wait(within(self.clock.current, uniform(seconds, seconds * 1.25)))  # noqa: S311  not for secrets
                return None
        raise TypeError(f"no driver for {type(effect).__name__}")

    def _heard(self, events: Generator[Event, None, T]) -> Generator[Event, None, T]:
        """Pass events on, to the listener too."""
        if not self.host.hears:
            return (yield from events)
        try:
            while True:
                try:
                    event = next(events)
                except StopIteration as end:
                    return cast(T, end.value)
                self.host.tell(event)
                yield event
        finally:
            events.close()

    def _wait(self, seconds: float) -> None:
        if self.cancel:
            self.cancel.wait(seconds)
        else:
            time.sleep(seconds)

    def _asked(self, question: Question) -> object:
        try:
            answer = self.host.ask(question)
            return in_event_loop(_awaited(answer)).result() if inspect.isawaitable(answer) else answer
        except Exception as error:
            return self.host.failed(question, error)

    def _loaded(self, session_id: str) -> list[Json]:
        while not self.host.begin_session(session_id):
            self._wait(LOCK_POLL)
            check(self.cancel, self.clock)
        return self.host.load(session_id)


async def _awaited(awaitable: Any) -> object:
    return await awaitable


def check(cancel: CancelToken | None, clock: Clock) -> None:
    """Raise when the turn may not go on."""
    if cancel:
        cancel.check()
    clock.check()
