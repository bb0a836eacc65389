"""The tools of a run: the functions that the model sees, and the code that runs its calls."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from warnings import warn

from prompty.errors import InputError, PromptyWarning, ToolError, WrongArgument
from prompty.model.agent import PromptAgent, require_agent
from prompty.model.conditions import check_conditions, describe_callee, list_parameters
from prompty.model.message import Json
from prompty.model.request import Function
from prompty.model.tool import Binding, CustomTool, FunctionTool, ToolDefinition
from prompty.registry import DEFAULT, ExtensionPoint, Registry
from prompty.safety.json import copy_json
from prompty.tools.calls import drop_defaults
from prompty.tools.function import Handler, ToolContext, make_handler
from prompty.tools.kinds import (
    KindRunner,
    check_function_name,
    find_unmatched,
    hide_parameters,
    name_bound_variables,
    project_tools,
)
from prompty.wire.structured import build_function

Tools = Mapping[str, Any] | Iterable[Any] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundTool:
    """A tool that can run: the function that the model sees, its runner, the bindings that the host fills in, the
    `variables` of the environment in their values, the defaults of arguments that the model omits, and its approval
    policies. Parameters that the file does not declare keep the function's defaults, and the model does not see them.

    `own_defaults` are the function's. An argument equal to one is omitted, so that the function gets its own object.
    """

    function: Function
    handler: Handler | KindRunner
    bindings: Mapping[str, Binding] = field(default_factory=dict)
    defaults: Json = field(default_factory=dict)
    own_defaults: Json = field(default_factory=dict)
    approval: tuple[object, ...] = ()
    variables: Mapping[str, list[str]] = field(default_factory=dict)

    def prepare(self, arguments: Json, inputs: Mapping[str, object], context: ToolContext) -> Callable[[], object]:
        """Return the call with its arguments and bindings."""
        given = drop_defaults(arguments, self.own_defaults) if self.own_defaults else arguments
        return self.handler.prepare(fill_bindings(given, self.bindings, inputs), context)


def fill_bindings(
    arguments: Mapping[str, object], bindings: Mapping[str, Binding], inputs: Mapping[str, object]
) -> dict[str, object]:
    """Return the arguments of a call with the bindings filled in. A binding replaces the model's value.

    Lists and dicts are copies, because later turns use the same agent and maybe the same inputs.
    """
    return {**arguments, **{name: copy_json(_bound_value(name, binding, inputs)) for name, binding in bindings.items()}}


def _bound_value(name: str, binding: Binding, inputs: Mapping[str, object]) -> object:
    if binding.input is None:
        if (text := binding.plain_text) is not None and text in inputs:
            return inputs[text]
        return binding.value.get_secret_value() if binding.value is not None else None
    if binding.input not in inputs:
        raise InputError(
            binding.input,
            f"the parameter '{name}' is bound to the input '{binding.input}', which has no value",
            f"Pass inputs={{'{binding.input}': …}}, or add a `default:` to the input in the file.",
        )
    return inputs[binding.input]


def bind_tools(agent: PromptAgent, functions: Tools) -> dict[str, Handler]:
    """Return handlers for a file's tools, after checking that each is declared and matches.

    A declared function without a handler is a warning: it may be registered, or passed to the turn.
    """
    require_agent(agent, "bind_tools")
    handlers = handlers_of(functions)
    declared = {tool.name: tool for tool in agent.tools}
    for name, handler in handlers.items():
        if name not in declared:
            raise ToolError(
                f"the function '{name}' is not declared in the file, which declares: {', '.join(declared) or 'none'}",
                "Declare it under `tools:`, or pass it to `turn(tools=…)` without bind_tools.",
            )
        _check_fit(declared[name], handler)
    for tool in agent.tools:
        if isinstance(tool, FunctionTool) and tool.name not in handlers:
            warn(f"the tool '{tool.name}' is declared, but no function is bound to it", PromptyWarning, stacklevel=2)
    return handlers


def handlers_of(functions: Tools) -> dict[str, Handler]:
    """Return handlers by tool name. A mapping's keys are the names."""
    if isinstance(functions, Mapping):
        return {name: make_handler(function, name) for name, function in functions.items()}
    found: object = functions
    if found is not None and (not isinstance(found, Iterable) or isinstance(found, str | bytes)):
        raise WrongArgument("tools", found, "a list of functions", "Write tools=[function].")
    handlers: dict[str, Handler] = {}
    for handler in map(make_handler, functions or ()):
        if handler.name in handlers:
            raise ToolError(f"two functions are named '{handler.name}'", "Rename one with @tool(name=…).")
        handlers[handler.name] = handler
    return handlers


def toolbox(agent: PromptAgent, functions: Tools) -> dict[str, BoundTool]:
    """Return a run's functions: those that the file declares, then those that the host adds."""
    handlers = handlers_of(functions)
    tools: dict[str, BoundTool] = {}
    for tool in agent.tools:
        if tool.name in tools:
            raise ToolError(f"two tools are named '{tool.name}'", "Rename one of them.")
        try:
            if bound := _bind_declared(tool, handlers.get(tool.name), agent):
                variables = name_bound_variables(agent, tool) if tool.bindings else {}
                tools[tool.name] = replace(bound, variables=variables) if variables else bound
        except ToolError as error:
            error.keys = error.keys or ("tools", tool.name)
            raise
    for name, handler in handlers.items():
        if name not in tools:
            signature = handler.signature
            tools[name] = BoundTool(
                function=handler.describe(),
                handler=handler,
                defaults=signature.defaults,
                own_defaults=signature.fixed_defaults,
            )
    for name in tools:
        check_function_name(name)
    return tools


def _bind_declared(tool: ToolDefinition, handler: Handler | None, agent: PromptAgent) -> BoundTool | None:
    """Return a tool that a function runs, or None for one of another kind."""
    if isinstance(tool, FunctionTool):
        return _bind(tool, handler, agent)
    if isinstance(tool, CustomTool):
        found = handler or _find_registered(tool, agent)
        return _bind_custom(tool, found) if found else None
    if handler:
        raise ToolError(
            f"the function '{tool.name}' has the same name as a tool of kind '{tool.kind}'", "Rename one of them."
        )
    return None


async def kind_tools(
    agent: PromptAgent, taken: Collection[str], *, sync: bool, timeout: float | None = None
) -> dict[str, BoundTool]:
    """Return the functions of all tools of other kinds, which have `timeout` seconds to describe them."""
    return {
        function.name: BoundTool(
            function=function,
            handler=KindRunner(kind_tool, sync),
            bindings=bindings,
            defaults={name: value for name, value in kind_tool.defaults.items() if name not in bindings},
            approval=(projected.approval,),
            variables=name_bound_variables(agent, tool) if bindings else {},
        )
        for projected in await project_tools(agent, taken, timeout)
        for tool, kind_tool, function, bindings in [projected]
    }


def describe_custom_tools(agent: PromptAgent) -> list[Function]:
    """Return the functions of custom tools that a registered function runs."""
    tools = [(tool, _find_registered(tool, agent)) for tool in agent.tools if isinstance(tool, CustomTool)]
    functions = [_bind_custom(tool, handler).function for tool, handler in tools if handler]
    for function in functions:
        check_function_name(function.name)
    return functions


def _find_registered(tool: ToolDefinition, agent: PromptAgent) -> Handler | None:
    known = agent.registry[TOOLS]
    return make_handler(known.get(tool.name), tool.name) if known.has(tool.name) else None


def _bind_custom(tool: CustomTool, handler: Handler) -> BoundTool:
    """Return a custom tool that a function runs. Its parameters are the function's."""
    function = handler.describe()
    if not handler.signature.accepts_any_name:
        for error in find_unmatched(tool, handler.signature.parameters):
            raise error
    visible = hide_parameters(function, tool.bindings)
    described = replace(visible, name=tool.name, description=tool.description or function.description)
    return _complete(tool, described, handler)


def _bind(tool: FunctionTool, handler: Handler | None, agent: PromptAgent) -> BoundTool:
    handler = handler or _find_registered(tool, agent)
    if handler is None:
        raise ToolError(
            f"the tool '{tool.name}' is declared, but has no function",
            f"Pass a function with that name in `tools=`, or register one: register_tool('{tool.name}', function).",
            f"Add --tools FILE.py with a function named {tool.name}.",
        )
    _check_fit(tool, handler)
    declared = {entry.name: entry.default for entry in tool.parameters if entry.default is not None}
    return _complete(tool, build_function(tool), handler, declared)


def _complete(tool: ToolDefinition, function: Function, handler: Handler, declared: Json | None = None) -> BoundTool:
    """Return a tool that a function runs. The file's defaults replace the function's."""
    signature = handler.signature
    if tool.approval_mode is not None:
        check_conditions(tool.approval_mode, [describe_callee(function, tool.bindings)])
    defaults = {**signature.defaults, **(declared or {})}
    if defaults:
        visible = list_parameters(function)
        defaults = {name: value for name, value in defaults.items() if name in visible}
    return BoundTool(
        function=function,
        handler=handler,
        bindings=tool.bindings,
        defaults=defaults,
        own_defaults=signature.fixed_defaults,
        approval=(tool.approval_mode,),
    )


def _check_fit(declared: ToolDefinition, handler: Handler) -> None:
    """Raise `ToolError` unless the function takes every declared parameter and requires no other."""
    if not isinstance(declared, FunctionTool):
        return
    handler.describe()  # raises if the function cannot be a tool at all
    names = {parameter.name for parameter in declared.parameters} | declared.bindings.keys()
    undeclared = ", ".join(f"'{name}'" for name in handler.signature.required if name not in names)
    extra = set() if handler.signature.accepts_any_name else names - handler.signature.parameters.keys()
    unknown = ", ".join(f"'{name}'" for name in sorted(extra))
    if undeclared:
        raise ToolError(
            f"the function for '{declared.name}' requires {undeclared}, which the file does not declare",
            "Declare it under `parameters:`, bind it, or give it a default.",
        )
    if unknown:
        raise ToolError(
            f"the file declares {unknown} for '{declared.name}', which its function does not take",
            "Add a parameter with that name to the function, or remove it from the file.",
        )


TOOLS: ExtensionPoint[Callable[..., object]] = ExtensionPoint("tool")


def register_tool(name: str, function: Callable[..., object], *, registry: Registry = DEFAULT) -> None:
    """Register a function for tools with this name, so that turns find it without `tools=`."""
    registry[TOOLS].register(name, function)
