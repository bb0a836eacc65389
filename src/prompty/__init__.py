"""Run .prompty files: load, render, parse, execute, process.

The public names are imported when they are first used: `import prompty` itself costs almost nothing.
"""

from importlib import import_module

from prompty.version import __version__

TYPE_CHECKING = False  # what checkers take for true; importing it from typing would double the cost of this module

if TYPE_CHECKING:
    from prompty.api import (
        cast,
        executor_of,
        invoke,
        load,
        loads,
        parse,
        prepare,
        process,
        processor_of,
        register_connection,
        register_executor,
        register_parser,
        register_processor,
        register_provider,
        register_renderer,
        render,
        run,
        validate_inputs,
    )
    from prompty.api_async import (
        invoke_async,
        load_async,
        parse_async,
        prepare_async,
        process_async,
        render_async,
        run_async,
    )
    from prompty.drivers.stream import PromptyStream
    from prompty.drivers.stream_async import AsyncPromptyStream
    from prompty.errors import (
        EmptyReply,
        FileMissing,
        InputError,
        LoadError,
        MissingExtra,
        ModelError,
        Problem,
        PromptyError,
        PromptyWarning,
        Refused,
        RenderError,
        RequestError,
        ResultError,
        StreamCut,
        UnknownName,
    )
    from prompty.model.agent import PromptAgent
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
    from prompty.model.reply import Reply, Usage
    from prompty.pipeline.check import check
    from prompty.providers import Api, Provider
    from prompty.providers.foreign import ExecutorProtocol, ProcessorProtocol

# Where each public name is; a module that is not needed is not imported.
_MODULES = {
    "prompty.api": (
        "executor_of invoke process processor_of register_connection register_executor register_parser "
        "register_processor register_provider register_renderer run"
    ),
    "prompty.api_async": ("invoke_async load_async parse_async prepare_async process_async render_async run_async"),
    "prompty.drivers.stream": "PromptyStream",
    "prompty.drivers.stream_async": "AsyncPromptyStream",
    "prompty.errors": (
        "EmptyReply FileMissing InputError LoadError MissingExtra ModelError Problem PromptyError PromptyWarning "
        "Refused RenderError RequestError ResultError StreamCut UnknownName"
    ),
    "prompty.model.agent": "PromptAgent",
    "prompty.model.message": (
        "Audio AudioPart File FilePart Image ImagePart Message TextPart ToolCall assistant system tool_result user"
    ),
    "prompty.model.reply": "Reply Usage",
    "prompty.pipeline.check": "check",
    "prompty.pipeline.load": "load loads",
    "prompty.pipeline.prepare": "parse prepare render",
    "prompty.pipeline.validate": "validate_inputs",
    "prompty.providers": "Api Provider",
    "prompty.providers.foreign": "ExecutorProtocol ProcessorProtocol",
    "prompty.wire.structured": "cast",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "Api",
    "AsyncPromptyStream",
    "Audio",
    "AudioPart",
    "EmptyReply",
    "ExecutorProtocol",
    "File",
    "FileMissing",
    "FilePart",
    "Image",
    "ImagePart",
    "InputError",
    "LoadError",
    "Message",
    "MissingExtra",
    "ModelError",
    "Problem",
    "ProcessorProtocol",
    "PromptAgent",
    "PromptyError",
    "PromptyStream",
    "PromptyWarning",
    "Provider",
    "Refused",
    "RenderError",
    "Reply",
    "RequestError",
    "ResultError",
    "StreamCut",
    "TextPart",
    "ToolCall",
    "UnknownName",
    "Usage",
    "__version__",
    "assistant",
    "cast",
    "check",
    "executor_of",
    "invoke",
    "invoke_async",
    "load",
    "load_async",
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
    "register_parser",
    "register_processor",
    "register_provider",
    "register_renderer",
    "render",
    "render_async",
    "run",
    "run_async",
    "system",
    "tool_result",
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
