"""Signatures and types of Python objects as people write them: without modules, the same in every release of Python."""

import inspect
import types
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, Union, get_args, get_origin

from prompty.events import Delta, Event

ALIASES = {frozenset(get_args(alias)): name for name, alias in (("Event", Event), ("Delta", Delta))}


def format_type(annotation: Any, union: str = " | ") -> str:
    """Return an annotation as text. `union` stands between the members of a union."""
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, str | ForwardRef):
        return getattr(annotation, "__forward_arg__", str(annotation)).replace(" | ", union)
    if isinstance(annotation, TypeVar):
        return annotation.__name__
    if annotation is Ellipsis:
        return "..."
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return format_type(arguments[0], union)
    if origin in (Union, types.UnionType):
        return _format_union(arguments, union)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if isinstance(annotation, list):
        return f"[{', '.join(format_type(each, union) for each in annotation)}]"
    name = getattr(origin or annotation, "__name__", None) or str(annotation).rpartition(".")[2]
    return f"{name}[{', '.join(format_type(each, union) for each in arguments)}]" if arguments else name


def _format_union(members: tuple[Any, ...], union: str) -> str:
    for alias, name in ALIASES.items():
        if alias <= set(members):
            members = (name, *(member for member in members if member not in alias))
    return union.join(dict.fromkeys(format_type(member, union) for member in members))


def format_default(value: object) -> str:
    """Return a default value as text, or `...` for an object without one, and for a long one."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    text = repr(value)
    return "..." if " at 0x" in text or text.startswith("<") or len(text) > 60 else text


def format_parameter(parameter: inspect.Parameter) -> str:
    """Return a parameter with its type and its default."""
    stars = (
        "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    )
    has_type = parameter.annotation is not parameter.empty
    text = f"{stars}{parameter.name}" + (f": {format_type(parameter.annotation)}" if has_type else "")
    if parameter.default is parameter.empty:
        return text
    return f"{text}{' = ' if has_type else '='}{format_default(parameter.default)}"


def list_parameters(parameters: list[inspect.Parameter]) -> list[str]:
    """Return the parameters of a signature, with `*` and `/` where they belong."""
    parts = []
    kinds = [parameter.kind for parameter in parameters]
    for index, parameter in enumerate(parameters):
        before = kinds[:index]
        if parameter.kind is not parameter.POSITIONAL_ONLY and before[-1:] == [parameter.POSITIONAL_ONLY]:
            parts.append("/")
        if parameter.kind is parameter.KEYWORD_ONLY and not {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL} & {
            *before
        }:
            parts.append("*")
        parts.append(format_parameter(parameter))
    return [*parts, "/"] if kinds[-1:] == [inspect.Parameter.POSITIONAL_ONLY] else parts


def format_signature(name: str, function: Callable[..., Any], leave_out: frozenset[str] = frozenset()) -> str:
    """Return the call of a function, on several lines if it is long. Parameters to leave out become `**options`."""
    signature = inspect.signature(function)
    hidden = leave_out | {"self", "cls"}
    named = [each for each in signature.parameters.values() if each.name not in hidden]
    parameters = [each for each in named if not each.name.startswith("_")]
    parts = list_parameters(parameters) + (["**options"] if leave_out else [])
    returned = signature.return_annotation
    ending = "" if returned is signature.empty else f" -> {format_type(returned)}"
    start = "async " if inspect.iscoroutinefunction(function) else ""
    line = f"{start}{name}({', '.join(parts)}){ending}"
    if len(line) <= 88:
        return line
    return "\n".join([f"{start}{name}(", *(f"    {part}," for part in parts), f"){ending}"])
