"""JSON Schema validators, and regular expressions from outside.

Schemas come from prompts, test files, OpenAPI documents and MCP servers. By default `jsonschema_rs` reads the files and
calls the servers that a schema refers to. The validators of this module refuse to, so no other module builds any.

Its regular expressions are those of JSON Schema (ECMA 262). They take linear time, except for lookarounds and
backreferences, which have a limit of steps. Python's `re` has no limit, so no pattern from outside goes there. A step
can read the whole text, so a long text can still take long: with `((?=a*)a)*b`, 2,000 letters take several seconds.

A schema of 2 KB whose parts refer to each other can expand to billions of subschemas. The validator holds the
interpreter while it goes through them, so no timeout would end it: what a schema expands to has a limit.
"""

import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote

from prompty.safety.json import get_depth
from prompty.safety.visible import visible

if TYPE_CHECKING:
    import jsonschema_rs

_DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
_MAX_SHOWN = 300
_MAX_SUBSCHEMAS = 10_000  # with references written out; the largest request of OpenAI's API has 2,700
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


# Keywords with one or more schemas, and those with a mapping of them.
_SUBSCHEMAS = {
    *("additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "else", "if", "items", "not", "oneOf"),
    *("prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
}
_NAMED_SUBSCHEMAS = {"dependencies", "dependentSchemas", "patternProperties", "properties"}
_REFERENCES = {"$ref", "$dynamicRef", "$recursiveRef"}


class Validator:
    """Validates values against one JSON Schema. `is_valid` takes time in proportion to the value and the schema.

    To list errors, the engine tries all alternatives at each level of the value again, so in a schema that refers to
    itself a few nested values would take hours.
    """

    def __init__(self, schema: str, engine: "jsonschema_rs.Validator") -> None:
        self._schema, self._engine = schema, engine
        self.is_valid: Callable[[object], bool] = engine.is_valid

    def iter_errors(self, value: object) -> "Iterator[jsonschema_rs.ValidationError]":
        """Return what is wrong with a value. Raise `ValueError` if that would take too long to find out."""
        _check_size(json.loads(self._schema), depth=get_depth(value))
        return self._engine.iter_errors(value)

    def validate(self, value: object) -> None:
        """Raise the first error, or `ValueError` if that would take too long to find out."""
        _check_size(json.loads(self._schema), depth=get_depth(value))
        self._engine.validate(value)


@lru_cache(maxsize=512)  # building one costs more than using it
def get_validator(schema: str) -> Validator:
    """Return the validator for a JSON Schema, written as JSON.

    Raise `ValueError` if it is invalid, expands to too much, or refers to anything outside. The error names the place
    in the schema, but quotes no value.
    """
    _check_size(json.loads(schema))
    try:
        return Validator(schema, _build(schema))
    except ValueError:
        raise ValueError(_explain(schema)) from None


def _build(schema: str, mask: str | None = None) -> "jsonschema_rs.Validator":
    import jsonschema_rs  # a call without tools needs neither its 3 MB nor its 12 ms

    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_STEPS)
    return jsonschema_rs.validator_for(schema, retriever=_refuse_reference, mask=mask, pattern_options=patterns)


def _check_size(schema: object, *, depth: int = 0) -> None:
    """Raise `ValueError` if a schema with its references written out has too many subschemas.

    A reference inside itself is written out again once for each level of a value's `depth`. Without one it is not,
    because `is_valid` remembers what it found there.
    """
    resources, anchors = _find_targets(schema)
    referenced: dict[str, list[object]] = {}
    pending = [schema]
    entered = {"#": 1}
    for _ in range(_MAX_SUBSCHEMAS):
        while pending and isinstance(reference := pending[-1], str):  # all that it refers to has been counted
            entered[reference] -= 1
            pending.pop()
        if not pending:
            return
        subschema = pending.pop()
        for key, value in subschema.items() if isinstance(subschema, dict) else ():
            if key in _SUBSCHEMAS:
                pending += value if isinstance(value, list) else [value]
            elif key in _NAMED_SUBSCHEMAS:
                pending += value.values() if isinstance(value, dict) else ()
            elif key in _REFERENCES and isinstance(value, str) and entered.get(value, 0) <= depth:
                if value not in referenced:
                    referenced[value] = list(_find_referenced(value, resources, anchors))
                entered[value] = entered.get(value, 0) + 1
                pending += [value, *referenced[value]]
    raise ValueError(f"it expands to more than {_MAX_SUBSCHEMAS:,} subschemas")


def _find_targets(schema: object) -> tuple[list[tuple[str, object]], dict[str, list[object]]]:
    """Return what references can name: the schema and its parts with a URI, by file name, and parts with an anchor."""
    resources = [("", schema)]
    anchors: dict[str, list[object]] = {}
    pending = [schema]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += value.values()
            for key in ("$id", "id", "$anchor", "$dynamicAnchor"):
                if isinstance(name := value.get(key), str):
                    if key.endswith("id") and not name.startswith("#"):
                        resources.append((_get_file_name(name), value))
                    else:
                        anchors.setdefault(name.lstrip("#"), []).append(value)
        elif isinstance(value, list):
            pending += value
    return resources, anchors


def _get_file_name(uri: str) -> str:
    return unquote(uri.partition("#")[0]).rpartition("/")[2]


def _find_referenced(
    reference: str, resources: list[tuple[str, object]], anchors: Mapping[str, list[object]]
) -> Iterator[object]:
    """Yield all that a reference can mean. Which one it is depends on the URIs of the parts around it."""
    pointer = unquote(reference.partition("#")[2])
    if pointer and not pointer.startswith("/"):
        yield from anchors.get(pointer, ())
        return
    file_name = _get_file_name(reference)
    for name, resource in resources:
        if file_name in (name, "", ".", ".."):
            target = resource
            for step in pointer.split("/")[1:]:
                key = step.replace("~1", "/").replace("~0", "~")
                if isinstance(target, list):
                    target = target[int(key)] if key.isdecimal() and int(key) < len(target) else None
                else:
                    target = target.get(key) if isinstance(target, dict) else None
            if isinstance(target, dict):
                yield target


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
