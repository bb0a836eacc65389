"""Does what a loop asks for, in synchronous code."""

import inspect
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from logging import getLogger
from random import uniform
from typing import Any, Protocol, TypeVar, cast

from prompty.drivers.deadline import Clock, Deadline, within
from prompty.drivers.decoding import without_secrets
from prompty.drivers.stage import run_stage
from prompty.drivers.threads import in_event_loop
from prompty.drivers.toolruns import ToolRuns
from prompty.errors import PromptyError
from prompty.loop.effects import (
    AskGate,
    CallModel,
    CallTools,
    DescribeTools,
    Effect,
    Emit,
    GatedCall,
    Loop,
    Verdict,
    Wait,
)
from prompty.model.event import Event
from prompty.model.reply import Reply
from prompty.providers import WireRequest
from prompty.tools.context import CancelToken

T = TypeVar("T")
Gate = Callable[[list[GatedCall]], object]
Listener = Callable[[Event], object]
logger = getLogger("prompty")


class Model(Protocol):
    """What answers requests."""

    def answer(self, request: WireRequest, deadline: Deadline) -> Generator[Event, None, Reply]: ...


@dataclass(kw_only=True, slots=True)
class SyncDriver:
    """Performs effects: one model, the tools of one run, and what the host gave with it."""

    model: Model
    tools: ToolRuns | None = None
    gate: Gate | None = None
    cancel: CancelToken | None = None
    listener: Listener | None = None
    clock: Clock = field(default_factory=Clock)

    def run(self, loop: Loop[T]) -> Generator[Event, None, T]:
        """Drive a loop to its end: yields what happens, returns its result."""
        answer: object = None
        failure: PromptyError | None = None
        try:
            while True:
                try:
                    effect = loop.throw(failure) if failure else loop.send(answer)
                except StopIteration as end:
                    return cast(T, end.value)
                answer = failure = None
                try:
                    answer = yield from self._perform(effect)
                except PromptyError as error:
                    failure = without_secrets(error, getattr(self.model, "transport", None))
        finally:
            loop.close()

    def _perform(self, effect: Effect[object]) -> Generator[Event, None, object]:
        if isinstance(effect, Emit):
            yield from self._told(effect.event)
            return None
        check(self.cancel, self.clock)
        match effect:
            case CallModel(request):
                return (yield from self._heard(self.model.answer(request, self.clock.deadline(request))))
            case CallTools() if self.tools:
                return (yield from self._heard(run_stage(self.tools, effect, alone=self.cancel is None)))
            case DescribeTools():
                return self.tools.offered() if self.tools else ()
            case AskGate(calls):
                return self._judged(calls)
            case Wait(seconds):
                self._wait(within(self.clock.current, uniform(seconds, seconds * 1.25)))  # noqa: S311  not for secrets
                return None
        raise TypeError(f"no driver for {type(effect).__name__}")

    def _heard(self, events: Generator[Event, None, T]) -> Generator[Event, None, T]:
        """Pass events on, to the listener too."""
        if self.listener is None:
            return (yield from events)
        try:
            while True:
                try:
                    event = next(events)
                except StopIteration as end:
                    return cast(T, end.value)
                yield from self._told(event)
        finally:
            events.close()

    def _told(self, event: Event) -> Generator[Event, None, None]:
        tell(self.listener, event)
        yield event

    def _wait(self, seconds: float) -> None:
        if self.cancel:
            self.cancel.wait(seconds)
        else:
            time.sleep(seconds)

    def _judged(self, calls: tuple[GatedCall, ...]) -> object:
        try:
            answer = self.gate(list(calls)) if self.gate else None
            if inspect.isawaitable(answer):
                return in_event_loop(_awaited(answer)).result()
            return answer
        except Exception as error:
            return gate_failed(error, len(calls))


async def _awaited(awaitable: Any) -> object:
    return await awaitable


def gate_failed(error: Exception, count: int) -> list[Verdict]:
    """What is said for a gate that raised: no, to everything. Cancelling the turn is the one thing it may raise."""
    if isinstance(error, PromptyError):
        raise error
    logger.exception("The gate raised, so no call of this batch runs.")
    return [Verdict(False, "the gate failed")] * count


def check(cancel: CancelToken | None, clock: Clock) -> None:
    """Raise when the turn may not go on."""
    if cancel:
        cancel.check()
    clock.check()


def tell(listener: Listener | None, event: Event) -> None:
    """Tell a listener of the host. What it raises is its own affair and not that of the run."""
    if listener is None:
        return
    try:
        listener(event)
    except Exception:
        logger.exception("A listener raised on %s.", type(event).__name__)
