"""The pieces of a streamed reply, which wire formats produce. They are events, too: `prompty.model.event`."""

from dataclasses import dataclass

from prompty.model.citation import Citation, ProviderCall


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


Delta = TextDelta | ReasoningDelta | ToolCallDelta | ProviderCallStarted | ProviderCallDone | CitationAdded
