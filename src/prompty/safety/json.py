"""JSON reader: strict for text from models and users, fast for bytes from a server, of any depth for traces.

Every function raises `ValueError` with the reason.
"""

import json
import re
from collections import Counter
from math import isinf
from typing import Any, NoReturn

from pydantic_core import from_json

MAX_JSON_CHARACTERS = 4_000_000
MAX_CONTAINERS = 200_000  # objects and lists from outside: an empty one of 3 bytes takes up to 80 in memory
MAX_STRINGS = 1_000_000  # texts and names from outside; each takes 50 bytes and more
MAX_VALUES = 10_000_000  # from outside; the numbers of embeddings are the most in use
MAX_JSON_DEPTH = 500  # of what recursive code sees: Python's own limit depends on its release


class TooDeep(ValueError):
    """The JSON is nested deeper than recursive code can follow."""


class TooManyValues(ValueError):
    """JSON from outside would take far more memory than its text."""


def check_size(data: bytes) -> None:
    """Raise `TooManyValues` for JSON that would become too many values. Call it before parsing what a stranger sent.

    A few kilobytes of compressed JSON can become gigabytes of objects. Counting is at least ten times as fast as
    parsing. Brackets, quotes and commas inside a text count as well, because to find texts is to parse.
    """
    if len(data) <= MAX_CONTAINERS:
        return
    if data.count(b"{") + data.count(b"[") > MAX_CONTAINERS:
        raise TooManyValues(f"more than {MAX_CONTAINERS:,} objects and lists")
    if data.count(b'"') > 2 * MAX_STRINGS:
        raise TooManyValues(f"more than {MAX_STRINGS:,} texts and names")
    if data.count(b",") > MAX_VALUES:
        raise TooManyValues(f"more than {MAX_VALUES:,} values")


def read_json(data: str | bytes, *, strict: bool = True, unique: bool = True) -> object:
    """Parse JSON. `strict` rejects texts that are too long, duplicate keys, and numbers that JSON does not have.

    Unless keys must be `unique`, the last of several with the same name wins.
    """
    if strict and len(data) > MAX_JSON_CHARACTERS:
        raise ValueError(f"more than {MAX_JSON_CHARACTERS:,} characters of JSON")
    value: object
    try:
        if strict:
            decoder = _STRICT if unique else _REPEATING
            text = data if isinstance(data, str) else data.decode()
            return _check_depth(text, decoder.decode(text))
        try:
            value = from_json(data)  # six times as fast as `json`
        except (TypeError, ValueError):
            value = json.loads(data)  # also accepts a lone surrogate, a byte order mark and deeper nesting
            _check_depth(data, value)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise TooDeep("nested too deep") from None
    return value


def _check_depth(data: str | bytes, value: object) -> object:
    """Return a parsed value, or raise TooDeep."""
    brackets = data.count("[") + data.count("{") if isinstance(data, str) else data.count(b"[") + data.count(b"{")
    if brackets > MAX_JSON_DEPTH and is_deeper(value, MAX_JSON_DEPTH):
        raise TooDeep("nested too deep")
    return value


def copy_json(value: Any) -> Any:
    """Return a copy of the lists and dicts of a value. Other objects in it are shared."""
    if isinstance(value, dict):
        return {name: copy_json(entry) for name, entry in value.items()}
    return [copy_json(entry) for entry in value] if isinstance(value, list) else value


def is_deeper(value: object, levels: int) -> bool:
    """Return True if containers are nested deeper than this many levels."""
    layer = [value]
    for _ in range(levels):
        if not layer:
            return False
        layer = [
            inner
            for entry in layer
            if isinstance(entry, dict | list)
            for inner in (entry.values() if isinstance(entry, dict) else entry)
        ]
    return any(isinstance(entry, dict | list) for entry in layer)


def get_depth(value: object) -> int:
    """Return how many levels of containers a value has."""
    levels, layer = 0, [value]
    while layer := [entry for entry in layer if isinstance(entry, dict | list)]:
        levels += 1
        layer = [inner for entry in layer for inner in (entry.values() if isinstance(entry, dict) else entry)]
    return levels


def is_larger(value: object, limit: int) -> bool:
    """Return True if a value contains more than this many values. A hundred characters count as one."""
    unseen = [value]
    while unseen:
        entry = unseen.pop()
        limit -= len(entry) // 100 if isinstance(entry, str) else len(entry) if isinstance(entry, dict | list) else 0
        if limit < 0:
            return True
        if isinstance(entry, dict | list):
            unseen += entry.values() if isinstance(entry, dict) else entry
    return False


def is_json_object(text: str) -> bool:
    """Return True if `text` is a whole JSON object."""
    try:
        return isinstance(from_json(text, allow_inf_nan=False), dict)
    except (TypeError, ValueError):  # a TypeError for a lone surrogate
        return False


def reject_constant(name: str) -> NoReturn:
    """Reject NaN and Infinity, which Python accepts and JSON does not have."""
    raise ValueError(f"{name} is not JSON")


def _read_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        names = Counter(name for name, _ in pairs)
        duplicate = next(name for name, count in names.items() if count > 1)
        raise ValueError(f"duplicate key {duplicate[:100]!r}")
    return entries


def _read_finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


# Creating a decoder takes longer than parsing a call's arguments with it.
_STRICT = json.JSONDecoder(object_pairs_hook=_read_object, parse_constant=reject_constant, parse_float=_read_finite)
_REPEATING = json.JSONDecoder(parse_constant=reject_constant, parse_float=_read_finite)


def read_deep_json(data: str | bytes) -> object:
    """Parse JSON of any depth: a trace of nested agents can be deeper than Python's stack."""
    try:
        return read_json(data, strict=False)
    except TooDeep:
        return _read_without_recursion(data if isinstance(data, str) else data.decode())


# Strings, brackets, and everything between them; a lone quote starts a string that does not end.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]|[^"\[\]{}]+|"', re.DOTALL)
_CHILD = "-Infinity"  # placeholder for a parsed container; not valid JSON


def _read_without_recursion(text: str) -> object:
    """Parse containers from the inside out: each is flat JSON with `_CHILD` in place of inner containers."""
    stack: list[tuple[list[str], list[object]]] = [([], [])]
    for token in _TOKEN.findall(text):
        if token in ("[", "{"):
            stack.append(([], []))
        elif _CHILD in token and not token.startswith('"'):
            reject_constant(_CHILD)
        stack[-1][0].append(token)
        if token in ("]", "}"):
            value = _read_flat(*stack.pop())
            stack[-1][0].append(_CHILD)
            stack[-1][1].append(value)
    if len(stack) > 1:
        raise ValueError("the JSON is incomplete")
    return _read_flat(*stack[0])


def _read_flat(tokens: list[str], children: list[object]) -> object:
    unread = iter(children)
    value: object = json.loads(
        "".join(tokens), parse_constant=lambda name: next(unread) if name == _CHILD else float(name)
    )
    return value


def repair_text(text: str) -> str:
    """Replace every lone surrogate with the replacement character. The halves of a pair are joined."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def repair_json(value: Any) -> Any:
    """Repair all texts and names in JSON."""
    if isinstance(value, str):
        return repair_text(value)
    if isinstance(value, list | tuple):
        return [repair_json(entry) for entry in value]
    if isinstance(value, dict):
        return {repair_json(name): repair_json(entry) for name, entry in value.items()}
    return value


def may_have_surrogates(source: str) -> bool:
    """Return True if JSON source has an escaped surrogate, alone or in a pair."""
    return "\\" in source and ("\\ud" in source or "\\uD" in source)
