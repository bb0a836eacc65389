"""Limits of a Jinja2 template, and the costs of its operations.

One rule prices everything: 1 step for 4 characters and 4 steps for each part that an operation reads, 1 step for 32
bytes of its result. The tables below list only the exceptions. A result that can be longer than its arguments is
bounded before it is computed, because afterwards it is too late. A step is about 100 ns.

Used by `renderers.jinja2_sandbox`, which does the charging.
"""

import re
from collections.abc import Callable, Mapping, Sized
from itertools import islice
from string import Formatter
from typing import Any, NamedTuple

from jinja2.exceptions import SecurityError


class LimitExceeded(SecurityError):
    """The template exceeded a limit."""


class Limit(NamedTuple):
    """The maximum of an amount, and the message for exceeding it."""

    maximum: int
    description: str

    def check(self, amount: int) -> int:
        """Return `amount`, or raise `LimitExceeded` if it is above the maximum."""
        if amount > self.maximum:
            raise LimitExceeded(self.description.format(self.maximum))
        return amount


STEPS = Limit(2_000_000, "more than {:,} steps")
CHARACTERS = Limit(4_000_000, "more than {:,} characters")
PARTS = Limit(100_000, "a value of more than {:,} parts")
BITS = Limit(4096, "a number of more than {} bits")
WIDE_NUMBERS = Limit(100, "more than {} numbers of more than 64 bits")  # their hashes can all be equal
SOURCE = Limit(1_000_000, "a template of more than {:,} characters")
TOKENS = Limit(10_000, "more than {:,} names, values and operators")
LOOPS = Limit(10, "more than {} nested loops")
_MAX_DEPTH = 500

_EMPTY: dict[str, str] = {}
CONTAINERS = (list, tuple, dict, set, frozenset, type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items()))
_SEARCHED_ITEM_BY_ITEM = (list, tuple, range, type(_EMPTY.values()))


def measure(*values: Any) -> int:
    """Return the approximate number of characters of the values as text, with everything inside them.

    A shared part counts each time it appears. A part counts for more the deeper it is, as in indented JSON.
    """
    if len(values) == 1 and isinstance(values[0], str):
        return CHARACTERS.check(len(values[0]))
    weight = parts = characters = wide_numbers = 0
    level = list(values)
    for depth in range(_MAX_DEPTH):
        below: list[Any] = []
        length = 0
        for item in level:
            if isinstance(item, str):
                length += len(item)
            elif isinstance(item, int):
                length += item.bit_length() // 3
                wide_numbers += item.bit_length() > 64
            elif isinstance(item, CONTAINERS):
                if parts + len(below) + len(item) > PARTS.maximum:
                    PARTS.check(parts + len(below) + len(item))
                below += (*item, *item.values()) if isinstance(item, dict) else item
            elif isinstance(item, range):
                parts += PARTS.check(len(item))
                length += 16 * len(item)
                wide_numbers += len(item) * (max(item.start.bit_length(), item.stop.bit_length()) > 64)
        parts += len(level)
        characters = CHARACTERS.check(characters + length)
        weight += (16 * len(level) + length) * (8 + depth) // 8
        WIDE_NUMBERS.check(wide_numbers)
        if not below:
            return weight
        level = below
    raise RecursionError


def to_list(value: Any) -> Any:
    """Return an iterator as a list, because only a list has a length. Return any other value unchanged."""
    if not hasattr(value, "__next__"):
        return value
    items = list(islice(value, PARTS.maximum + 1))
    PARTS.check(len(items))
    return items


def call_steps(operation: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Return the cost of a filter, a test, or a method (`.upper`). Raise if its result would be too long."""
    first, *rest = (*args, *kwargs.values()) if kwargs else args
    weight = measure(*rest) if operation in _SHALLOW else measure(first, *rest)
    steps = 10 + weight // 4
    if operation in _LENGTHS:
        steps += CHARACTERS.check(_LENGTHS[operation](weight, *args, **kwargs)) // 32
    if operation in _EXTRA_STEPS:
        steps += _EXTRA_STEPS[operation](weight, *args, **kwargs)
    if operation in _EACH_ITEM and isinstance(first, Sized):
        lookups = sum(max(path.count(".") + path.count(",") - 3, 0) for path in rest if isinstance(path, str))
        steps += PARTS.check(len(first)) * 30 * (1 + lookups)
    elif rest and isinstance(first, str):  # searching for text that almost matches is slow
        longest = CHARACTERS.maximum if operation in _QUADRATIC_SEARCHES else 100
        for text in rest:
            steps += len(first) * min(len(text), longest) // 100 if isinstance(text, str) else 0
    return steps


def comparison_steps(operator: str, left: Any, right: Any) -> int:
    """Return the cost of comparing part by part up to the first difference."""
    if operator not in ("in", "notin"):
        if isinstance(left, str) and isinstance(right, str):
            return min(len(left), len(right)) // 32
        return measure(left) // 4 if isinstance(left, CONTAINERS) and isinstance(right, CONTAINERS) else 0
    weight = measure(left)
    if isinstance(right, str):
        return len(right) // 32 + len(right) * min(weight, 100) // 100
    items = len(right) if isinstance(right, _SEARCHED_ITEM_BY_ITEM) else 0
    return weight // 4 + items * (1 + weight // 64) // (1 if isinstance(right, range) else 2)


def operator_steps(operator: str, left: Any, right: Any) -> int:
    """Return the cost of an operator. Raise if its result would be too large."""
    match operator, left, right:
        case "**", int(), int():
            BITS.check(left.bit_length() * right)
        case "*", list() | tuple(), int():
            PARTS.check(len(left) * right)
        case "*", str(), int():
            return CHARACTERS.check(len(left) * right) // 32
        case "*", int(), str() | list() | tuple():
            return operator_steps("*", right, left)
        case "%", str(), _:
            weight = measure(left, right)
            return weight // 8 + CHARACTERS.check(_percent_format(weight, left, right)) // 32
        case "-", _, _ if not isinstance(left, int | float):  # the difference of two sets
            return measure(left, right) // 8
    return 0


# Filters and methods that return an existing object, whose memory is not charged again.
LIGHT = frozenset({"attr", "count", "d", "default", "first", "items", "last", "length", "random"})
LIGHT |= {".get", ".items", ".keys", ".values"}
# Filters and methods that do not look inside the items of their first argument.
_SHALLOW = LIGHT | {"map", "reject", "rejectattr", "select", "selectattr"}
# Filters that run Python code for each item. An attribute path in their arguments is looked up for each item.
_EACH_ITEM = frozenset({"batch", "dictsort", "groupby", "join", "list", "map", "max", "min", "reject", "rejectattr"})
_EACH_ITEM |= {"select", "selectattr", "slice", "sort", "sum", "unique", "xmlattr"}
_QUADRATIC_SEARCHES = frozenset({"trim", ".rfind", ".rindex", ".rpartition", ".rsplit", ".strip", ".lstrip", ".rstrip"})


# Steps of operations that take longer than the size of the arguments suggests.
_EXTRA_STEPS: dict[str, Callable[..., int]] = {
    "attr": lambda *_: 60,
    # Adding a list copies the sum so far.
    "sum": lambda weight, values, attribute=None, start=0: isinstance(start, list | tuple) * len(values) * weight // 99,
    # At each dot of a word, the rest of the word is searched.
    "urlize": lambda weight, value, *_, **__: 100 + weight * (30 + max(map(len, str(value).split()), default=0) // 8),
    # Splitting a word that is too long copies its rest.
    "wordwrap": lambda weight, text, width=79, *_, **__: 60 + weight * 8 + weight**2 // max(width, 1) // 1000,
    # Removing a comment copies the rest of the text.
    "striptags": lambda weight, text: 30 + weight * (8 + str(text).count("<!--") // 1000),
}
_EXTRA_STEPS[".striptags"] = _EXTRA_STEPS["striptags"]
_EXTRA_STEPS |= dict.fromkeys((".split", ".rsplit", ".splitlines"), lambda weight, *_, **__: weight // 2)
_EXTRA_STEPS |= dict.fromkeys(("urlencode", "wordcount"), lambda weight, *_: weight * 3)
_EXTRA_STEPS |= dict.fromkeys(("pprint", "title", ".unescape"), lambda weight, *_: weight * 8)


# Upper bounds for the length of results that can be longer than the arguments.


def _indent(weight: int, text: str, width: Any = 4, *_: Any, **__: Any) -> int:
    lines = 1 + sum(map(text.count, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))
    return weight + lines * _width(width)


def _width(indent: Any) -> int:
    return len(indent) if isinstance(indent, str) else indent or 0


def _join(weight: int, values: Any, d: Any = "", *_: Any, **__: Any) -> int:
    return weight + PARTS.check(len(values)) * len(str(d))


def _percent_format(weight: int, value: Any, /, *args: Any, **kwargs: Any) -> int:
    text = str(value)
    fields = PARTS.check(text.count("%"))
    if _ODD_KEY.search(text):
        raise LimitExceeded("a format key of more than 100 characters or with brackets")
    widths = [width for field in _PERCENT_FIELD.finditer(text) for width in field.groups() if width]
    repeats = fields if kwargs or any(isinstance(value, Mapping) for value in args) else 1
    return len(text) + fields * 800 + _total_width(widths) + repeats * (weight - len(text))


def _brace_format(weight: int, text: str, /, *args: Any, **kwargs: Any) -> int:
    PARTS.check(text.count("{"))
    fields = [(name, specification or "") for _, name, specification, _ in Formatter().parse(text) if name is not None]
    widths = [width for _, specification in fields for width in re.findall(r"\d+|\{", specification)]
    lookups = sum(name.count(".") + name.count("[") for name, _ in fields)
    return len(text) + lookups * 800 + _total_width(widths) + len(fields) * (1600 + weight - len(text))


def _total_width(widths: list[str]) -> int:
    """Return the sum of field widths. A width from an argument (`*`, `{}`) is unbounded."""
    return sum(int(width) if width.isdecimal() and len(width) < 9 else CHARACTERS.maximum + 1 for width in widths)


_PERCENT_FIELD = re.compile(r"%(?:\([^()]*\))?[#0\- +]*(\*|\d+)?(?:\.(\*|\d+))?")
_ODD_KEY = re.compile(r"%\((?![^()]{0,100}\))")

_LENGTHS: dict[str, Callable[..., int]] = {
    "batch": lambda _, values, linecount, fill_with=None: linecount * 64,
    "format": _percent_format,
    "indent": _indent,
    "join": _join,
    "replace": lambda weight, text, old, new, *_, **__: weight + str(text).count(str(old)) * len(str(new)),
    "round": lambda _, number, precision=0, method="": abs(precision) * 4000,  # it computes 10 ** precision
    "slice": lambda _, values, slices, fill_with=None: slices * 64,
    "tojson": lambda weight, value, indent=0: 1600 + weight * (8 + _width(indent)) // 8,
    "urlize": lambda weight, value, *_, **__: len(str(value)) * (1 + (weight - len(str(value))) // 8),
    "wordwrap": lambda _, text, width=79, long=True, wrapstring=None, hyphens=True: len(text) * len(wrapstring or "\n"),
    ".expandtabs": lambda weight, text, tabsize=8: weight + text.count("\t") * tabsize,
    ".join": lambda weight, separator, values: _join(weight, values, separator),
}
_LENGTHS |= dict.fromkeys((".format", ".format_map"), _brace_format)
_LENGTHS[".replace"] = _LENGTHS["replace"]
_LENGTHS |= dict.fromkeys(("center", ".center", ".ljust", ".rjust", ".zfill"), lambda _, text, width=80, *__: width)
_LENGTHS |= dict.fromkeys(("divisibleby", "even", "odd"), lambda _, value, num=2: operator_steps("%", value, num))
