"""Schemas of OpenAPI as JSON Schema 2020-12, with the definitions they need.

OpenAPI 3.0 has a dialect of its own (`nullable`, `exclusiveMinimum: true`, references that stand alone); 3.1 is JSON
Schema. Both come out the same, without what says nothing about a value.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import jsonschema_rs

from prompty.model.message import Json
from prompty.tools.openapi.document import Document
from prompty.tools.openapi.wording import argument_name, clean_description, numbered

_ONE = frozenset(
    [
        "items",
        "additionalProperties",
        "not",
        "if",
        "then",
        "else",
        "contains",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
_SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
_KEPT = frozenset(
    [
        "type",
        "enum",
        "const",
        "default",
        "format",
        "multipleOf",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "maxItems",
        "minItems",
        "uniqueItems",
        "maxContains",
        "minContains",
        "maxProperties",
        "minProperties",
        "dependentRequired",
        "deprecated",
        "contentEncoding",
        "contentMediaType",
    ]
)
_BESIDE_REFERENCES = frozenset({"$ref", "description", "nullable"})
_DROPPED = object()
_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


class Schemas:
    """The schemas of one document; what several of them refer to is converted once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._definitions: dict[str, Any] = {}
        self._needs: dict[str, set[str]] = {}
        self._inside: str | None = None

    def converted(self, schema: object, needs: set[str]) -> Any:
        """A schema in our dialect; the references that it needs are added to `needs`."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            self._document.refuse(f"a schema is expected in place of {str(schema)[:100]!r}", "Correct it")
        if "$recursiveRef" in schema or "$dynamicRef" in schema:
            schema = {**schema, "$ref": self._enclosing(schema)}
        if "$ref" in schema and self._document.refers_alone:
            schema = {keyword: value for keyword, value in schema.items() if keyword in _BESIDE_REFERENCES}
        kept = {keyword: self._value(keyword, value, needs) for keyword, value in schema.items()}
        kept = {keyword: value for keyword, value in kept.items() if value is not _DROPPED}
        if required := required_of(schema):
            kept["required"] = required
        return _with_null(_with_bounds(kept)) if schema.get("nullable") is True else _with_bounds(kept)

    def definitions(self, needs: Iterable[str]) -> Json:
        """The definitions behind references, and behind theirs."""
        found: Json = {}
        waiting = list(needs)
        while waiting:
            reference = waiting.pop()
            if self._names[reference] not in found:
                found[self._names[reference]] = self._definition(reference)
                waiting.extend(self._needs[reference])
        return dict(sorted(found.items()))

    def _definition(self, reference: str) -> Any:
        if reference not in self._definitions:
            self._needs[reference] = set()
            self._inside = reference
            self._definitions[reference] = self.converted(self._document.at(reference), self._needs[reference])
            self._inside = None
        return self._definitions[reference]

    def _enclosing(self, schema: Json) -> str:
        """What a dynamic reference means where nobody extends the schema: the definition that it stands in."""
        root = self._document.at(self._inside) if self._inside else None
        anchor = root.get("$dynamicAnchor") if isinstance(root, dict) else None
        wanted = schema.get("$recursiveRef", schema.get("$dynamicRef"))
        if self._inside is None or wanted not in ("#", f"#{anchor}"):
            self._document.refuse("a schema has a dynamic reference that leads nowhere", "Write a plain `$ref`")
        return self._inside

    def _reference(self, reference: object, needs: set[str]) -> str:
        self._document.at(reference)  # says what is wrong with it
        text = str(reference)
        if text not in self._names:
            plain = text.removeprefix("#/components/schemas/").removeprefix("#/")
            self._names[text] = numbered(argument_name(plain.replace("~1", "_")), self._taken)
        needs.add(text)
        return f"#/$defs/{self._names[text]}"

    def _value(self, keyword: str, value: Any, needs: set[str]) -> Any:
        """The value of a keyword, if it is one that we keep."""
        if keyword in _KEPT:
            return value
        if keyword in _ONE:
            return self.converted(value, needs)
        if keyword in _SEVERAL and isinstance(value, list):
            return [self.converted(one, needs) for one in value]
        if keyword in _NAMED and isinstance(value, dict):
            return {name: self.converted(one, needs) for name, one in value.items() if not is_read_only(one)}
        match keyword:
            case "$ref":
                return self._reference(value, needs)
            case "description":
                return clean_description(value) or _DROPPED
            case "pattern" if isinstance(value, str) and is_pattern(value):
                return value
        return _DROPPED


def is_read_only(schema: object) -> bool:
    """Whether a property is one that only answers have."""
    return isinstance(schema, dict) and schema.get("readOnly") is True


def required_of(schema: Json) -> list[str]:
    """The properties that a request must have."""
    required, properties = schema.get("required"), schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return [name for name in dict.fromkeys(names) if not is_read_only(known.get(name))]


@lru_cache(maxsize=2048)
def is_pattern(text: str) -> bool:
    """Whether it is a regular expression that the check of arguments knows."""
    try:
        jsonschema_rs.validator_for({"pattern": text})
    except ValueError:
        return False
    return True


def is_legal(schema: Json) -> bool:
    """Whether it is JSON Schema 2020-12."""
    return jsonschema_rs.meta.is_valid({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def _with_bounds(schema: Json) -> Json:
    """`exclusiveMinimum: true` makes the minimum an exclusive one."""
    for exclusive, bound in _BOUNDS:
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)
    return schema


def _with_null(schema: Json) -> Json:
    """What may be null besides."""
    values = schema.get("enum")
    if isinstance(values, list) and None not in values:
        schema = {**schema, "enum": [*values, None]}
    match schema.get("type"):
        case str(name):
            return {**schema, "type": [name, "null"]} if name != "null" else schema
        case list(names):
            return {**schema, "type": [*names, *(["null"] if "null" not in names else [])]}
    combined = schema.keys() & {"$ref", "allOf", "anyOf", "oneOf", "not"}
    return {"anyOf": [schema, {"type": "null"}]} if combined else schema
