"""The tools of one run: what the model is told, and what runs its calls."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from warnings import warn

from prompty.errors import InputError, PromptyWarning, ToolError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.model.request import Function
from prompty.model.tool import Binding, FunctionTool, ToolDefinition
from prompty.registry import DEFAULT, Registry
from prompty.tools.context import ToolContext
from prompty.tools.function import Handler, ToolOptions, handler_of
from prompty.tools.kinds import KindRunner, projected_tools
from prompty.wire.functions import function_of

Tools = Mapping[str, Any] | Iterable[Any] | None


class Runner(Protocol):
    """What runs the calls of a tool."""

    @property
    def options(self) -> ToolOptions: ...
    @property
    def is_async(self) -> bool: ...
    def prepared(self, arguments: Json, context: ToolContext, /) -> Callable[[], object]:
        """The call with everything it takes; a coroutine function where it is async."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundTool:
    """A tool that can run: what the model sees of it, what runs it, what the host fills in, and the policies on when a
    person is asked."""

    function: Function
    handler: Runner
    bindings: Mapping[str, Binding] = field(default_factory=dict)
    approval: tuple[object, ...] = ()

    def prepared(self, arguments: Json, inputs: Mapping[str, object], context: ToolContext) -> Callable[[], object]:
        """The call with what the host fills in."""
        return self.handler.prepared(fill_bindings(arguments, self.bindings, inputs), context)


def fill_bindings(
    arguments: Mapping[str, object], bindings: Mapping[str, Binding], inputs: Mapping[str, object]
) -> dict[str, object]:
    """Return the arguments of a call with the bound ones filled in (§2.9.1). A binding replaces the model's value."""
    return {**arguments, **{name: _bound_value(name, binding, inputs) for name, binding in bindings.items()}}


def _bound_value(name: str, binding: Binding, inputs: Mapping[str, object]) -> object:
    if binding.input is None:
        return binding.value.get_secret_value() if binding.value is not None else None
    if binding.input not in inputs:
        raise InputError(
            binding.input,
            f"the parameter '{name}' is bound to the input '{binding.input}', which has no value",
            f"Pass inputs={{'{binding.input}': …}}, or give it a `default:` in the file.",
        )
    return inputs[binding.input]


def bind_tools(agent: PromptAgent, functions: Tools) -> dict[str, Handler]:
    """Functions for the tools that a file declares, checked: each has its declaration, and fits it.

    A declared function that none of them is for is a warning: it may be registered, or given to the turn.
    """
    handlers = handlers_of(functions)
    declared = {one.name: one for one in agent.tools}
    for name, handler in handlers.items():
        if name not in declared:
            known = ", ".join(declared) or "none"
            raise ToolError(
                f"the function '{name}' has no declaration in the file, which declares: {known}",
                "Declare it under `tools:`, or pass it to `turn(tools=…)` without bind_tools.",
            )
        check_fit(declared[name], handler)
    for missing in (one.name for one in agent.tools if isinstance(one, FunctionTool) and one.name not in handlers):
        warn(f"the tool '{missing}' is declared, but no function is bound to it", PromptyWarning, stacklevel=2)
    return handlers


def handlers_of(functions: Tools) -> dict[str, Handler]:
    """Handlers by the names of their tools; a mapping names them itself."""
    if isinstance(functions, Mapping):
        return {name: handler_of(function, name) for name, function in functions.items()}
    handlers: dict[str, Handler] = {}
    for handler in map(handler_of, functions or ()):
        if handler.name in handlers:
            raise ToolError(f"two functions are called '{handler.name}'", "Name one with @tool(name=…).")
        handlers[handler.name] = handler
    return handlers


def toolbox(agent: PromptAgent, functions: Tools) -> dict[str, BoundTool]:
    """The functions of a run: those that the file declares, each with its handler, and those the host adds to them."""
    handlers = handlers_of(functions)
    tools: dict[str, BoundTool] = {}
    for one in agent.tools:
        if one.name in tools:
            raise ToolError(f"two tools are called '{one.name}'", "Give each tool a name of its own.")
        given = handlers.get(one.name)
        if isinstance(one, FunctionTool):
            tools[one.name] = _declared(agent, one, given)
        elif given is not None:
            raise ToolError(f"the tool '{one.name}' is of the kind '{one.kind}', not a function", "Rename one of them.")
    for name, handler in handlers.items():
        if name not in tools:
            tools[name] = BoundTool(function=handler.described(), handler=handler)
    return tools


async def kind_tools(agent: PromptAgent, taken: Collection[str], *, sync: bool) -> dict[str, BoundTool]:
    """The functions of all tools of other kinds."""
    return {
        projected.function.name: BoundTool(
            function=projected.function,
            handler=KindRunner(projected.found, sync),
            bindings=projected.bindings,
            approval=(projected.tool.approval_mode if projected.found.approval is None else projected.found.approval,),
        )
        for projected in await projected_tools(agent, taken)
    }


def _declared(agent: PromptAgent, one: FunctionTool, given: Handler | None) -> BoundTool:
    handler = given
    if handler is None and agent.registry.tools.has(one.name):
        handler = handler_of(agent.registry.tools.get(one.name), one.name)
    if handler is None:
        raise ToolError(
            f"the tool '{one.name}' is declared, but nothing runs it",
            f"Pass a function of that name in `tools=`, or register one: register_tool('{one.name}', function).",
        )
    check_fit(one, handler)
    return BoundTool(function=function_of(one), handler=handler, bindings=one.bindings, approval=(one.approval_mode,))


def check_fit(declared: ToolDefinition, handler: Handler) -> None:
    """A function must take what the file declares, and need nothing else."""
    if not isinstance(declared, FunctionTool):
        return
    handler.described()  # says what is wrong with the function itself
    given = {parameter.name for parameter in declared.parameters} | declared.bindings.keys()
    lacking = [name for name in handler.signature.required if name not in given]
    unknown = [] if handler.signature.takes_anything else given - handler.signature.parameters.keys()
    if lacking:
        raise ToolError(
            f"the function of '{declared.name}' needs {_listed(lacking)}, which the file does not declare",
            "Declare it under `parameters:`, bind it, or give it a default.",
        )
    if unknown:
        raise ToolError(
            f"the file declares {_listed(sorted(unknown))} for '{declared.name}', which its function does not take",
            "Give the function a parameter of that name, or remove it from the file.",
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def register_tool(name: str, function: Callable[..., object], *, registry: Registry = DEFAULT) -> None:
    """Let files declare a function tool of this name without passing it to every turn."""
    registry.tools.register(name, function)
