"""What the host of a run answers: functions it gave, sync or async, and the handles it holds."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from logging import getLogger
from typing import Protocol

from prompty.errors import MemoryFailed, PromptyError
from prompty.loop.effects import AskGate, CheckGuardrail, Summarise, Verdict
from prompty.loop.guardrails import Guardrails
from prompty.model.event import Event
from prompty.model.message import Json, Message
from prompty.model.paused import GatedCall
from prompty.safety.redaction import masked_traceback

Gate = Callable[[list[GatedCall]], object]
Listener = Callable[[Event], object]
Summary = Callable[[list[Message], int], object]
Question = AskGate | CheckGuardrail | Summarise
logger = getLogger("prompty")


class MemoryStore(Protocol):
    """Keeps conversations. `prompty.memory.suite` is the test suite that a store must pass.

    Its methods are quick: they are called on the event loop too.
    """

    def load(self, session_id: str, /) -> list[Json]:
        """The messages of a session, in order; none for one that nobody has written to."""
        ...

    def append(self, session_id: str, messages: tuple[Json, ...], /) -> None:
        """Add messages, all or none."""
        ...

    def replace(self, session_id: str, messages: tuple[Json, ...], /) -> None:
        """Put these in the place of all messages of a session."""
        ...

    def acquire(self, session_id: str, /) -> Callable[[], None] | None:
        """Keep others from a session, across all threads and processes that use the store. Gives what releases it, or
        None if somebody else has it. It is free again when the process that has it ends, however it ends."""
        ...


class Steering:
    """What a person says while a turn runs; any thread may say it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[bool, list[str]] = {False: [], True: []}

    def send(self, text: str) -> None:
        """Tell the model before it is asked again; after its answer, if it is not asked again."""
        with self._lock:
            self._said[False].append(text)

    def follow_up(self, text: str) -> None:
        """Tell the model when it has answered; the turn goes on with it."""
        with self._lock:
            self._said[True].append(text)

    def drain(self, *, follow_ups: bool) -> list[str]:
        """Everything that was said and not taken yet, at once."""
        with self._lock:
            said = self._said[False] + (self._said[True] if follow_ups else [])
            self._said = {False: [], True: [] if follow_ups else self._said[True]}
        return said


@dataclass(kw_only=True, slots=True)
class Host:
    """Everything a host gave to a run beside its tools."""

    gate: Gate | None = None
    guardrails: Guardrails | None = None
    summary: Summary | None = None
    steering: Steering | None = None
    memory: MemoryStore | None = None
    listener: Listener | None = None
    watcher: Listener | None = None
    release: Callable[[], None] | None = None

    @property
    def hears(self) -> bool:
        """Whether anybody is told what happens."""
        return self.listener is not None or self.watcher is not None

    def ask(self, question: Question) -> object:
        """What a function of the host says; an async one gives something to wait for."""
        match question:
            case AskGate(calls):
                return self.gate(list(calls)) if self.gate else None
            case CheckGuardrail(kind, value):
                guardrail = getattr(self.guardrails, kind, None)
                return guardrail(list(value) if kind == "input" else value) if guardrail else None  # type: ignore[call-overload]  # an input is a tuple of messages
            case Summarise(messages, characters):
                return self.summary(list(messages), characters) if self.summary else None

    def failed(self, question: Question, error: Exception) -> object:
        """What is said for a function that raised: no, to everything; of a summary, that there is none."""
        if isinstance(error, PromptyError) and not isinstance(question, Summarise):
            raise error
        logger.error("%s of the host raised.\n%s", type(question).__name__, masked_traceback(error))
        match question:
            case AskGate(calls):
                return [Verdict(False, "the gate failed")] * len(calls)
            case CheckGuardrail():
                return Verdict(False, "the guardrail failed")
            case Summarise():
                return None

    def said(self, *, follow_ups: bool) -> list[str]:
        return self.steering.drain(follow_ups=follow_ups) if self.steering else []

    def begin_session(self, session_id: str) -> bool:
        """Try to have a session for oneself."""
        try:
            self.release = self.release or (self.memory.acquire(session_id) if self.memory else None)
        except Exception as error:
            raise MemoryFailed(session_id, error) from error
        return self.release is not None

    def load(self, session_id: str) -> list[Json]:
        try:
            return self.memory.load(session_id) if self.memory else []
        except Exception as error:
            raise MemoryFailed(session_id, error) from error

    def save(self, session_id: str, messages: tuple[Json, ...]) -> None:
        try:
            if self.memory:
                self.memory.append(session_id, messages)
        except Exception as error:
            raise MemoryFailed(session_id, error) from error

    def end(self) -> None:
        """Give back what a run held."""
        if self.release:
            self.release()
            self.release = None

    def tell(self, event: Event) -> None:
        """Tell those who listen. What they raise is their own affair and not that of the run."""
        for listener in (self.watcher, self.listener):
            try:
                if listener:
                    listener(event)
            except Exception as error:
                logger.error("A listener raised on %s.\n%s", type(event).__name__, masked_traceback(error))
