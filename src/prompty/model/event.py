"""What happens while a model answers and its tools run, in the order it happens."""

from dataclasses import dataclass
from decimal import Decimal

from prompty.model.message import Message, ToolCall
from prompty.model.paused import Paused
from prompty.model.reply import Reply, Usage


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More words of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a call that is being written; only a finished reply has calls that may run."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Retry:
    """A call failed and is tried again after `seconds`; `status` is of HTTP, `retry_after` what was asked for."""

    attempt: int
    seconds: float
    reason: str
    status: int | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The model has answered."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A turn begins."""

    run_id: str


@dataclass(frozen=True, slots=True)
class IterationStarted:
    """The model is about to be asked, for the first time or with the results of its calls."""

    iteration: int


@dataclass(frozen=True, slots=True)
class ToolGated:
    """The gate has judged a call."""

    call: ToolCall
    allowed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool begins to run."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """A tool says how far it has come. Listeners are told; a stream does not give it."""

    tool: str
    call_id: str
    progress: float
    total: float | None
    message: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool has run; `result` is the message that the model will read."""

    call: ToolCall
    result: Message

    @property
    def is_error(self) -> bool:
        return bool(self.result.local.get("is_error"))


@dataclass(frozen=True, slots=True)
class MessagesChanged:
    """The conversation has grown by an answer with calls and by their results."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Compacted:
    """The oldest part of the conversation was left out of the request; `summary` stands for it."""

    messages: int
    summary: str


@dataclass(frozen=True, slots=True)
class HistoryRepaired:
    """What was stored of a conversation had faults, which are mended for this turn."""

    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FellBack:
    """A model cannot be reached, and another one is asked in its place from now on."""

    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunPaused:
    """The turn waits for a person; it ends here and goes on with `resume`."""

    paused: Paused


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The turn ends with an error, which is raised."""

    error: str


@dataclass(frozen=True, slots=True)
class RunCancelled:
    """The turn ends because somebody cancelled it."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """The turn has a result. `iterations` is how often the model answered; `cost` is in dollars, None if unknown."""

    result: object
    messages: tuple[Message, ...]
    usage: Usage
    cost: Decimal | None
    iterations: int


@dataclass(frozen=True, slots=True)
class Nested:
    """Something happens in a prompt that runs as a tool of this one. Listeners are told; a stream does not give it."""

    tool: str
    call_id: str
    event: "Event"


Delta = TextDelta | ReasoningDelta | ToolCallDelta
Event = (
    Delta
    | Retry
    | ModelReply
    | RunStarted
    | IterationStarted
    | ToolGated
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | MessagesChanged
    | Compacted
    | HistoryRepaired
    | FellBack
    | RunPaused
    | RunFailed
    | RunCancelled
    | Done
    | Nested
)
