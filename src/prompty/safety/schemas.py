"""JSON Schema validators, and regular expressions from outside.

Schemas come from prompts, test files, OpenAPI documents and MCP servers. By default `jsonschema_rs` reads the files and
calls the servers that a schema refers to. The validators of this module refuse to, so no other module builds any.

Its regular expressions are those of JSON Schema (ECMA 262). They take linear time, except for lookarounds and
backreferences, which have a limit of steps. Python's `re` has no limit, so no pattern from outside goes there. A step
can read the whole text, so a long text can still take long: with `((?=a*)a)*b`, 2,000 letters take several seconds.
"""

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

from prompty.safety.visible import visible

if TYPE_CHECKING:
    import jsonschema_rs

_DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
_MAX_SHOWN = 300
_MAX_STEPS = 1_000_000  # of a regular expression that backtracks; a search takes at least one for each character
# Python's syntax that ECMA 262 does not have, and what to write instead.
_IN_PYTHON_ONLY = {
    r"\Z": "`$`",
    "(?P=": r"`\1`",
    "{,": "`{0,`",
    "(?#": "no comment",
    "(?>": "`(?:`",
    r"\N{": "the character itself",
}


class Validator(Protocol):
    """Validates values against one JSON Schema."""

    def is_valid(self, value: object, /) -> bool: ...
    def validate(self, value: object, /) -> None: ...
    def iter_errors(self, value: object, /) -> "Iterator[jsonschema_rs.ValidationError]": ...


@lru_cache(maxsize=512)  # building one costs more than using it
def get_validator(schema: str) -> Validator:
    """Return the validator for a JSON Schema, written as JSON.

    Raise `ValueError` if it is invalid or refers to anything outside. The error names the place in the schema, but
    quotes no value.
    """
    try:
        return _build(schema)
    except ValueError:
        raise ValueError(_explain(schema)) from None


def _build(schema: str, mask: str | None = None) -> Validator:
    import jsonschema_rs  # a call without tools needs neither its 3 MB nor its 12 ms

    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_STEPS)
    return cast(
        Validator,
        jsonschema_rs.validator_for(schema, retriever=_refuse_reference, mask=mask, pattern_options=patterns),
    )


def _refuse_reference(reference: str) -> NoReturn:
    """Refuse to read files or call servers for a schema."""
    raise ValueError(f"it refers to {reference[:200]}, outside the schema")


def _explain(schema: str) -> str:
    """Return the reason why a schema cannot be used. The validator built here has a word for each value it quotes."""
    try:
        _build(schema, mask="the value")
    except ValueError as error:
        message = str(getattr(error, "message", error)).rpartition("failed: ValueError: ")[2].partition("\n")[0]
        path = ".".join(map(str, getattr(error, "instance_path", ())))
        return visible(f"{path}: {message}" if path else message)[:_MAX_SHOWN]
    return "it cannot be read"


def is_legal(schema: Mapping[str, Any]) -> bool:
    """Return True for legal JSON Schema 2020-12, whichever version its own `$schema` names."""
    import jsonschema_rs  # as above

    return jsonschema_rs.meta.is_valid({**schema, "$schema": _DRAFT_2020_12})


@lru_cache(maxsize=2048)
def is_pattern(text: str) -> bool:
    """Return True for a regular expression that validators support."""
    try:
        _build(json.dumps({"pattern": text}))
    except ValueError:
        return False
    return True


def find_pattern_problem(text: str) -> tuple[str, str] | None:
    """Return what is wrong with a regular expression and how to correct it, or None."""
    if is_pattern(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        return f"the regular expression is invalid: {error}", "Correct it, and quote it with '…'."
    cause = "the regular expression is Python's, not one of JSON Schema (ECMA 262)"
    for syntax, other in _IN_PYTHON_ONLY.items():
        if syntax in text:
            return f"{cause}: it has `{syntax}`", f"Write {other} instead."
    return (
        f"{cause}, or it is too large",
        "Escape each literal brace as `\\{`, and write flags as `(?i)`, `(?m)`, `(?s)` or `(?x)`.",
    )


def search(pattern: str, text: str) -> bool:
    """Return True if a regular expression matches somewhere in a text. Raise `ValueError` if that takes too long."""
    error = next(get_validator(json.dumps({"pattern": pattern})).iter_errors(text), None)
    if error is not None and type(error.kind).__name__ != "Pattern":
        raise ValueError(f"the regular expression takes more than {_MAX_STEPS:,} steps on this text")
    return error is None
