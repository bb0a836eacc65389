"""Run .prompty files: load, render, parse, execute, process.

The public names are imported when they are first used: `import prompty` itself costs almost nothing.
"""

from importlib import import_module

from prompty.version import __version__

TYPE_CHECKING = False  # what checkers take for true; importing it from typing would double the cost of this module

if TYPE_CHECKING:
    from prompty.api import (
        load,
        loads,
        parse,
        prepare,
        register_parser,
        register_renderer,
        render,
        validate_inputs,
    )
    from prompty.api_async import load_async, parse_async, prepare_async, render_async
    from prompty.errors import (
        FileMissing,
        InputError,
        LoadError,
        MissingExtra,
        Problem,
        PromptyError,
        PromptyWarning,
        RenderError,
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
        assistant,
        system,
        tool_result,
        user,
    )
    from prompty.pipeline.check import check

__all__ = [
    "Audio",
    "AudioPart",
    "File",
    "FileMissing",
    "FilePart",
    "Image",
    "ImagePart",
    "InputError",
    "LoadError",
    "Message",
    "MissingExtra",
    "Problem",
    "PromptAgent",
    "PromptyError",
    "PromptyWarning",
    "RenderError",
    "TextPart",
    "UnknownName",
    "__version__",
    "assistant",
    "check",
    "load",
    "load_async",
    "loads",
    "parse",
    "parse_async",
    "prepare",
    "prepare_async",
    "register_parser",
    "register_renderer",
    "render",
    "render_async",
    "system",
    "tool_result",
    "user",
    "validate_inputs",
]

_MODULES = {
    "prompty.api_async": "load_async parse_async prepare_async render_async",
    "prompty.pipeline.check": "check",
    "prompty.errors": (
        "FileMissing InputError LoadError MissingExtra Problem PromptyError PromptyWarning RenderError UnknownName"
    ),
    "prompty.model.agent": "PromptAgent",
    "prompty.model.message": (
        "Audio AudioPart File FilePart Image ImagePart Message TextPart assistant system tool_result user"
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

if not TYPE_CHECKING:  # a checker that saw this would take every name for a public one

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'prompty' has no attribute '{name}'")
        value = globals()[name] = getattr(import_module(_MODULE_OF.get(name, "prompty.api")), name)
        return value
