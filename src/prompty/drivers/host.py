"""Call the host's functions and stores: gate, guardrails, summary, steering, memory, listener."""

from collections.abc import Callable
from logging import Logger, getLogger

from prompty.drivers.run_spans import RunSpans
from prompty.errors import MemoryFailed, PromptyError
from prompty.loop.effects import AskGate, CheckGuardrail, Summarise, Verdict
from prompty.loop.options import Settings
from prompty.model.event import Event
from prompty.model.message import Json, Message
from prompty.safety.redaction import masked_traceback

Summary = Callable[[list[Message], int], object]
Question = AskGate | CheckGuardrail | Summarise
logger: Logger = getLogger("prompty")


class Host:
    """The host's side of one run."""

    def __init__(self, settings: Settings, summary: Summary | None = None, spans: RunSpans | None = None) -> None:
        self._settings, self._summary, self._spans = settings, summary, spans
        self._release: Callable[[], None] | None = None
        self.is_session_locked: bool = False
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
        logger.error("The host's function for %s raised.\n%s", type(question).__name__, masked_traceback(error))
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

    def lock_session(self, session_id: str) -> bool:
        """Try to lock the session. Return False if another run holds it."""
        memory = self._settings.memory
        try:
            self._release = self._release or (memory.acquire(session_id) if memory else None)
        except Exception as error:
            raise MemoryFailed(session_id, error) from error
        self.is_session_locked = self._release is not None
        return self.is_session_locked

    def load(self, session_id: str) -> list[Json]:
        memory = self._settings.memory
        try:
            return memory.load(session_id) if memory else []
        except Exception as error:
            raise MemoryFailed(session_id, error) from error

    def save(self, session_id: str, messages: tuple[Json, ...]) -> None:
        memory = self._settings.memory
        try:
            if memory:
                memory.append(session_id, messages)
        except Exception as error:
            raise MemoryFailed(session_id, error) from error

    def release(self) -> None:
        """Unlock the session."""
        if self._release:
            self._release()
            self._release, self.is_session_locked = None, False

    def emit(self, event: Event) -> None:
        """Pass an event to the spans and to the listener. A listener's exception is logged."""
        if self._spans is not None:
            self._notify(self._spans.on_event, event)
        if self._settings.on_event is not None:
            self._notify(self._settings.on_event, event)

    @staticmethod
    def _notify(listener: Callable[[Event], object], event: Event) -> None:
        try:
            listener(event)
        except Exception as error:
            logger.error("A listener raised on %s.\n%s", type(event).__name__, masked_traceback(error))


NO_HOST = Host(Settings())  # shared by runs without host functions
