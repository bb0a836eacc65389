"""Effects: requests of the loop to its driver. `yield from` an effect to get the driver's answer.

A driver may raise `Cancelled` or `BudgetSpent` for any effect except `Emit` and `AbandonAnswer`.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar, cast

from prompty.model.event import Event
from prompty.model.message import Json, Message, Reply, ToolCall
from prompty.model.paused import GatedCall
from prompty.model.request import Function, WireRequest
from prompty.tools.calls import Metered

Answer = TypeVar("Answer", covariant=True)
Result = TypeVar("Result")


class Effect(Generic[Answer]):
    """A request to the driver, answered with an `Answer`."""

    __slots__ = ()

    def __iter__(self) -> Generator[Self, object, Answer]:
        return cast(Answer, (yield self))


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferedTool:
    """A tool of this run: its function, the parameters that the host binds and the environment variables in their
    values, the defaults of arguments that the model omits, the file's and the host's approval policies (see `policy`),
    and how it runs."""

    function: Function
    bound: tuple[str, ...] = ()
    variables: dict[str, list[str]] = field(default_factory=dict)
    defaults: Json = field(default_factory=dict)
    approval: tuple[object, ...] = ()
    sequential: bool = False
    timeout: float | None = None
    idempotent: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCall:
    """A call that may run. Its arguments are final: parsed, validated, with defaults, and rewritten by guardrails.
    Bound values are added where it runs. The key is unique, even if the model repeats an id."""

    call: ToolCall
    arguments: Json
    key: str
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A gate's decision about one call. A deferred verdict pauses the turn."""

    allowed: bool
    reason: str = ""
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """Replaces a result if the process died after the call had started, so its outcome is unknown."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A guardrail's replacement for the value it checked."""

    value: object


@dataclass(frozen=True, slots=True)
class DescribeTools(Effect[tuple[OfferedTool, ...]]):
    """Return the tools of this run."""


@dataclass(frozen=True, slots=True)
class CallModel(Effect[Reply]):
    """Send a request and return its reply, or raise ModelError.

    `call` numbers the model calls of a run: all attempts of one call have the same number, and share its timeout.
    `model` is 0 for the file's model, and counts up through its fallbacks.
    """

    request: WireRequest
    call: int = 1
    model: int = 0


@dataclass(frozen=True, slots=True)
class AbandonAnswer(Effect[None]):
    """Tell the server of a model that nobody waits any more for an answer in the background. Performed even after the
    run was cancelled, and a failure is ignored."""

    request: WireRequest
    model: int = 0


@dataclass(frozen=True, slots=True)
class AskGate(Effect[object]):
    """Ask the gate about a batch of calls. Return its answer unparsed; see `policy.parse_verdicts`."""

    calls: tuple[GatedCall, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CallTools(Effect[list[Message | OutcomeUnknown | None]]):
    """Run calls in parallel and return their messages in order, None for a call that did not start because the turn was
    cancelled. A tool's exception becomes a message. Only drivers that continue another process's work return
    `OutcomeUnknown`."""

    calls: tuple[PlannedCall, ...]
    max_parallel: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint(Effect[None]):
    """Do nothing: a point at which a driver can raise `Cancelled`."""


@dataclass(frozen=True, slots=True)
class CheckGuardrail(Effect[object]):
    """Ask a guardrail about messages (`input`), an answer (`output`) or a call (`tool`); see
    `policy.parse_guardrail`."""

    kind: str
    value: object


@dataclass(frozen=True, slots=True)
class DrainSteering(Effect[list[str]]):
    """Return the queued steering messages, including follow-ups if `follow_ups` is True."""

    follow_ups: bool = False


@dataclass(frozen=True, slots=True)
class Summarise(Effect[str | Metered | None]):
    """Return a summary of messages in at most `characters` characters, or None if it fails. A prompt that wrote it says
    what it used."""

    messages: tuple[Message, ...]
    characters: int


@dataclass(frozen=True, slots=True)
class LoadMemory(Effect[list[Json]]):
    """Lock a session until the run ends, and return its stored messages."""

    session_id: str


@dataclass(frozen=True, slots=True)
class SaveMemory(Effect[None]):
    """Append messages to a session, all or none."""

    session_id: str
    messages: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Wait(Effect[None]):
    """Wait before a retry. Drivers add jitter, so that clients that failed together do not retry together."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emit(Effect[None]):
    """Report an event."""

    event: Event


Loop = Generator[Effect[object], object, Result]
