"""The stages from a file to a result, in order, for frameworks that need the parts of a call.

load (files, frontmatter, source_map, references, definitions, compose) → model_override → validate → prepare (render →
parse) → request. Each turns data into data; only `files` opens files. Beside them: `variants`, `packages`, `dotenv` and
`version_1`, which few prompts need, `history`, which repairs messages, and `build` and `migrate`, which write files.

The public names are imported on first use: some of them are above this package, which imports none of these.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for true; importing it from typing would cost more than this module

if TYPE_CHECKING:
    from prompty.api import executor_of, invoke_agent, process, process_stream, processor_of, run
    from prompty.api_async import (
        invoke_agent_async,
        load_async,
        parse_async,
        prepare_async,
        process_async,
        process_stream_async,
        render_async,
        run_async,
    )
    from prompty.loop.options import CallOptions, TurnOptions
    from prompty.pipeline.prepare import parse, validate_inputs
    from prompty.wire.structured import cast

_MODULES = {
    "prompty.api": "executor_of invoke_agent process process_stream processor_of run",
    "prompty.api_async": "invoke_agent_async load_async parse_async prepare_async process_async process_stream_async "
    "render_async run_async",
    "prompty.loop.options": "CallOptions TurnOptions",
    "prompty.pipeline.prepare": "parse validate_inputs",
    "prompty.wire.structured": "cast",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "CallOptions",
    "TurnOptions",
    "cast",
    "executor_of",
    "invoke_agent",
    "invoke_agent_async",
    "load_async",
    "parse",
    "parse_async",
    "prepare_async",
    "process",
    "process_async",
    "process_stream",
    "process_stream_async",
    "processor_of",
    "render_async",
    "run",
    "run_async",
    "validate_inputs",
]

if not TYPE_CHECKING:  # a type checker that saw `__getattr__` would accept every name

    def __getattr__(name: str) -> object:
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module 'prompty.pipeline' has no attribute '{name}'")
        value = globals()[name] = getattr(import_module(module), name)
        return value
