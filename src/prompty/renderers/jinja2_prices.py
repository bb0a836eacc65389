"""What the operations of a Jinja2 template cost, and how large their results can get.

Every table here was measured with the worst text for the operation, and every bound is taken before the operation
runs: afterwards the memory is gone.
"""

import re
from collections.abc import Callable, Mapping, Sized
from string import Formatter
from typing import Any

from prompty.renderers.jinja2_limits import (
    CHARACTERS_PER_STEP,
    CONTAINERS,
    MAX_CHARACTERS,
    STEPS_PER_PART,
    LimitExceeded,
    bounded,
    bounded_bits,
    bounded_parts,
    contents,
    measure,
)

_BASE = 5
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def price(operation: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """The steps of a filter, or of a method as `str.upper`; an error when its result would be too large."""
    first, *rest = args
    untouched = operation in _LIGHT or operation in _LAZY
    parts, characters = measure(*rest, *kwargs.values()) if untouched else measure(*args, *kwargs.values())
    steps = _BASE + parts * STEPS_PER_PART + characters * _PER_TEXT.get(operation, 1) // CHARACTERS_PER_STEP
    if operation in _PER_ITEM and isinstance(first, Sized):
        steps += bounded_parts(len(first)) * _PER_ITEM[operation]
    if operation in _WORK:
        steps += _WORK[operation](*args, **kwargs)
    if operation in _GROWTH:
        steps += bounded(_GROWTH[operation](*args, **kwargs)) // CHARACTERS_PER_STEP
    return steps


# These never look into their first argument, or only into one item at a time.
_LIGHT = frozenset(
    {"attr", "count", "d", "default", "first", "items", "last", "length", "random"}
    | {"dict.get", "dict.items", "dict.keys", "dict.values"}
)
_LAZY = frozenset({"map", "reject", "rejectattr", "select", "selectattr"})

# Steps for each item of the first argument.
_PER_ITEM = {
    "batch": 2,
    "dictsort": 15,
    "groupby": 80,
    "join": 8,
    "list": 1,
    "map": 30,
    "max": 8,
    "min": 8,
    "reject": 25,
    "rejectattr": 30,
    "select": 25,
    "selectattr": 30,
    "slice": 2,
    "sort": 25,
    "sum": 8,
    "unique": 10,
    "xmlattr": 40,
}

# Steps for each 32 characters, where it is more than one.
_PER_TEXT = {
    "capitalize": 6,
    "e": 4,
    "escape": 4,
    "float": 6,
    "forceescape": 4,
    "indent": 16,
    "int": 10,
    "lower": 6,
    "pprint": 200,
    "striptags": 100,
    "title": 200,
    "tojson": 10,
    "upper": 6,
    "urlencode": 64,
    "urlize": 1000,
    "wordcount": 60,
    "wordwrap": 260,
    "xmlattr": 4,
    "str.capitalize": 6,
    "str.casefold": 6,
    "str.lower": 6,
    "str.rsplit": 40,
    "str.split": 40,
    "str.splitlines": 40,
    "str.striptags": 100,
    "str.swapcase": 8,
    "str.title": 8,
    "str.unescape": 100,
    "str.upper": 6,
}


def is_light(operation: str) -> bool:
    """Whether the operation makes nothing, but hands out what is there."""
    return operation in _LIGHT


# Comparing: two values are compared part by part up to the first difference.


def comparison_price(operator: str, left: Any, right: Any) -> int:
    if operator in ("in", "notin"):
        return _search_price(left, right)
    if isinstance(left, str) and isinstance(right, str):
        return min(len(left), len(right)) // CHARACTERS_PER_STEP
    if isinstance(left, CONTAINERS) and isinstance(right, CONTAINERS):
        return measure(left).steps
    return 0


def _search_price(item: Any, where: Any) -> int:
    if isinstance(where, str):
        return len(where) // CHARACTERS_PER_STEP + _searched(where, item)
    size = measure(item)
    if isinstance(where, list | tuple | range | type({}.values())):
        return len(where) * (1 + size.steps // STEPS_PER_PART) // 4
    return size.steps


# Work that grows faster than what goes in, in steps.


def _searched(text: str, wanted: Any = None, *_: Any, **named: Any) -> int:
    """Text that nearly matches is compared again and again; what is longer than 100 is searched in another way."""
    sought = named.get("sep", wanted)
    return len(text) * min(len(sought), 100) // 350 if isinstance(sought, str) else 0


def _searched_backwards(text: str, wanted: Any = None, *_: Any, **named: Any) -> int:
    sought = named.get("sep", wanted)
    return len(text) * len(sought) // 350 if isinstance(sought, str) else 0


def _trimmed(text: Any, /, chars: str | None = None) -> int:
    return len(str(text)) * len(chars or "") // 1000


def _looked_up(values: Any, /, *names: Any, **named: Any) -> int:
    """The items times the steps of a path such as `address.city`, or of a list of them."""
    paths = [name for name in (*names, *named.values()) if isinstance(name, str)]
    return _count(values) * sum(1 + path.count(".") + path.count(",") for path in paths) * 30


def _joined_from(values: Any, /, d: Any = "", attribute: Any = None) -> int:
    return _looked_up(values, attribute)


def _summed(values: Any, /, attribute: Any = None, start: Any = 0) -> int:
    """Lists are added one by one, and what is there copied each time."""
    if not isinstance(start, list | tuple) or not isinstance(values, list | tuple):
        return _looked_up(values, attribute)
    parts = len(start) + sum([len(value) for value in values if isinstance(value, (list, tuple))])
    return len(values) * parts // 16 + _looked_up(values, attribute)


def _cut_off(text: str, /, width: int = 79, *_: Any, **__: Any) -> int:
    """A word that is too long is cut at the front again and again, and the rest copied each time."""
    return _longest_word(text) ** 2 // max(width, 1) // 1000


def _linked(value: Any, /, *_: Any, **__: Any) -> int:
    """Dots at the end of a word are looked for from each of them."""
    return len(str(value)) * _longest_word(str(value)) // 8


def _laid_out(value: Any, /) -> int:
    """On each level the text of everything below is made."""
    size = measure(value)
    return (size.parts * 20 + size.characters) * _depth(value)


def _count(values: Any) -> int:
    return len(values) if isinstance(values, Sized) else 0


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _depth(value: Any) -> int:
    levels, layer = 0, [value]
    while layer:
        levels += 1
        layer = [part for item in layer if isinstance(item, CONTAINERS) for part in contents(item)]
    return levels


_WORK: dict[str, Callable[..., int]] = {
    "join": _joined_from,
    "pprint": _laid_out,
    "sum": _summed,
    "trim": _trimmed,
    "urlencode": lambda value: 0 if isinstance(value, str) else _count(value) * 40,
    "urlize": _linked,
    "wordwrap": _cut_off,
}
_WORK |= dict.fromkeys(("groupby", "map", "max", "min", "rejectattr", "selectattr", "sort", "unique"), _looked_up)
_WORK |= dict.fromkeys(("str.count", "str.find", "str.index", "str.partition", "str.replace", "str.split"), _searched)
_WORK |= dict.fromkeys(("str.rfind", "str.rindex", "str.rpartition", "str.rsplit"), _searched_backwards)
_WORK |= dict.fromkeys(("str.lstrip", "str.rstrip", "str.strip"), _trimmed)


# How long the result of an operation can get, for those whose result can be longer than what goes in.


def _replaced(text: Any, /, old: Any, new: Any, count: Any = None) -> int:
    return len(str(text)) + str(text).count(str(old)) * len(str(new))


def _indented(text: str, /, width: Any = 4, first: Any = False, blank: Any = False) -> int:
    return len(text) + _lines(text) * (len(width) if isinstance(width, str) else width)


def _wrapped(text: str, /, width: int = 79, *more: Any, wrapstring: Any = None, **_: Any) -> int:
    between = wrapstring or (more[1] if len(more) > 1 else None) or "\n"
    return len(text) + (2 * len(text) // max(width, 1) + _lines(text)) * len(between)


def _with_links(value: Any, /, *attributes: Any, **named: Any) -> int:
    text = str(value)
    return len(text) + (text.count(" ") + _lines(text)) * measure(*attributes, *named.values()).as_text


def _lines(text: str) -> int:
    return sum(map(text.count, _LINE_ENDS)) + 1


def _joined(values: Any, /, d: Any = "", attribute: Any = None) -> int:
    return measure(values).as_text + len(values) * len(str(d))


def _percent_formatted(value: Any, /, *args: Any, **kwargs: Any) -> int:
    text = str(value)
    bounded_parts(text.count("%"))
    if _ODD_KEY.search(text):
        raise LimitExceeded("a format key of more than 100 characters or with brackets")
    widths = [width for found in _PERCENT.finditer(text) for width in found.groups() if width]
    repeats = text.count("%") if kwargs or any(isinstance(value, Mapping) for value in args) else 1
    return len(text) + _widest(widths) + repeats * measure(*args, *kwargs.values()).as_text


def _brace_formatted(text: str, /, *args: Any, **kwargs: Any) -> int:
    bounded_parts(text.count("{"))
    fields = [(name, specification or "") for _, name, specification, _ in Formatter().parse(text) if name is not None]
    widths = [width for _, specification in fields for width in _WIDTH.findall(specification)]
    lookups = sum(name.count(".") + name.count("[") for name, _ in fields)
    return len(text) + _widest(widths) + lookups * 800 + len(fields) * measure(*args, *kwargs.values()).as_text


def _widest(widths: list[str]) -> int:
    """The sum of field widths; one that is itself an argument (`*`, `{}`) could be anything."""
    return sum(int(width) if width.isdecimal() and len(width) < 9 else MAX_CHARACTERS + 1 for width in widths)


_PERCENT = re.compile(r"%(?:\([^()]*\))?[#0\- +]*(\*|\d+)?(?:\.(\*|\d+))?")
_ODD_KEY = re.compile(r"%\((?![^()]{0,100}\))")
_WIDTH = re.compile(r"\d+|\{")


def _as_json(value: Any, /, indent: Any = None) -> int:
    """A character can take twelve, and each part a line as far in as it is deep."""
    width = len(indent) if isinstance(indent, str) else indent or 0
    size = measure(value)
    return 3 * size.as_text + size.parts * width * _depth(value)


def _rounded(number: Any, /, precision: int = 0, method: Any = "common") -> int:
    """It makes 10 ** precision."""
    return abs(precision) * 4000


def _batched(values: Any, /, linecount: int, fill_with: Any = None) -> int:
    return linecount * 8


def _sliced(values: Any, /, slices: int, fill_with: Any = None) -> int:
    return slices * 64


def _as_wide(text: Any, /, width: int = 80, fillchar: str = " ") -> int:
    return width


def _expanded(text: str, /, tabsize: int = 8) -> int:
    return len(text) + text.count("\t") * tabsize


_GROWTH: dict[str, Callable[..., int]] = {
    "batch": _batched,
    "center": _as_wide,
    "format": _percent_formatted,
    "indent": _indented,
    "join": _joined,
    "replace": _replaced,
    "round": _rounded,
    "slice": _sliced,
    "tojson": _as_json,
    "urlize": _with_links,
    "wordwrap": _wrapped,
    "str.expandtabs": _expanded,
    "str.format": _brace_formatted,
    "str.format_map": _brace_formatted,
    "str.join": lambda separator, values: _joined(values, separator),
    "str.replace": _replaced,
}
_GROWTH |= dict.fromkeys(("str.center", "str.ljust", "str.rjust", "str.zfill"), _as_wide)


# Operators that can grow a value; what a text takes is paid for when it is made.


def operator_price(operator: str, left: Any, right: Any) -> int:
    return _OPERATORS[operator](left, right)


def _plus(left: Any, right: Any) -> int:
    if isinstance(left, int) and isinstance(right, int):
        bounded_bits(max(left.bit_length(), right.bit_length()) + 1)
    elif isinstance(left, str) and isinstance(right, str):
        bounded(len(left) + len(right))
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return bounded_parts(len(left) + len(right)) // 4
    return 0


def _times(left: Any, right: Any) -> int:
    if isinstance(left, int) and isinstance(right, int):
        bounded_bits(left.bit_length() + right.bit_length())
    for sequence, number in ((left, right), (right, left)):
        if isinstance(sequence, str) and isinstance(number, int):
            bounded(len(sequence) * number)
        elif isinstance(sequence, list | tuple) and isinstance(number, int):
            return bounded_parts(len(sequence) * number) // 4
    return 0


def _power(left: Any, right: Any) -> int:
    if isinstance(left, int) and isinstance(right, int):
        bounded_bits(left.bit_length() * right)
    return 0


def _percent(left: Any, right: Any) -> int:
    if isinstance(left, str):
        bounded(_percent_formatted(left, right))
        return measure(right).steps
    return 0


_OPERATORS: dict[str, Callable[[Any, Any], int]] = {
    "+": _plus,
    "-": _plus,
    "*": _times,
    "**": _power,
    "%": _percent,
}
