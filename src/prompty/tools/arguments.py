"""The arguments of a tool call: JSON text, as the model wrote it, into a dict."""

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NoReturn, Protocol, cast

import jsonschema_rs

from prompty.errors import ArgumentsError
from prompty.model.message import Json
from prompty.safety.json import read_json

_FENCE = "```"
_MOST_PROBLEMS = 5
_LONGEST_PROBLEM = 300


def parse_arguments(text: str) -> dict[str, object]:
    """Read a call's arguments: a JSON object, bare or inside one code fence. Anything else is an error."""
    body = _without_fence(text.strip())
    if not body:
        return {}
    try:
        arguments = read_json(body)
    except ValueError as error:
        raise ArgumentsError(f"the arguments are not valid JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise ArgumentsError("the arguments are not a JSON object; write them as {'name': value}")
    return cast(dict[str, object], arguments)


class Validator(Protocol):
    """Checks a value against a JSON Schema."""

    def is_valid(self, value: object, /) -> bool: ...
    def iter_errors(self, value: object, /) -> Iterator[jsonschema_rs.ValidationError]: ...


def validator_of(schema: Json) -> Validator:
    """A validator of a JSON Schema."""
    return _validator(json.dumps(schema))


@lru_cache(maxsize=512)  # building one costs more than using it
def _validator(schema: str) -> Validator:
    return cast(Validator, jsonschema_rs.validator_for(schema, retriever=_refuse))


def _refuse(reference: str) -> NoReturn:
    """A schema from outside must not make us read files or call servers."""
    raise ValueError(f"it refers to {reference[:200]}, outside of itself")


def final_arguments(text: str, bound: Iterable[str], validator: Validator) -> Json:
    """The arguments of a call as a tool may have them: read, without what is bound, and checked (L4)."""
    arguments = parse_arguments(text)
    for name in bound:
        arguments.pop(name, None)
    check_arguments(arguments, validator)
    return arguments


def check_arguments(arguments: Json, validator: Validator) -> None:
    """Raise what is wrong with arguments, in words."""
    if not validator.is_valid(arguments):
        raise ArgumentsError("; ".join(_problems(arguments, validator)))


def misfits(value: object, schema: Json) -> list[str]:
    """What is wrong with a value by a JSON Schema, in words."""
    validator = validator_of(schema)
    return [] if validator.is_valid(value) else _problems(value, validator)


def _problems(value: object, validator: Validator) -> list[str]:
    return [_told(error) for error in validator.iter_errors(value)][:_MOST_PROBLEMS]


def _told(error: jsonschema_rs.ValidationError) -> str:
    place = ".".join(map(str, error.instance_path)) or "value"
    message = error.message if len(error.message) <= _LONGEST_PROBLEM else f"{error.message[:_LONGEST_PROBLEM]}…"
    return f"{place}: {message}"


def _without_fence(text: str) -> str:
    """Remove one surrounding code fence with its language word; scans the text once."""
    if not text.startswith(_FENCE) or not text.endswith(_FENCE) or len(text) < 2 * len(_FENCE):
        return text
    first_line, newline, rest = text[: -len(_FENCE)].partition("\n")
    word = first_line.removeprefix(_FENCE).strip()
    return rest.strip() if newline and (not word or word.isalnum()) else text
