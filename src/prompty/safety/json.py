"""JSON reader: strict for text of models and people, fast for bytes of a server, of any depth for traces.

Every function raises `ValueError` with the reason.
"""

import json
import re
from dataclasses import dataclass, field
from math import isinf
from typing import NoReturn

from pydantic_core import from_json

MAX_CHARACTERS = 4_000_000


class TooDeep(ValueError):
    """The JSON is nested deeper than Python's stack."""


def read_json(data: str | bytes, *, strict: bool = True) -> object:
    """Parse JSON. `strict` refuses texts that are too long, duplicate keys, and numbers that JSON does not have."""
    if strict and len(data) > MAX_CHARACTERS:
        raise ValueError(f"more than {MAX_CHARACTERS:,} characters of JSON")
    value: object
    try:
        if strict:
            return _STRICT.decode(data if isinstance(data, str) else data.decode())
        try:
            value = from_json(data)  # a sixth of the time of `json`
        except ValueError:
            value = json.loads(data)  # also reads half a surrogate pair, a byte order mark and deeper nesting
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise TooDeep("nested too deep") from None
    return value


def is_json_object(text: str) -> bool:
    """Return True if `text` is a whole JSON object."""
    try:
        return isinstance(from_json(text, allow_inf_nan=False), dict)
    except ValueError:
        return False


def reject_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(f"{name} is not JSON")


def _read_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in entries if names.count(name) > 1)
        raise ValueError(f"duplicate key {duplicate[:100]!r}")
    return entries


def _read_finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


# Making a decoder takes longer than reading the arguments of a call with it.
_STRICT = json.JSONDecoder(object_pairs_hook=_read_object, parse_constant=reject_constant, parse_float=_read_finite)


def read_deep_json(data: str | bytes) -> object:
    """Parse JSON of any depth: a trace of nested agents can be deeper than Python's stack."""
    try:
        return read_json(data, strict=False)
    except TooDeep:
        return _read_without_recursion(data if isinstance(data, str) else data.decode())


# Brackets and separators, strings, other scalars; a lone quote starts a string that does not end.
_SYMBOL = re.compile(r'[{}\[\],:]|"[^"\\]*(?:\\.[^"\\]*)*"|[^\s{}\[\],:"]+|"', re.DOTALL)
_CLOSING = {"[": "]", "{": "}"}


def _read_without_recursion(text: str) -> object:
    document = _Container("")
    stack = [document]
    for match in _SYMBOL.finditer(text):
        symbol = match[0]
        if symbol in _CLOSING:
            stack.append(_Container(symbol))
        elif symbol in ",:":
            stack[-1].separate(symbol)
        elif symbol in "]}":
            value = stack.pop().close(symbol)
            stack[-1].add(value)
        else:
            stack[-1].add(json.loads(symbol))
    if len(stack) > 1 or len(document.items) != 1 or document.separators:
        raise ValueError("the JSON ends too early")
    return document.items[0]


@dataclass(slots=True)
class _Container:
    """An array, an object (keys and values in turn), or the document itself, which has no bracket."""

    bracket: str
    items: list[object] = field(default_factory=list)
    separators: int = 0

    def add(self, value: object) -> None:
        is_key = self.bracket == "{" and len(self.items) % 2 == 0
        if len(self.items) != self.separators or (is_key and not isinstance(value, str)):
            raise ValueError("the JSON has a value in the wrong place")
        self.items.append(value)

    def separate(self, symbol: str) -> None:
        expected = ":" if self.bracket == "{" and len(self.items) % 2 else ","
        if symbol != expected or len(self.items) != self.separators + 1:
            raise ValueError(f"the JSON has a '{symbol}' in the wrong place")
        self.separators += 1

    def close(self, symbol: str) -> object:
        complete = len(self.items) == (self.separators + 1 if self.items else self.separators)
        if symbol != _CLOSING.get(self.bracket) or not complete or (self.bracket == "{" and len(self.items) % 2):
            raise ValueError(f"the JSON has a '{symbol}' in the wrong place")
        return self.items if self.bracket == "[" else dict(zip(self.items[::2], self.items[1::2], strict=True))
