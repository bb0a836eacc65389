"""Kinds of tools beyond functions: each describes functions and runs their calls.

A kind is one object with one method; `register_tool_kind` or an entry point `prompty.tool_kinds` makes it known. Its
calls are coroutines: they run on the event loop of async code, and on the one of `tools.threads` for sync code. What
must stay on one event loop is a kind's own affair.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from prompty.errors import ToolError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.model.tool import ToolDefinition
from prompty.registry import Registry
from prompty.tools.context import ToolContext
from prompty.tools.function import ToolOptions
from prompty.wire.functions import Function


@dataclass(frozen=True, kw_only=True, slots=True)
class KindTool:
    """A function of a tool: what the model sees, and what runs a call of it. `call_sync` is for what sync code should
    rather run on a thread; `approval` is a policy beside the one of the file (see `loop.approval`)."""

    function: Function
    call: Callable[[Json, ToolContext], Awaitable[object]]
    call_sync: Callable[[Json, ToolContext], object] | None = None
    approval: object = None
    options: ToolOptions = field(default_factory=ToolOptions)


class ToolKind(Protocol):
    """A kind of tool."""

    async def describe(self, tool: ToolDefinition, agent: PromptAgent, /) -> Sequence[KindTool]:
        """The functions of a tool that a file declares."""
        ...


tool_kinds: Registry[ToolKind] = Registry("tool_kind", {"prompty": "prompty.drivers.children:KIND"})


@dataclass(frozen=True, slots=True)
class KindRunner:
    """Runs calls of a kind's function."""

    tool: KindTool
    sync: bool

    @property
    def options(self) -> ToolOptions:
        return self.tool.options

    @property
    def is_async(self) -> bool:
        return not self.sync or self.tool.call_sync is None

    def prepared(self, arguments: Json, context: ToolContext) -> Callable[[], object]:
        call = self.tool.call if self.is_async else self.tool.call_sync
        if call is None:
            raise ToolError("the tool cannot run in synchronous code", "Use turn_async.")
        return partial(call, arguments, context)


def kind_of(tool: ToolDefinition) -> ToolKind:
    """What handles a tool of a file; one that nobody handles is an error before the first model call (L5)."""
    if not tool_kinds.has(tool.kind):
        raise ToolError(
            f"nothing runs tools of the kind '{tool.kind}', which '{tool.name}' is",
            f"Register it: register_tool_kind('{tool.kind}', …), or use one of: {', '.join(tool_kinds.names())}.",
        )
    return tool_kinds.get(tool.kind)


def without_bound(function: Function, bound: Sequence[str]) -> Function:
    """A function without the parameters that the host fills in (§2.9.1)."""
    schema = function.parameters
    properties, required = schema.get("properties"), schema.get("required")
    if not bound or not isinstance(properties, dict):
        return function
    kept: Json = {name: value for name, value in properties.items() if name not in bound}
    needed = [name for name in required if name not in bound] if isinstance(required, list) else None
    changes: Json = {"properties": kept, **({"required": needed} if needed is not None else {})}
    return replace(function, parameters={**schema, **changes})
