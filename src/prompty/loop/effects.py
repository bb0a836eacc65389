"""What the loop asks a driver to do. An effect is a value; `yield from` it to get the driver's answer.

A driver may answer any effect but `Emit` by raising `Cancelled` or `BudgetSpent`.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Generic, Self, TypeVar, cast

from prompty.model.event import Event
from prompty.model.message import Json, Message, ToolCall
from prompty.model.paused import GatedCall
from prompty.model.reply import Reply
from prompty.model.request import Function, WireRequest

Answer = TypeVar("Answer", covariant=True)
Result = TypeVar("Result")


class Effect(Generic[Answer]):
    """Something to be done by a driver, answered with an `Answer`."""

    __slots__ = ()

    def __iter__(self) -> Generator[Self, object, Answer]:
        return cast(Answer, (yield self))


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferedTool:
    """A tool of this run: what the model sees of it, the parameters that the host fills in, who says when a person is
    asked (the file, the host; see `approval`), and how it runs."""

    function: Function
    bound: tuple[str, ...] = ()
    approval: tuple[object, ...] = ()
    sequential: bool = False
    timeout: float | None = None
    idempotent: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCall:
    """A call that may run. Its arguments are read and checked, and hold nothing that the host fills in: that is put
    in where it runs. The key belongs to this call alone, whatever ids a model gives."""

    call: ToolCall
    arguments: Json
    key: str
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a gate says about one call. One that comes `later` pauses the turn."""

    allowed: bool
    reason: str = ""
    later: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """In the place of a result: the call had begun when its process died, and nobody knows what it did."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What a guardrail puts in the place of what it saw."""

    value: object


@dataclass(frozen=True, slots=True)
class DescribeTools(Effect[tuple[OfferedTool, ...]]):
    """Say which tools there are."""


@dataclass(frozen=True, slots=True)
class CallModel(Effect[Reply]):
    """Send a request and give its reply; a failure comes as ModelError. All tries of one request share its time.
    `model` is 0 for the model of the file, and more for those that stand in for it."""

    request: WireRequest
    model: int = 0


@dataclass(frozen=True, slots=True)
class AskGate(Effect[object]):
    """Have the host judge a batch. The answer is whatever it said; see `gate.verdicts`."""

    calls: tuple[GatedCall, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CallTools(Effect[list[Message | Unknown | None]]):
    """Run calls beside each other, and give the message of each, in their order; None for one that did not begin
    because the turn was cancelled. What a tool raises is a message too. Only drivers that go on with what another
    process began know of `Unknown`."""

    calls: tuple[PlannedCall, ...]
    max_parallel: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint(Effect[None]):
    """Nothing but a moment in which a driver can say that the turn was cancelled."""


@dataclass(frozen=True, slots=True)
class CheckGuardrail(Effect[object]):
    """Have the host look at messages (`input`), an answer (`output`) or a call (`tool`); see `guardrails.read`."""

    kind: str
    value: object


@dataclass(frozen=True, slots=True)
class DrainSteering(Effect[list[str]]):
    """Give what a person has said meanwhile; `follow_ups` are what waited for the answer."""

    follow_ups: bool = False


@dataclass(frozen=True, slots=True)
class Summarise(Effect[str | None]):
    """Have the host sum up messages in so many characters; None if it cannot."""

    messages: tuple[Message, ...]
    characters: int


@dataclass(frozen=True, slots=True)
class LoadMemory(Effect[list[Json]]):
    """Give the stored messages of a session, and keep others from it until the turn ends."""

    session_id: str


@dataclass(frozen=True, slots=True)
class SaveMemory(Effect[None]):
    """Add messages to a session, all or none."""

    session_id: str
    messages: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Wait(Effect[None]):
    """Let time pass. Drivers add a random part, so that those who wait together do not return together."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emit(Effect[None]):
    """Tell whoever listens."""

    event: Event


Loop = Generator[Effect[object], object, Result]
