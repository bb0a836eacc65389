"""JSON from outside, read without surprises: bounded, no NaN, no key twice, no bottomless nesting."""

import json
from math import isinf
from typing import NoReturn

MAX_CHARACTERS = 4_000_000
# The name under which text that should have been a JSON object is sent where only objects are taken.
INVALID_JSON = "INVALID_JSON"


def read_json(text: str) -> object:
    """Parse JSON text, or raise ValueError with the reason in words."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"more than {MAX_CHARACTERS:,} characters of JSON")
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def _no_key_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"the key {twice[:100]!r} stands twice")
    return found


def _finite_number(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Making one takes longer than reading the arguments of a call with it.
_DECODER = json.JSONDecoder(object_pairs_hook=_no_key_twice, parse_constant=_no_constant, parse_float=_finite_number)
