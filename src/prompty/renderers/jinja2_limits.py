"""Jinja2's sandbox, with limits on what a template may ask for.

The sandbox keeps a template away from Python; it does not keep it from asking for half a gigabyte of x or for
nested loops that take minutes. Here every loop, call, concatenation and growing operation draws on a budget of the
render it happens in.
"""

import re
from collections.abc import Callable, Iterable, Sized
from functools import wraps
from itertools import islice
from string import Formatter
from types import BuiltinMethodType
from typing import Any, cast

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_CHARACTERS = 4_000_000
MAX_STEPS = 200_000
MAX_PARTS = 100_000
MAX_BITS = 4096


class LimitExceeded(SecurityError):
    """The template asked for more than a prompt can need."""


class BudgetedContext(Context):
    """The state of one render, with what it has spent so far."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spent = {"steps": 0, "characters": 0}

    def spend(self, kind: str, amount: int, most: int) -> None:
        self.spent[kind] += amount
        if self.spent[kind] > most:
            raise LimitExceeded(f"more than {most:,} {kind}")

    def derived(self, locals: dict[str, Any] | None = None) -> Context:
        context = super().derived(locals)
        if isinstance(context, BudgetedContext):
            context.spent = self.spent
        return context


def bounded(size: int) -> int:
    """The size of a text or list to be made, if it may be made."""
    if size > MAX_CHARACTERS:
        raise LimitExceeded(f"more than {MAX_CHARACTERS:,} characters")
    return size


def weight(value: Any) -> int:
    """About how many characters a value takes as text. Lists may share parts, so counting stops at the limit."""
    if isinstance(value, str):
        return bounded(len(value))
    total, parts, pending = 0, 0, [value]
    while pending:
        item = pending.pop()
        kind = type(item)
        total += len(item) if kind is str else 8
        if kind is dict:
            pending += item
            pending += item.values()
        elif kind is list or kind is tuple:
            pending += item
        parts += 1
        if parts + len(pending) > MAX_PARTS:
            raise LimitExceeded(f"a value of more than {MAX_PARTS:,} parts")
    return bounded(total)


def join_bounded(pieces: Iterable[str]) -> str:
    pieces = list(pieces)
    bounded(sum(map(len, pieces)))
    return "".join(pieces)


@pass_context
def as_text(context: BudgetedContext, value: object) -> str:
    """What `{{ value }}` writes."""
    if not isinstance(value, str):
        weight(value)
        value = str(value)
    context.spend("characters", len(value), MAX_CHARACTERS)
    return value


@pass_context
def counted(context: BudgetedContext, iterable: Iterable[object]) -> Iterable[object]:
    """What a `for` goes over, paid for before the first round."""
    if isinstance(iterable, Undefined):
        return iterable
    rounds = iterable if isinstance(iterable, Sized) else list(islice(iterable, MAX_STEPS + 1))
    context.spend("steps", len(rounds), MAX_STEPS)
    return rounds


def concatenated(parts: list[object]) -> str:
    """What `a ~ b` gives."""
    bounded(sum(map(weight, parts)))
    return "".join(map(str, parts))


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with every operator, call and filter that can grow a value under guard."""

    context_class = BudgetedContext
    intercepted_binops = frozenset({"+", "*", "**", "%"})
    concat = staticmethod(join_bounded)

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=as_text, keep_trailing_newline=True, **options)
        self.filters = {name: _guarded(name, function) for name, function in self.filters.items()}
        self.filters |= {"_counted": counted, "_concatenated": concatenated}
        del self.globals["lipsum"]

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _BINOP_GUARDS[operator](left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        context.spend("steps", 1, MAX_STEPS)
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps `str.format`
        if isinstance(method, BuiltinMethodType) and isinstance(method.__self__, str):
            _check_growth(f"str.{method.__name__}", (method.__self__, *args), kwargs)
        result = super().call(context, function, *args, **kwargs)
        return _checked(result)

    def from_template(self, template: nodes.Template) -> nodes.Template:
        """Put the counting filters into a parsed template."""
        for loop in template.find_all(nodes.For):
            loop.iter = _filtered(loop.iter, "_counted")
        _replace_concatenations(template)
        return template


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(cast(nodes.Expr, node), name, [], [], None, None, lineno=node.lineno)


def _replace_concatenations(node: nodes.Node) -> None:
    for field, value in list(node.iter_fields()):
        if isinstance(value, nodes.Concat):
            setattr(node, field, _concatenation(value))
        elif isinstance(value, list):
            value[:] = [_concatenation(item) if isinstance(item, nodes.Concat) else item for item in value]
    for child in node.iter_child_nodes():
        _replace_concatenations(child)


def _concatenation(node: nodes.Concat) -> nodes.Filter:
    return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_concatenated")


def _checked(result: Any) -> Any:
    if isinstance(result, str):
        bounded(len(result))
    return result


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    takes_context = hasattr(function, "jinja_pass_arg")

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        given = args[1:] if takes_context else args
        for value in (*given, *kwargs.values()):
            if isinstance(value, str | list | tuple | dict):
                weight(value)
        _check_growth(name, given, kwargs)
        return _checked(function(*args, **kwargs))

    return guarded


# How long the result of a call can get, for the calls whose result can be longer than what goes in.


def _check_growth(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    size = _GROWTH.get(name)
    if size is not None:
        bounded(size(*args, **kwargs))


def _replaced(text: Any, old: Any, new: Any, *_: Any, **__: Any) -> int:
    return len(str(text)) + str(text).count(str(old)) * len(str(new))


def _indented(text: Any, width: Any = 4, *_: Any, **__: Any) -> int:
    each = len(width) if isinstance(width, str) else int(width)
    return len(str(text)) + (str(text).count("\n") + 1) * each


def _wrapped(text: Any, width: Any = 79, _: Any = True, wrapstring: Any = None, **__: Any) -> int:
    lines = len(text) // max(int(width), 1) + str(text).count("\n") + 1
    return len(text) + lines * len(wrapstring or "\n")


def _joined(values: Any, separator: Any = "", *_: Any, **__: Any) -> int:
    return len(values) * len(str(separator)) if isinstance(values, Sized) else 0


def _percent_formatted(text: Any, *_: Any, **__: Any) -> int:
    widths = [width for found in _PERCENT.finditer(str(text)) for width in found.groups() if width]
    return _widest(widths)


def _brace_formatted(text: Any, *_: Any, **__: Any) -> int:
    specifications = [specification or "" for _, _, specification, _ in Formatter().parse(text)]
    return _widest([width for one in specifications for width in _WIDTH.findall(one)])


def _widest(widths: list[str]) -> int:
    """The sum of field widths; one that is itself an argument (`*`, `{}`) could be anything."""
    return sum(int(width) if width.isdecimal() and len(width) < 9 else MAX_CHARACTERS + 1 for width in widths)


_PERCENT = re.compile(r"%(?:\([^)]{0,200}\))?[#0\- +]*(\*|\d+)?(?:\.(\*|\d+))?")
_WIDTH = re.compile(r"\d+|\{")

_GROWTH: dict[str, Callable[..., int]] = {
    "batch": lambda values, width, *_, **__: width,
    "center": lambda text, width=80, *_, **__: width,
    "format": _percent_formatted,
    "indent": _indented,
    "join": _joined,
    "replace": _replaced,
    "slice": lambda values, slices, *_, **__: slices,
    "tojson": lambda value, indent=None, **__: weight(value) * (int(indent or 0) + 1),
    "wordwrap": _wrapped,
    "str.center": lambda text, width, *_: width,
    "str.expandtabs": lambda text, tabsize=8: len(text) + text.count("\t") * tabsize,
    "str.format": _brace_formatted,
    "str.format_map": _brace_formatted,
    "str.join": lambda separator, values: _joined(values, separator) + weight(values),
    "str.ljust": lambda text, width, *_: width,
    "str.replace": _replaced,
    "str.rjust": lambda text, width, *_: width,
    "str.zfill": lambda text, width: width,
}


def _check_plus(left: Any, right: Any) -> None:
    if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        bounded(len(left) + len(right))


def _check_times(left: Any, right: Any) -> None:
    for sequence, number in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple) and isinstance(number, int):
            bounded(len(sequence) * number)
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())


def _check_power(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * right)


def _check_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise LimitExceeded(f"a number of more than {MAX_BITS} bits")


def _check_percent(left: Any, right: Any) -> None:
    if isinstance(left, str):
        bounded(_percent_formatted(left) + weight(right))


_BINOP_GUARDS: dict[str, Callable[[Any, Any], None]] = {
    "+": _check_plus,
    "*": _check_times,
    "**": _check_power,
    "%": _check_percent,
}
