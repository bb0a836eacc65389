"""Tool kinds beyond functions: each describes the functions of a declared tool and runs their calls.

A kind is an object with one method, known through `register_tool_kind` or an entry point `prompty.tool_kinds`. Its
calls are coroutines: they run on the caller's event loop in async code, and on `concurrency`'s in sync code. A
kind whose state belongs to one event loop must switch to that loop itself. A kind that connects asks
`check_tool_target` before.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from prompty.errors import ToolError, did_you_mean, nearest
from prompty.model.agent import PromptAgent
from prompty.model.conditions import check_conditions, describe_callee, get_conditions
from prompty.model.message import Json
from prompty.model.request import Function
from prompty.model.tool import KNOWN_TOOL_KINDS, Binding, CustomTool, FunctionTool, ToolDefinition, runs_at_provider
from prompty.model.trust import Refusal, Target, Trust, explain_missing, refuse_address, refuse_connection, refuse_text
from prompty.registry import DEFAULT, ExtensionPoint, Registry
from prompty.safety.origins import Origin
from prompty.tools.function import ToolContext, ToolOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class KindTool:
    """One function of a tool.

    `function` is what the model sees, and `call` runs it. Sync code runs `call_sync` on a thread, if there is one.
    `check` raises `ArgumentsError` for arguments that must not start a call. `approval` replaces the file's policy (see
    `loop.policy`). `defaults` fill in arguments that the model omits. A binding may fill in the parameters in
    `bindable` although the model does not see them. No trace shows the parameters in `sensitive`.
    """

    function: Function
    call: Callable[[Json, ToolContext], Awaitable[object]]
    call_sync: Callable[[Json, ToolContext], object] | None = None
    check: Callable[[Json], object] | None = None
    approval: object = None
    defaults: Json = field(default_factory=dict)
    options: ToolOptions = field(default_factory=ToolOptions)
    sensitive: frozenset[str] = frozenset()
    bindable: frozenset[str] = frozenset()
    is_remote: bool = False
    """A server runs it, so the turn's `timeout` holds for a call unless another one does."""


class ToolKind(Protocol):
    """A kind of tool.

    A kind may also have a method `find_parameters(tool, agent)` that returns the parameters that bindings can fill in,
    or None if that needs the network. `prompty check` compares them with the file's bindings. With a method
    `is_local(tool, agent)` it says that `describe` connects to no server: `prompty explain` leaves out other tools,
    unless it may connect.
    """

    async def describe(self, tool: ToolDefinition, agent: PromptAgent, /) -> Sequence[KindTool]:
        """Return the functions of a declared tool."""
        ...


@dataclass(frozen=True, slots=True)
class KindRunner:
    """Runs the calls of a `KindTool`."""

    tool: KindTool
    sync: bool

    @property
    def options(self) -> ToolOptions:
        return self.tool.options

    @property
    def is_async(self) -> bool:
        return not self.sync or self.tool.call_sync is None

    def prepare(self, arguments: Json, context: ToolContext) -> Callable[[], object]:
        """Return the call with its arguments. Raise `ArgumentsError` if it must not start."""
        if self.tool.check:
            self.tool.check(arguments)
        call_sync = self.tool.call_sync if self.sync else None
        return partial(call_sync or self.tool.call, arguments, context)


class ProjectedTool(NamedTuple):
    """A function of a declared tool: `function` is what the model sees, under its final name and without `bindings`."""

    tool: ToolDefinition
    kind_tool: KindTool
    function: Function
    bindings: Mapping[str, Binding]

    @property
    def approval(self) -> object:
        """The kind's policy, or else the file's."""
        return self.tool.approval_mode if self.kind_tool.approval is None else self.kind_tool.approval


_LOCAL_KINDS = ("openapi", "prompty", "skills")  # described without a server; the first two ask before they connect


async def project_tools(
    agent: PromptAgent, taken: Collection[str], timeout: float | None = None, without: Collection[str] = ()
) -> list[ProjectedTool]:
    """Return the functions of all tools of other kinds (§7.1.3). A taken name is prefixed with its tool's name.

    If a custom tool's own name is taken, a host function runs it: that takes precedence over the kind. All tools
    together have `timeout` seconds to describe their functions. Tools named in `without` are left out.
    """
    import asyncio  # slow, and a prompt without such tools does not need it

    end = None if timeout is None else asyncio.get_running_loop().time() + timeout
    names = set(taken)
    projected: list[ProjectedTool] = []
    for tool in agent.tools:
        if isinstance(tool, FunctionTool) or (isinstance(tool, CustomTool) and tool.name in taken):
            continue  # a function, or a custom tool that a host function runs
        if runs_at_provider(tool) or tool.name in without:
            continue  # it has no functions here
        limit = asyncio.timeout_at(end)
        try:
            async with limit:
                kind_tools = await _describe(tool, agent)
        except TimeoutError:
            if not limit.expired():
                raise
            raise _not_ready(tool, timeout) from None
        except ToolError as error:
            error.keys = error.keys or ("tools", tool.name)
            raise
        for kind_tool in kind_tools:
            declared = _bindable(kind_tool)
            bindings = {name: binding for name, binding in tool.bindings.items() if name in declared}
            function = hide_parameters(kind_tool.function, bindings)
            if function.name in names:
                function = replace(function, name=f"{tool.name}_{function.name}")
            if function.name in names:
                raise ToolError(f"two tools are named '{function.name}'", "Rename one of them.")
            check_function_name(function.name)
            names.add(function.name)
            projected.append(ProjectedTool(tool, kind_tool, function, bindings))
        _check_approval([entry for entry in projected if entry.tool is tool])
    return projected


def find_unasked(agent: PromptAgent, taken: Collection[str]) -> tuple[str, ...]:
    """Return the names of tools whose functions only a server may know. Host functions run those in `taken`."""
    kinds = agent.registry[TOOL_KINDS]
    return tuple(
        tool.name
        for tool in agent.tools
        if not (isinstance(tool, FunctionTool) or runs_at_provider(tool) or tool.name in taken)
        and kinds.has(tool.kind)
        and not _is_local(kinds.get(tool.kind), tool, agent)
    )


def _is_local(kind: ToolKind, tool: ToolDefinition, agent: PromptAgent) -> bool:
    is_local = getattr(kind, "is_local", None)
    return is_local is not None and is_local(tool, agent)


def _not_ready(tool: ToolDefinition, timeout: float | None) -> ToolError:
    error = ToolError(
        f"the server of the tool '{tool.name}' did not list its functions within {timeout:g} s, the call's timeout",
        "Check the server, or pass a larger timeout=.",
    )
    error.keys = ("tools", tool.name)
    return error


async def _describe(tool: ToolDefinition, agent: PromptAgent) -> Sequence[KindTool]:
    kinds = agent.registry[TOOL_KINDS]
    if not kinds.has(tool.kind):  # an error before the first model call
        raise UnknownKind(tool, sorted({*KNOWN_TOOL_KINDS, *kinds.names()}))
    if tool.kind not in _LOCAL_KINDS:
        check_tool_variables(agent, tool)
    kind_tools = await kinds.get(tool.kind).describe(tool, agent)
    for error in find_unmatched(tool, {name for kind_tool in kind_tools for name in _bindable(kind_tool)}):
        raise error
    return kind_tools


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_function_name(name: str) -> None:
    """Raise `ToolError` for a name that no provider takes."""
    if not _NAME.fullmatch(name):
        fix = "Use 1 to 64 letters, digits, `_` and `-`."
        raise ToolError(f"no provider takes the tool name {name!r:.80}", fix)


def _check_approval(projected: Sequence[ProjectedTool]) -> None:
    """Check a tool's approval conditions against all its functions, which usually share one policy."""
    policies = {id(entry.approval): entry.approval for entry in projected if get_conditions(entry.approval)}
    if policies:
        callees = [describe_callee(entry.function, entry.bindings) for entry in projected]
        for policy in policies.values():
            check_conditions(policy, callees)


def _bindable(kind_tool: KindTool) -> set[str]:
    return {*_properties(kind_tool.function), *kind_tool.bindable}


class UnmatchedBinding(ToolError):
    """A binding matches no parameter. `nearest` is the parameter with the most similar name."""

    def __init__(self, binding: str, cause: str, fix: str, nearest: str | None = None) -> None:
        super().__init__(cause, fix)
        self.binding: str = binding
        self.nearest: str | None = nearest


def find_unmatched(tool: ToolDefinition, parameters: Collection[str]) -> list[UnmatchedBinding]:
    """Return an error for each binding that matches no parameter."""
    errors = []
    for binding in tool.bindings:
        if binding not in parameters:
            near = nearest(binding, sorted(parameters))
            cause = f"the binding '{binding}' of the tool '{tool.name}' matches no parameter"
            fix = f"{did_you_mean(near)}Correct its name, or remove it from `bindings:`."
            errors.append(UnmatchedBinding(binding, cause, fix, near))
    return errors


class UnknownKind(ToolError):
    """No handler is registered for this kind. `nearest` is the known kind with the most similar name."""

    def __init__(self, tool: ToolDefinition, known: Sequence[str]) -> None:
        self.nearest: str | None = nearest(tool.kind, known)
        super().__init__(
            f"no handler is registered for tool kind '{tool.kind}' (tool '{tool.name}')",
            f"{did_you_mean(self.nearest)}Use one of {', '.join(known)}, or register a handler with "
            f"`register_tool_kind`. A function named '{tool.name}' can also run it.",
        )
        self.keys: tuple[str | int, ...] = ("tools", tool.name, "kind")


def locate_file(path: str, tool: ToolDefinition, agent: PromptAgent) -> Path:
    """Return the path of a file that a tool names. It must be below the prompt's folder or an allowed root."""
    folder = agent.base_dir or (agent.path.parent if agent.path else None)
    if folder is None:
        raise ToolError(
            f"'{path}' of the tool '{tool.name}' is relative to the prompt's file, but the prompt has no file",
            "Load the prompt with load(path), or pass base_dir= to loads().",
        )
    located = (folder / path).resolve()
    if not any(located.is_relative_to(root.resolve()) for root in (folder, *agent.allowed_roots)):
        raise ToolError(
            f"'{path}' of the tool '{tool.name}' is not below the prompt's folder",
            "Move it there, or allow its folder: with --root, with `roots` in prompty.toml, or with allowed_roots= of "
            "load().",
        )
    return located


def _properties(function: Function) -> Mapping[str, object]:
    properties = function.parameters.get("properties")
    return properties if isinstance(properties, dict) else {}


def hide_parameters(function: Function, bound: Collection[str]) -> Function:
    """Return a function without the parameters that the host fills in (§2.9.1)."""
    if not bound:
        return function
    required = function.parameters.get("required")
    properties: Json = {name: value for name, value in _properties(function).items() if name not in bound}
    needed = [name for name in required if name not in bound] if isinstance(required, list) else []
    schema = {name: value for name, value in function.parameters.items() if name != "required"}
    schema |= {"properties": properties, **({"required": needed} if needed else {})}
    return replace(function, parameters=schema)


def name_bound_variables(agent: PromptAgent, tool: ToolDefinition) -> dict[str, list[str]]:
    """Return the parameters that the host fills in, with the environment variables in their values."""
    return agent.trust.name_bound(tool.name, tool.bindings, [one.name for one in agent.tools])


TOOL_KINDS: ExtensionPoint[ToolKind] = ExtensionPoint("tool_kind")


def register_tool_kind(kind: str, handler: ToolKind, *, registry: Registry = DEFAULT) -> None:
    """Let files declare tools of this kind."""
    registry[TOOL_KINDS].register(kind, handler)


def check_tool_variables(agent: PromptAgent, tool: ToolDefinition) -> None:
    """Raise ToolError if a tool would connect while a variable of the prompt is not set."""
    if agent.trust.missing:
        cause, fix, command_fix = explain_missing(agent.trust.missing)
        raise ToolError(f"the tool '{tool.name}' does not connect: {cause}", fix, command_fix)


def check_tool_target(
    agent: PromptAgent, tool: ToolDefinition, url: str | None, field: str = "endpoint", allowed: Iterable[Origin] = ()
) -> None:
    """Raise ToolError if a tool would send a variable that is not allowed there.

    `field` names the address in the file, and `allowed` are origins that the program allows for this kind of tool.
    """
    if not agent.trust.from_file:
        return
    check_tool_variables(agent, tool)
    if refusal := find_tool_refusal(agent, tool, url, field, allowed):
        raise ToolError(f"the tool '{tool.name}': {refusal.cause}", refusal.fix, refusal.command_fix)


def check_tool_address(agent: PromptAgent, tool: ToolDefinition, url: str | None) -> bool:
    """Raise ToolError if a tool may not connect to the address in its file. Return True if it must be a public one."""
    check_tool_target(agent, tool, url)
    if url is None or not agent.trust.from_file:
        return False
    target = _find_target(agent, agent.trust.for_tool(tool.name, [one.name for one in agent.tools]), url)
    if refusal := refuse_address(target):
        raise ToolError(f"the tool '{tool.name}': {refusal.cause}", refusal.fix, refusal.command_fix)
    return target.needs_public


def _find_target(
    agent: PromptAgent, trust: Trust, url: str, field: str = "endpoint", allowed: Iterable[Origin] = ()
) -> Target:
    """Return the server of a tool, and who names it."""
    uses = [use for use in trust.uses if use.is_address and use.keys[-1] == field]
    trusted = trust.trusted | frozenset(allowed)
    return Target(url, uses[0] if uses else None, trusted=trusted, registered=agent.registry.trusted_endpoints)


def find_tool_refusal(
    agent: PromptAgent, tool: ToolDefinition, url: str | None, field: str = "endpoint", allowed: Iterable[Origin] = ()
) -> Refusal | None:
    """Return the reason why a tool may not send its variables to a server, or None."""
    trust = agent.trust.for_tool(tool.name, [one.name for one in agent.tools])
    if (refusal := refuse_text(trust)) or not url:
        return refusal
    return refuse_connection(trust, ("tools", tool.name), _find_target(agent, trust, url, field, allowed))
