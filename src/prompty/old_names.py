"""Names of Prompty v1's Python package. A few still work, with a warning. The others say what to write instead."""

import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from prompty.api import invoke
from prompty.api_async import invoke_async
from prompty.drivers.run import AgentOrPath
from prompty.drivers.stream import AsyncPromptyStream, PromptyStream
from prompty.errors import nearest
from prompty.model.agent import ModelOptions
from prompty.model.message import ToolCall
from prompty.registry import import_object

_FIXES = {
    "headless": "Write the prompt as text: prompty.invoke(prompty.loads('---\\nmodel: …\\n---\\nuser:\\n…'))",
    "Prompty": "prompty.load() returns a prompty.PromptAgent.",
    "InvokerFactory": "Register an executor: prompty.providers.register_executor('name', executor)",
    "Tracer": "from prompty.tracing import Tracer",
    "PromptyTracer": "Write traces to files: prompty.trace_to('file:traces')",
    "console_tracer": "Write traces to the console: prompty.trace_to('console')",
}
# Modules with names for fewer programs.
_MODULES = [
    "errors",
    "testing",
    "messages",
    "events",
    "providers",
    "tools",
    "memory",
    "tracing",
    "viewer",
    "batches",
    "mcp",
    "openapi",
    "durable",
    "pipeline",
]
_MOVED = ("run", "run_async", "prepare_async", "load_async")  # v1 had them here
_CORE_TYPES = {"PromptyStream": PromptyStream, "AsyncPromptyStream": AsyncPromptyStream, "ToolCall": ToolCall}
_OPTIONS = {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens", "stop": "stop_sequences"}


def execute(
    prompt: AgentOrPath,
    configuration: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    inputs: Mapping[str, object] | None = None,
    raw: bool = False,
    config_name: str = "default",
) -> Any:
    """Run a prompt as v1 did. Deprecated: call `prompty.invoke`."""
    options = _read_arguments("execute", configuration, parameters, raw, config_name)
    return invoke(prompt, inputs, options=options)


async def execute_async(
    prompt: AgentOrPath,
    configuration: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    inputs: Mapping[str, object] | None = None,
    raw: bool = False,
    config_name: str = "default",
) -> Any:
    """Run a prompt as v1 did. Deprecated: call `prompty.invoke_async`."""
    options = _read_arguments("execute_async", configuration, parameters, raw, config_name)
    return await invoke_async(prompt, inputs, options=options)


def _read_arguments(
    function: str, configuration: object, parameters: Mapping[str, Any] | None, raw: bool, config_name: str
) -> dict[str, object] | None:
    """Warn, and return v1's `parameters` as model options. Raise TypeError for what has no counterpart."""
    if configuration:
        raise TypeError(
            f"{function}() takes no configuration. Write a connection in the file, or pass model= to invoke()."
        )
    if config_name != "default":
        raise TypeError(f"{function}() takes no config_name. Write a connection of kind `reference` in the file.")
    if raw:
        raise TypeError(f"{function}() takes no raw=True. Call invoke(…, details=True), and read its `replies`.")
    new = function.replace("execute", "invoke")
    message = f"prompty.{function}() is v1's. Write prompty.{new}(prompt, inputs, options={{…}})."
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    options: dict[str, object] = {}
    others: dict[str, object] = {}
    for name, value in (parameters or {}).items():
        option = _OPTIONS.get(name, name)
        (options if option in ModelOptions.model_fields else others)[option] = value
    return {**options, "additional_properties": others} if others else options or None


def find_name(name: str, known: list[str]) -> object:
    """Return a function of v1 that still works. Raise AttributeError for any other name, with what to write."""
    if name in ("execute", "execute_async"):
        return globals()[name]
    if name in _MOVED:
        warnings.warn(f"Write: from prompty.pipeline import {name}", DeprecationWarning, stacklevel=3)
        return import_object(f"prompty.pipeline:{name}")
    raise AttributeError(f"module 'prompty' has no attribute '{name}'. {_find_fix(name, known)}".rstrip())


def _find_fix(name: str, known: list[str]) -> str:
    if name in _FIXES:
        return _FIXES[name]
    for module in _MODULES:
        with suppress(AttributeError):
            value = import_object(f"prompty.{module}:{name}")
            if str(getattr(value, "__module__", "")).startswith("prompty."):
                return f"Write: from prompty.{module} import {name}"
    near = nearest(name, known)
    return f"Did you mean '{near}'?" if near else ""


def find_core_name(name: str) -> object:
    """Return a name of v1's `prompty.core`. Raise ImportError with what to write: `from … import` hides the text of an
    AttributeError."""
    if name.startswith("_"):
        raise AttributeError(name)
    if name in _CORE_TYPES:
        warnings.warn(f"prompty.core is v1's. Write: from prompty import {name}", DeprecationWarning, stacklevel=3)
        return _CORE_TYPES[name]
    fix = _FIXES.get(name, "See docs/how-to/migrate-from-v1.md.")
    raise ImportError(f"prompty.core is v1's, and '{name}' is gone. {fix}")


def warn_of_provider(module: str) -> None:
    """Warn that v1's import of a provider is not needed any more."""
    message = f"`import {module}` has no effect: prompty finds providers by itself. Remove the line."
    warnings.warn(message, DeprecationWarning, stacklevel=3)
