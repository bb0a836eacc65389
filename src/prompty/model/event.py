"""The events of a run, in the order they happen."""

from dataclasses import dataclass, field
from decimal import Decimal

from prompty.errors import ModelError
from prompty.model.citation import Citation, ProviderCall
from prompty.model.message import Message, Reply, ToolCall, Usage
from prompty.model.paused import Paused
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
class ProviderCallStarted:
    """The provider begins to run one of its own tools, such as a web search. Only streams have this event."""

    call: ProviderCall


@dataclass(frozen=True, slots=True)
class ProviderCallDone:
    """The provider has run one of its own tools. Only streams have this event; every `ModelReply` has all calls."""

    call: ProviderCall


@dataclass(frozen=True, slots=True)
class CitationAdded:
    """The text so far cites a source. Only streams have this event; every `ModelReply` has all citations."""

    citation: Citation


@dataclass(frozen=True, slots=True)
class Retry:
    """An attempt failed, and the next follows after `seconds`. `retry_after` is the server's requested delay."""

    attempt: int
    seconds: float
    reason: str
    status: int | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class ModelRequested:
    """A request is about to be sent.

    `call` numbers the model calls of the run, `attempt` the attempts of this call. `model` is 0 for the file's model,
    and counts up through its fallbacks.
    """

    call: int
    attempt: int
    model: int
    request: WireRequest = field(repr=False)


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """An attempt failed. A final failure is not retried, but a fallback may be called."""

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
    """The model is about to be called, for the first time or with the results of its tool calls."""

    iteration: int


@dataclass(frozen=True, slots=True)
class ToolGated:
    """The gate decided about a tool call."""

    call: ToolCall
    allowed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call starts. The key is unique, even if the model repeats an id."""

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

    `error` is the exception that the tool raised. It is ignored by `==` and not stored.
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
    """The oldest part of the conversation was replaced with `summary` in the request."""

    messages: int
    summary: str


@dataclass(frozen=True, slots=True)
class HistoryRepaired:
    """The stored conversation was invalid, and was repaired for this turn."""

    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FellBack:
    """A model was unavailable. From now on its fallback is called."""

    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class OutputRejected:
    """The answer does not fit, and the model is asked once to correct it. A client can clear the text that it showed.

    `reason` is that of a `ResultError`, `cause` is what the model is told, and `text` is the answer.
    """

    reason: str
    cause: str
    text: str


@dataclass(frozen=True, slots=True)
class RunPaused:
    """The turn needs a decision. It ends here, and `resume` continues it."""

    paused: Paused


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run ends with an error, which is then raised."""

    error: str


@dataclass(frozen=True, slots=True)
class RunCancelled:
    """The run ends because it was cancelled."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """The run has a result. `iterations` counts the model's answers. `cost` is in dollars, or None if unknown.

    `citations` are those of the answer. `provider_calls` are those of the whole run.
    """

    result: object
    messages: tuple[Message, ...]
    usage: Usage
    cost: Decimal | None
    iterations: int
    citations: tuple[Citation, ...] = ()
    provider_calls: tuple[ProviderCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Nested:
    """An event of a prompt that runs as a tool of this one. Listeners get this event; streams do not."""

    tool: str
    call_id: str
    event: "Event"


Delta = TextDelta | ReasoningDelta | ToolCallDelta | ProviderCallStarted | ProviderCallDone | CitationAdded
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
    | OutputRejected
    | RunPaused
    | RunFailed
    | RunCancelled
    | Done
    | Nested
)
