"""The events of a run, in the order they happen."""

from dataclasses import dataclass, field
from decimal import Decimal

from prompty.errors import ModelError
from prompty.model.message import Message, ToolCall, Usage
from prompty.model.paused import Paused
from prompty.model.reply import Reply
from prompty.model.request import WireRequest


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call. Only the calls of a complete reply may run."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Retry:
    """An attempt failed, and the next one follows after `seconds`. `retry_after` is the wait the server asked for."""

    attempt: int
    seconds: float
    reason: str
    status: int | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class ModelRequested:
    """A request is about to be sent.

    `call` numbers the model calls of the run, `attempt` the attempts of this call. `model` is 0 for the model of the
    file, and counts up through its fallbacks.
    """

    call: int
    attempt: int
    model: int
    request: WireRequest = field(repr=False)


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """An attempt failed. A final one is not retried; a fallback may be asked."""

    call: int
    attempt: int
    error: ModelError = field(compare=False)
    final: bool


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The model answered."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run starts."""

    run_id: str


@dataclass(frozen=True, slots=True)
class IterationStarted:
    """The model is about to be asked, for the first time or with the results of its tool calls."""

    iteration: int


@dataclass(frozen=True, slots=True)
class ToolGated:
    """The gate decided about a tool call."""

    call: ToolCall
    allowed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call starts. The key identifies it, whatever ids the model gives."""

    call: ToolCall
    key: str = ""


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """A tool reports its progress. Listeners get this event; streams do not."""

    tool: str
    call_id: str
    progress: float
    total: float | None
    message: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool call ended. `result` is the message that the model will read.

    `error` is the exception that the tool raised. It does not count in a comparison, and no stored run has it.
    """

    call: ToolCall
    result: Message
    key: str = ""
    error: Exception | None = field(default=None, compare=False, repr=False)

    @property
    def is_error(self) -> bool:
        return self.result.is_error


@dataclass(frozen=True, slots=True)
class MessagesChanged:
    """The conversation grew: by an answer with tool calls and their results, or by steering messages."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Compacted:
    """The oldest part of the conversation was left out of the request, and `summary` put in its place."""

    messages: int
    summary: str


@dataclass(frozen=True, slots=True)
class HistoryRepaired:
    """The stored conversation had faults, which were repaired for this turn."""

    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FellBack:
    """A model could not be reached. From now on its fallback is asked."""

    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunPaused:
    """The turn waits for a person. It ends here; `resume` continues it."""

    paused: Paused


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run ends with an error, which is raised."""

    error: str


@dataclass(frozen=True, slots=True)
class RunCancelled:
    """The run ends because it was cancelled."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """The run has a result. `iterations` counts the answers of the model. `cost` is in dollars, None if unknown."""

    result: object
    messages: tuple[Message, ...]
    usage: Usage
    cost: Decimal | None
    iterations: int


@dataclass(frozen=True, slots=True)
class Nested:
    """An event of a prompt that runs as a tool of this one. Listeners get this event; streams do not."""

    tool: str
    call_id: str
    event: "Event"


Delta = TextDelta | ReasoningDelta | ToolCallDelta
Event = (
    Delta
    | Retry
    | ModelRequested
    | ModelFailed
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
