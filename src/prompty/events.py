"""The events of a run, for `on_event` and `stream.events()`, and what a function that gates a call gets and returns."""

from prompty.loop.effects import Verdict as Verdict
from prompty.model.event import (
    CitationAdded as CitationAdded,
    Compacted as Compacted,
    Delta as Delta,
    Done as Done,
    Event as Event,
    FellBack as FellBack,
    HistoryRepaired as HistoryRepaired,
    IterationStarted as IterationStarted,
    MessagesChanged as MessagesChanged,
    ModelFailed as ModelFailed,
    ModelReply as ModelReply,
    ModelRequested as ModelRequested,
    Nested as Nested,
    OutputRejected as OutputRejected,
    ProviderCallDone as ProviderCallDone,
    ProviderCallStarted as ProviderCallStarted,
    ReasoningDelta as ReasoningDelta,
    Retry as Retry,
    RunCancelled as RunCancelled,
    RunFailed as RunFailed,
    RunPaused as RunPaused,
    RunStarted as RunStarted,
    TextDelta as TextDelta,
    ToolCallDelta as ToolCallDelta,
    ToolFinished as ToolFinished,
    ToolGated as ToolGated,
    ToolProgress as ToolProgress,
    ToolStarted as ToolStarted,
)
from prompty.model.paused import GatedCall as GatedCall
