"""Approval conditions: the arguments that a policy such as `{when: {amount: {minimum: 100}}}` names.

A condition on an unknown parameter, or on one that the host fills in, is an error: it would not ask as intended. The
file's function tools are checked on load, other tools and the host's policies when a run's tools are described.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from prompty.errors import ToolError, did_you_mean, nearest
from prompty.model.message import Json
from prompty.model.request import Function

# A schema with one of these may allow arguments that its `properties` do not list.
_OPEN = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties")


class Callee(NamedTuple):
    """A tool that a condition applies to: its name, its parameters, and those that the host fills in.

    `is_open` means that it also accepts other names.
    """

    name: str
    parameters: Collection[str]
    bound: Collection[str] = ()
    is_open: bool = False


def describe_callee(function: Function, bound: Collection[str]) -> Callee:
    """Return a function as a callee. The function's schema lacks the bound parameters."""
    schema = function.parameters
    is_open = bool(schema.get("additionalProperties")) or any(key in schema for key in _OPEN)
    return Callee(function.name, list_parameters(function), bound, is_open)


def list_parameters(function: Function) -> Collection[str]:
    """Return the names of the parameters that the model can fill in."""
    properties = function.parameters.get("properties")
    return properties if isinstance(properties, Mapping) else ()


def get_conditions(policy: object) -> Json | None:
    """Return a policy's conditions by argument, or None if it has none."""
    match policy:
        case {"when": dict(conditions), **others} if not others:
            return conditions
    return None


class ConditionProblem(NamedTuple):
    """A wrong name in a condition. `nearest` is the parameter with the most similar name."""

    name: str
    cause: str
    fix: str
    nearest: str | None = None


def find_condition_problem(policy: object, callees: Sequence[Callee]) -> ConditionProblem | None:
    """Return the first problem of a policy for these tools.

    At least one tool must have the parameter. Calls to the others have no value for it, so they need approval.
    """
    for name in get_conditions(policy) or ():
        for callee in callees:
            if name in callee.bound:
                cause = f"the approval of '{callee.name}' names '{name}', which its `bindings` fill in"
                return ConditionProblem(name, cause, "Name a parameter that the model fills in, or write `always`.")
        if callees and not any(callee.is_open or name in callee.parameters for callee in callees):
            return _unknown_parameter(name, callees)
    return None


def _unknown_parameter(name: str, callees: Sequence[Callee]) -> ConditionProblem:
    known = [parameter for callee in callees for parameter in callee.parameters if parameter not in callee.bound]
    near = nearest(name, known)
    tools = ", ".join(f"'{callee.name}'" for callee in callees[:3]) + (" and others" if len(callees) > 3 else "")
    cause = f"the approval of {tools} names '{name}', which is not a parameter"
    fix = did_you_mean(near).rstrip() or f"Name one of: {', '.join(known) or 'none'}."
    return ConditionProblem(name, cause, fix, near)


def check_tool_names(policies: Mapping[object, object], tools: Collection[str]) -> None:
    """Raise `ToolError` if policies name a tool that the run does not have: they would have no effect."""
    for name in policies:
        if name not in tools:
            question = did_you_mean(nearest(str(name), tools)).rstrip()
            fix = question or f"Name one of: {', '.join(tools) or 'none'}."
            raise ToolError(f"the option approval= names '{name}', which is not a tool of this run", fix)


def check_conditions(policy: object, callees: Sequence[Callee]) -> None:
    """Raise `ToolError` if a policy names an argument that these tools do not have, or that the host fills in."""
    problem = find_condition_problem(policy, callees)
    if problem:
        raise ToolError(problem.cause, problem.fix)


def describe_policy(policy: object) -> str:
    """Describe when a call needs approval."""
    if policy in (None, "never"):
        return "runs without approval"
    conditions = get_conditions(policy)
    return f"needs approval for some values of {', '.join(conditions)}" if conditions else "needs approval"
