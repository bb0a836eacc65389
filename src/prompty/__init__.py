"""Run .prompty files: load, render, parse, execute, process.

This module holds the names that most programs need. The others are in `prompty.batches`, `prompty.events`,
`prompty.errors`, `prompty.messages`, `prompty.providers`, `prompty.tools`, `prompty.mcp`, `prompty.openapi`,
`prompty.memory`, `prompty.durable`, `prompty.tracing`, `prompty.viewer` and `prompty.testing`. Frameworks that need the
parts of a call find them in `prompty.pipeline`.

Names are imported on first use, so `import prompty` imports no dependency.
"""

from importlib import import_module

from prompty.lazy import import_lazily
from prompty.version import __version__ as __version__

TYPE_CHECKING = False  # type checkers take it for true; importing it from typing would double the cost of this module

if TYPE_CHECKING:
    from prompty.analysis.check import check as check
    from prompty.api import (
        invoke as invoke,
        resume as resume,
        turn as turn,
    )
    from prompty.api_async import (
        invoke_async as invoke_async,
        resume_async as resume_async,
        turn_async as turn_async,
    )
    from prompty.batches.batch import batch as batch, batch_async as batch_async
    from prompty.cancellation import CancelToken as CancelToken
    from prompty.drivers.run import Result as Result
    from prompty.drivers.stream import AsyncPromptyStream as AsyncPromptyStream, PromptyStream as PromptyStream
    from prompty.errors import ModelError as ModelError, PromptyError as PromptyError
    from prompty.loop.context import Context as Context, Tokens as Tokens
    from prompty.loop.policy import Guardrails as Guardrails, deny as deny, later as later, rewrite as rewrite
    from prompty.loop.stop import Budget as Budget, Stop as Stop
    from prompty.model.agent import PromptAgent as PromptAgent
    from prompty.model.content import Audio as Audio, File as File, Image as Image
    from prompty.model.message import (
        Message as Message,
        ToolCall as ToolCall,
        Usage as Usage,
        assistant as assistant,
        system as system,
        tool_result as tool_result,
        user as user,
    )
    from prompty.model.paused import Paused as Paused
    from prompty.pipeline.dotenv import load_env as load_env
    from prompty.pipeline.load import load as load, loads as loads
    from prompty.pipeline.prepare import (
        prepare as prepare,
        render as render,
    )
    from prompty.pipeline.variants import variants as variants
    from prompty.registry import Registry as Registry, aclose as aclose, close as close
    from prompty.steering import Steering as Steering
    from prompty.tools.function import ToolContext as ToolContext, tool as tool
    from prompty.tools.toolbox import bind_tools as bind_tools
    from prompty.tracing.sinks import trace_to as trace_to
    from prompty.tracing.tracer import trace as trace

if not TYPE_CHECKING:  # a type checker that saw `__getattr__` would accept every name

    def _find_fix(name: str, known: list[str]) -> str:
        """Return what to write instead of a name that this module does not have, or an empty text."""
        functions = {
            "run": (
                "Call prompty.invoke(prompt, inputs). prompty.pipeline.run(agent, messages) takes prepared messages."
            ),
            "execute": "Call prompty.invoke(prompt, inputs, options={…}).",
            "execute_async": "Call await prompty.invoke_async(prompt, inputs, options={…}).",
            "headless": "Call prompty.invoke(prompty.loads('---\\nmodel: …\\n---\\nuser:\\n…'), inputs)",
        }
        modules = ["errors", "testing", "messages", "events", "providers", "tools", "memory", "tracing"]
        modules += ["viewer", "batches", "mcp", "openapi", "durable", "pipeline"]
        if name in functions:
            return functions[name]
        for module in modules:
            value = getattr(import_module(f"prompty.{module}"), name, None)
            if str(getattr(value, "__module__", "")).startswith("prompty."):
                return f"Write: from prompty.{module} import {name}"
        from prompty.errors import did_you_mean, nearest  # only for a name that does not exist

        return did_you_mean(nearest(name, known)).rstrip()

    __getattr__, __dir__ = import_lazily(__name__, _find_fix)
