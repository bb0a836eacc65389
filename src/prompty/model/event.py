"""What happens while a model answers, in the order it happens."""

from dataclasses import dataclass

from prompty.model.reply import Reply


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
    """A call failed and is tried again after `seconds`."""

    attempt: int
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The model has answered."""

    reply: Reply


Delta = TextDelta | ReasoningDelta | ToolCallDelta
Event = Delta | Retry | ModelReply
