"""Run .prompty files: load, render, parse, execute, process.

The public names are imported when they are first used: `import prompty` itself costs almost nothing.
"""

from importlib import import_module

from prompty.version import __version__

TYPE_CHECKING = False  # what checkers take for true; importing it from typing would double the cost of this module

if TYPE_CHECKING:
    from prompty.analysis.check import check
    from prompty.api import (
        executor_of,
        invoke,
        invoke_agent,
        process,
        processor_of,
        register_connection,
        register_executor,
        register_parser,
        register_processor,
        register_provider,
        register_renderer,
        register_tool,
        register_tool_kind,
        repair,
        resume,
        run,
        turn,
    )
    from prompty.api_async import (
        invoke_agent_async,
        invoke_async,
        load_async,
        parse_async,
        prepare_async,
        process_async,
        render_async,
        resume_async,
        run_async,
        turn_async,
    )
    from prompty.cancellation import CancelToken
    from prompty.drivers.stream import AsyncPromptyStream, PromptyStream
    from prompty.durable.engine import Limits
    from prompty.durable.runs import RunEvent, RunSummary
    from prompty.durable.runtime import DurableRun, DurableRuntime
    from prompty.errors import (
        BudgetSpent,
        Cancelled,
        EmptyReply,
        FileMissing,
        GuardrailError,
        InputError,
        IterationsExceeded,
        LoadError,
        MemoryFailed,
        MissingExtra,
        ModelError,
        NameInUse,
        Problem,
        PromptyError,
        PromptyWarning,
        Refused,
        RenderError,
        RequestError,
        ResultError,
        RunBroken,
        RunRefused,
        StreamCut,
        ToolError,
        UnknownName,
        UnknownRun,
    )
    from prompty.loop.budget import Budget
    from prompty.loop.context import Context, Tokens
    from prompty.loop.effects import Rewrite, Verdict
    from prompty.loop.policy import Guardrails, deny, later, rewrite, use_result
    from prompty.loop.stop import Progress, Stop
    from prompty.memory.in_process import InProcessMemory
    from prompty.memory.sqlite import SqliteMemory
    from prompty.memory.store import MemoryStore
    from prompty.model.agent import PromptAgent
    from prompty.model.event import (
        Compacted,
        Done,
        FellBack,
        HistoryRepaired,
        IterationStarted,
        MessagesChanged,
        ModelFailed,
        ModelReply,
        ModelRequested,
        Nested,
        ReasoningDelta,
        Retry,
        RunCancelled,
        RunFailed,
        RunPaused,
        RunStarted,
        TextDelta,
        ToolCallDelta,
        ToolFinished,
        ToolGated,
        ToolProgress,
        ToolStarted,
    )
    from prompty.model.message import (
        Audio,
        AudioPart,
        File,
        FilePart,
        Image,
        ImagePart,
        Message,
        TextPart,
        ToolCall,
        assistant,
        system,
        tool_result,
        user,
    )
    from prompty.model.paused import GatedCall, Paused
    from prompty.model.reply import Reply, Usage
    from prompty.pipeline.load import load, loads
    from prompty.pipeline.prepare import parse, prepare, render
    from prompty.pipeline.validate import validate_inputs
    from prompty.providers import Api, Provider
    from prompty.providers.foreign import ExecutorProtocol, ProcessorProtocol
    from prompty.steering import Steering
    from prompty.tools.context import ToolContext
    from prompty.tools.function import tool
    from prompty.tools.kinds import KindTool, ToolKind
    from prompty.tools.mcp import (
        approve_mcp_changes,
        close_mcp_servers,
        close_mcp_servers_async,
        load_mcp_servers,
        register_mcp_server,
    )
    from prompty.tools.toolbox import bind_tools
    from prompty.tracing.sinks import trace_to
    from prompty.tracing.tracer import Tracer, trace
    from prompty.wire.structured import cast

# Where each public name is; a module that is not needed is not imported.
_MODULES = {
    "prompty.api": (
        "executor_of invoke process processor_of register_connection register_executor register_parser "
        "register_processor register_provider register_renderer run invoke_agent register_tool register_tool_kind "
        "repair resume turn"
    ),
    "prompty.api_async": (
        "invoke_async load_async parse_async prepare_async process_async render_async run_async invoke_agent_async "
        "resume_async turn_async"
    ),
    "prompty.drivers.stream": "AsyncPromptyStream PromptyStream",
    "prompty.memory.store": "MemoryStore",
    "prompty.steering": "Steering",
    "prompty.durable.engine": "Limits",
    "prompty.durable.runs": "RunEvent RunSummary",
    "prompty.durable.runtime": "DurableRun DurableRuntime",
    "prompty.errors": (
        "BudgetSpent Cancelled EmptyReply FileMissing GuardrailError InputError IterationsExceeded LoadError "
        "MemoryFailed "
        "MissingExtra ModelError NameInUse Problem PromptyError PromptyWarning Refused RenderError RequestError "
        "ResultError RunBroken RunRefused StreamCut ToolError "
        "UnknownName UnknownRun"
    ),
    "prompty.loop.budget": "Budget",
    "prompty.loop.context": "Context Tokens",
    "prompty.loop.effects": "Rewrite Verdict",
    "prompty.loop.policy": "Guardrails deny later rewrite use_result",
    "prompty.loop.stop": "Progress Stop",
    "prompty.model.agent": "PromptAgent",
    "prompty.model.event": (
        "Compacted Done FellBack HistoryRepaired IterationStarted MessagesChanged ModelFailed ModelReply "
        "ModelRequested Nested ReasoningDelta "
        "Retry RunCancelled RunFailed RunPaused RunStarted TextDelta ToolCallDelta ToolFinished ToolGated "
        "ToolProgress ToolStarted "
    ),
    "prompty.model.message": (
        "Audio AudioPart File FilePart Image ImagePart Message TextPart ToolCall assistant system tool_result user"
    ),
    "prompty.memory.in_process": "InProcessMemory",
    "prompty.memory.sqlite": "SqliteMemory",
    "prompty.model.paused": "GatedCall Paused",
    "prompty.model.reply": "Reply Usage",
    "prompty.analysis.check": "check",
    "prompty.pipeline.load": "load loads",
    "prompty.pipeline.prepare": "parse prepare render",
    "prompty.pipeline.validate": "validate_inputs",
    "prompty.providers": "Api Provider",
    "prompty.providers.foreign": "ExecutorProtocol ProcessorProtocol",
    "prompty.cancellation": "CancelToken",
    "prompty.tools.context": "ToolContext",
    "prompty.tools.function": "tool",
    "prompty.tools.kinds": "KindTool ToolKind",
    "prompty.tools.mcp": (
        "approve_mcp_changes close_mcp_servers close_mcp_servers_async load_mcp_servers register_mcp_server"
    ),
    "prompty.tools.toolbox": "bind_tools",
    "prompty.tracing.sinks": "trace_to",
    "prompty.tracing.tracer": "Tracer trace",
    "prompty.wire.structured": "cast",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "Api",
    "AsyncPromptyStream",
    "Audio",
    "AudioPart",
    "Budget",
    "BudgetSpent",
    "CancelToken",
    "Cancelled",
    "Compacted",
    "Context",
    "Done",
    "DurableRun",
    "DurableRuntime",
    "EmptyReply",
    "ExecutorProtocol",
    "FellBack",
    "File",
    "FileMissing",
    "FilePart",
    "GatedCall",
    "GuardrailError",
    "Guardrails",
    "HistoryRepaired",
    "Image",
    "ImagePart",
    "InProcessMemory",
    "InputError",
    "IterationStarted",
    "IterationsExceeded",
    "KindTool",
    "Limits",
    "LoadError",
    "MemoryFailed",
    "MemoryStore",
    "Message",
    "MessagesChanged",
    "MissingExtra",
    "ModelError",
    "ModelFailed",
    "ModelReply",
    "ModelRequested",
    "NameInUse",
    "Nested",
    "Paused",
    "Problem",
    "ProcessorProtocol",
    "Progress",
    "PromptAgent",
    "PromptyError",
    "PromptyStream",
    "PromptyWarning",
    "Provider",
    "ReasoningDelta",
    "Refused",
    "RenderError",
    "Reply",
    "RequestError",
    "ResultError",
    "Retry",
    "Rewrite",
    "RunBroken",
    "RunCancelled",
    "RunEvent",
    "RunFailed",
    "RunPaused",
    "RunRefused",
    "RunStarted",
    "RunSummary",
    "SqliteMemory",
    "Steering",
    "Stop",
    "StreamCut",
    "TextDelta",
    "TextPart",
    "Tokens",
    "ToolCall",
    "ToolCallDelta",
    "ToolContext",
    "ToolError",
    "ToolFinished",
    "ToolGated",
    "ToolKind",
    "ToolProgress",
    "ToolStarted",
    "Tracer",
    "UnknownName",
    "UnknownRun",
    "Usage",
    "Verdict",
    "__version__",
    "approve_mcp_changes",
    "assistant",
    "bind_tools",
    "cast",
    "check",
    "close_mcp_servers",
    "close_mcp_servers_async",
    "deny",
    "executor_of",
    "invoke",
    "invoke_agent",
    "invoke_agent_async",
    "invoke_async",
    "later",
    "load",
    "load_async",
    "load_mcp_servers",
    "loads",
    "parse",
    "parse_async",
    "prepare",
    "prepare_async",
    "process",
    "process_async",
    "processor_of",
    "register_connection",
    "register_executor",
    "register_mcp_server",
    "register_parser",
    "register_processor",
    "register_provider",
    "register_renderer",
    "register_tool",
    "register_tool_kind",
    "render",
    "render_async",
    "repair",
    "resume",
    "resume_async",
    "rewrite",
    "run",
    "run_async",
    "system",
    "tool",
    "tool_result",
    "trace",
    "trace_to",
    "turn",
    "turn_async",
    "use_result",
    "user",
    "validate_inputs",
]

if not TYPE_CHECKING:  # a checker that saw this would take every name for a public one

    def __getattr__(name: str) -> object:
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module 'prompty' has no attribute '{name}'")
        value = globals()[name] = getattr(import_module(module), name)
        return value
