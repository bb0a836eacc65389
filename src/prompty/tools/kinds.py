"""Kinds of tools beyond functions: each describes functions and runs their calls.

A kind is one object with one method; `register_tool_kind` or an entry point `prompty.tool_kinds` makes it known. Its
calls are coroutines: they run on the event loop of async code, and on the one of `concurrency` for sync code. What
must stay on one event loop is a kind's own affair.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import NamedTuple, Protocol

from prompty.errors import ToolError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.model.request import Function
from prompty.model.tool import Binding, FunctionTool, ToolDefinition
from prompty.registry import DEFAULT, Registry
from prompty.tools.context import ToolContext
from prompty.tools.function import ToolOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class KindTool:
    """A function of a tool: what the model sees, and what runs a call of it. `call_sync` is for what sync code should
    rather run on a thread; `approval` is a policy in the place of the file's (see `loop.policy`); `sensitive` are the
    parameters that no trace may show."""

    function: Function
    call: Callable[[Json, ToolContext], Awaitable[object]]
    call_sync: Callable[[Json, ToolContext], object] | None = None
    approval: object = None
    options: ToolOptions = field(default_factory=ToolOptions)
    sensitive: frozenset[str] = frozenset()


class ToolKind(Protocol):
    """A kind of tool."""

    async def describe(self, tool: ToolDefinition, agent: PromptAgent, /) -> Sequence[KindTool]:
        """The functions of a tool that a file declares."""
        ...


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


def _get_kind(tool: ToolDefinition, agent: PromptAgent) -> ToolKind:
    """Return the kind of a declared tool. One without a handler is an error before the first model call (L5)."""
    kinds = agent.registry.tool_kinds
    if not kinds.has(tool.kind):
        place = f"tool '{tool.name}'" + (f", {agent.path.name}" if agent.path else "")
        names = ["function", *kinds.names()]
        meant = "".join(f"Did you mean '{name}'? " for name in get_close_matches(tool.kind, names, 1))
        raise ToolError(
            f"no handler is registered for tool kind '{tool.kind}' ({place})",
            f"{meant}Use one of {', '.join(names)}, or register it: register_tool_kind('{tool.kind}', …).",
        )
    return kinds.get(tool.kind)


class ProjectedTool(NamedTuple):
    """A function of a tool that is not a function itself: the tool, what its kind said, and what the model sees."""

    tool: ToolDefinition
    found: KindTool
    function: Function
    bindings: Mapping[str, Binding]


async def projected_tools(agent: PromptAgent, taken: Collection[str]) -> list[ProjectedTool]:
    """The functions of all tools of other kinds (§7.1.3). A name that is taken is put behind the name of its tool."""
    names = set(taken)
    projected: list[ProjectedTool] = []
    for tool in agent.tools:
        if isinstance(tool, FunctionTool):
            continue
        for found in await _get_kind(tool, agent).describe(tool, agent):
            bindings = {name: one for name, one in tool.bindings.items() if name in _properties(found.function)}
            function = _named(without_bound(found.function, bindings), tool, names)
            names.add(function.name)
            projected.append(ProjectedTool(tool, found, function, bindings))
    return projected


def _named(function: Function, tool: ToolDefinition, taken: Collection[str]) -> Function:
    if function.name in taken:
        function = replace(function, name=f"{tool.name}_{function.name}")
    if function.name in taken:
        raise ToolError(f"two tools are called '{function.name}'", "Give each tool a name of its own.")
    return function


def _properties(function: Function) -> Mapping[str, object]:
    properties = function.parameters.get("properties")
    return properties if isinstance(properties, dict) else {}


def without_bound(function: Function, bound: Collection[str]) -> Function:
    """A function without the parameters that the host fills in (§2.9.1)."""
    if not bound:
        return function
    required = function.parameters.get("required")
    kept: Json = {name: value for name, value in _properties(function).items() if name not in bound}
    needed = [name for name in required if name not in bound] if isinstance(required, list) else []
    schema = {name: value for name, value in function.parameters.items() if name != "required"}
    return replace(function, parameters={**schema, "properties": kept, **({"required": needed} if needed else {})})


def register_tool_kind(kind: str, handler: ToolKind, *, registry: Registry = DEFAULT) -> None:
    """Let files declare tools of this kind."""
    registry.tool_kinds.register(kind, handler)
