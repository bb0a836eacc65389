"""What both drivers share: the models, tools and clock of a run, and the host's functions and stores.

A `Moment` is a value of `time.monotonic`, or None for no limit.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from logging import Logger, getLogger
from typing import Any, Generic, TypeVar

from prompty.cancellation import CancelToken
from prompty.drivers.run_spans import RunSpans
from prompty.drivers.session import MemorySession
from prompty.drivers.target import Target, describe_failure
from prompty.drivers.tool_runner import ToolRunner
from prompty.errors import TIMED_OUT, BudgetSpent, ModelError, PromptyError
from prompty.loop.effects import AskGate, CallModel, CheckGuardrail, Effect, Loop, Summarise, Verdict
from prompty.loop.meter import CallKind, Meter
from prompty.loop.options import Settings
from prompty.model.event import Delta, Event
from prompty.model.message import Message
from prompty.model.request import WireRequest
from prompty.pipeline.places import place_error
from prompty.providers import Api
from prompty.safety.redaction import Redactor, masked_traceback
from prompty.tracing.spans import NULL_SPAN

Summary = Callable[[list[Message], int], object]
Question = AskGate | CheckGuardrail | Summarise
logger: Logger = getLogger("prompty")
Results = list[Message | None]
T = TypeVar("T")
V = TypeVar("V", covariant=True)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[V]):
    """The result of an async generator, which cannot return a value: it yields this last."""

    value: V


class Host:
    """The host's side of one run."""

    def __init__(
        self, redactor: Redactor, settings: Settings, summary: Summary | None = None, spans: RunSpans | None = None
    ) -> None:
        self._redactor, self._settings, self._summary, self._spans = redactor, settings, summary, spans
        self.session: MemorySession | None = MemorySession(settings.memory) if settings.memory is not None else None
        self.is_listening: bool = settings.on_event is not None or spans is not None

    def ask(self, question: Question) -> object:
        """Call the gate, a guardrail or the summary. An async function returns an awaitable."""
        match question:
            case AskGate(calls):
                gate = self._settings.gate
                return gate(list(calls)) if gate else None
            case CheckGuardrail(kind, value):
                guardrail = getattr(self._settings.guardrails, kind, None)
                return guardrail(list(value) if kind == "input" else value) if guardrail else None  # type: ignore[call-overload]  # an input is a tuple of messages
            case Summarise(messages, characters):
                return self._summary(list(messages), characters) if self._summary else None

    def answer_failure(self, question: Question, error: Exception) -> object:
        """Fail closed after an exception: deny for gate and guardrails, None for a summary."""
        if isinstance(error, PromptyError) and not isinstance(question, Summarise):
            raise error
        self._log("The host's function for %s raised.\n%s", type(question).__name__, error)
        match question:
            case AskGate(calls):
                return [Verdict(False, "the gate failed")] * len(calls)
            case CheckGuardrail():
                return Verdict(False, "the guardrail failed")
            case Summarise():
                return None

    def drain_steering(self, *, follow_ups: bool) -> list[str]:
        steering = self._settings.steering
        return steering.drain(follow_ups=follow_ups) if steering else []

    def inside_session(self) -> Any:
        """Enter a function of the host: what it calls cannot wait for the session of this run."""
        return NULL_SPAN if self.session is None else self.session.around()

    def emit(self, event: Event) -> None:
        """Pass an event to the spans and to the listener. A listener's exception is logged."""
        if self._spans is not None:
            self._notify(self._spans.on_event, event)
        if self._settings.on_event is not None:
            with self.inside_session():
                self._notify(self._settings.on_event, event)

    def _notify(self, listener: Callable[[Event], object], event: Event) -> None:
        try:
            listener(event)
        except Exception as error:
            self._log("A listener raised on %s.\n%s", type(event).__name__, error)

    def _log(self, text: str, name: str, error: Exception) -> None:
        logger.error(text, name, masked_traceback(error, self._redactor))


NO_HOST = Host(Redactor(), Settings())  # shared by runs without host functions


Moment = float | None


@dataclass(slots=True)
class Clock:
    """The time budget of a run, and the deadline of its current model call."""

    seconds: float | None = None
    end: Moment = field(init=False)
    current: Moment = field(init=False)
    _call: int = 0

    def __post_init__(self) -> None:
        self.end = self.current = _after(self.seconds)

    def deadline(self, call: int, timeout: float | None) -> Moment:
        """Return the deadline of a model call. All attempts of one call share it."""
        if timeout is None and self.end is None:
            return None
        if call != self._call:
            self._call = call
            ends = [moment for moment in (self.end, _after(timeout)) if moment is not None]
            self.current = min(ends, default=None)
        return self.current

    def left(self) -> float | None:
        """Return the seconds left in the run's budget."""
        return None if self.end is None else max(self.end - time.monotonic(), 0)

    def check(self) -> None:
        """Raise BudgetSpent if the run has used its time."""
        if self.end is not None and time.monotonic() > self.end:
            raise BudgetSpent(f"the turn has used its budget of {self.seconds} seconds")


def _after(seconds: float | None) -> Moment:
    return None if seconds is None else time.monotonic() + seconds


def check_deadline(deadline: Moment, seconds: float = 0) -> float:
    """Return `seconds` if the deadline is later than that, else raise ModelError."""
    if deadline is not None and time.monotonic() + seconds > deadline:
        raise ModelError(TIMED_OUT)
    return seconds


def limit_timeout(request: WireRequest, deadline: Moment) -> WireRequest:
    """Return the request with the remaining time as its timeout."""
    if deadline is None:
        return request
    check_deadline(deadline)
    return replace(request, timeout=max(deadline - time.monotonic(), 0.001))


NO_LIMIT = Clock()  # shared: without limits it never changes


@dataclass(kw_only=True, slots=True)
class Driver:
    """Base class of drivers. Unless it is `streaming`, events go to listeners only."""

    targets: Sequence[Target]
    tools: ToolRunner | None
    host: Host
    clock: Clock
    meter: Meter
    redactor: Redactor
    cancel: CancelToken | None = None
    spans: RunSpans | None = None
    streaming: bool = False

    def inside(self, effect: Effect[object]) -> Any:
        """Make the span that an effect belongs to the current one, and hide what the run hides."""
        if self.spans is None:
            return self.redactor.inside()
        return self.spans.call_span.inside() if isinstance(effect, CallModel) else self.spans.inside()

    def advance(self, loop: Loop[T], answer: object, failure: PromptyError | None) -> Effect[object] | Outcome[T]:
        """Resume the loop, inside the span of the run, and return its next effect, or its result at the end."""
        try:
            if self.spans is None:
                return loop.throw(failure) if failure else loop.send(answer)
            with self.spans.inside():
                return loop.throw(failure) if failure else loop.send(answer)
        except StopIteration as end:
            return Outcome(end.value)
        except PromptyError as error:
            place_error(error, self.targets[0].agent)
            raise

    def describe_failure(self, error: PromptyError, effect: Effect[object]) -> PromptyError:
        """Return the error of an effect, with the call it belongs to, and without what the run hides."""
        with self.redactor.inside():
            return describe_failure(error, effect, self.targets)

    def get_kind(self, effect: CallModel) -> CallKind | None:
        """Return the kind of a call that may have to wait for others under a budget, or None if it never does."""
        if not self.meter.is_limited or effect.request.method == "GET":  # an answer in the background
            return None
        agent = self.targets[effect.model].agent
        return agent.path or agent.name, agent.model.id, len(effect.request.messages)

    def check(self) -> None:
        """Raise if the run was cancelled, or has used its time budget."""
        if self.cancel:
            self.cancel.check()
        if self.clock.end is not None:
            self.clock.check()

    def until_cancelled(self, deltas: Iterable[Delta]) -> Iterable[Delta]:
        """Return the deltas of a chunk, and raise after the one that the run is cancelled at."""
        return deltas if self.cancel is None else _check_each(deltas, self.cancel)


def _check_each(deltas: Iterable[Delta], cancel: CancelToken) -> Iterator[Delta]:
    for delta in deltas:
        yield delta
        cancel.check()


ABANDON_SECONDS = 5.0  # for telling a server that its answer is not wanted any more


def count_streamed(request: WireRequest, api: Api) -> int:
    """Return how many characters of the answer were streamed before, if it continues an earlier piece."""
    last = request.messages[-1] if request.messages and api.unfinished else None
    is_continued = last is not None and last.role == "assistant" and last.finish_reason in api.unfinished
    return len(last.text) if last is not None and is_continued else 0
