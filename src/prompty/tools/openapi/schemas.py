"""Convert OpenAPI schemas to JSON Schema 2020-12, and names and descriptions to forms that model APIs accept.

OpenAPI 3.0 has its own dialect (`nullable`, `exclusiveMinimum: true`, references without siblings); 3.1 is JSON Schema.
Both give the same result, without keywords that do not constrain a value.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import jsonschema_rs

from prompty.model.message import Json
from prompty.safety.visible import visible
from prompty.tools.openapi.document import ApiDocument

MAX_DESCRIPTION_LENGTH = 1_000
MAX_FUNCTION_NAME = 64
_NOT_IN_FUNCTIONS = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_IN_ARGUMENTS = re.compile(r"[^A-Za-z0-9_.-]+")
_SCHEMA_KEYWORDS = frozenset(
    {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_LIST_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAPPING_KEYWORDS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_COPIED_KEYWORDS = frozenset(
    {"type", "enum", "const", "default", "format", "deprecated", "contentEncoding", "contentMediaType"}
    | {"multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength"}
    | {"maxItems", "minItems", "uniqueItems", "maxContains", "minContains"}
    | {"maxProperties", "minProperties", "dependentRequired"}
)
_BESIDE_REFERENCES = frozenset({"$ref", "description", "nullable"})
_DROPPED = object()


def clean_description(text: object) -> str:
    """Escape hidden characters in a description, and truncate it. Return "" if it is not text."""
    if not isinstance(text, str):
        return ""
    cleaned = visible(text[: MAX_DESCRIPTION_LENGTH + 1].replace("\r\n", "\n").strip())
    return cleaned if len(cleaned) <= MAX_DESCRIPTION_LENGTH else f"{cleaned[: MAX_DESCRIPTION_LENGTH - 1]}…"


def function_name(text: str) -> str:
    """Return a name that every API accepts for a function."""
    return _NOT_IN_FUNCTIONS.sub("_", text).strip("_")[:MAX_FUNCTION_NAME] or "operation"


def argument_name(text: str) -> str:
    """Return a name that every API accepts for an argument: `page[size]` becomes `page_size`."""
    if text and len(text) <= MAX_FUNCTION_NAME and not _NOT_IN_ARGUMENTS.search(text):
        return text
    return _NOT_IN_ARGUMENTS.sub("_", text).strip("_")[:MAX_FUNCTION_NAME] or "value"


def make_unique(name: str, taken: set[str]) -> str:
    """Return the name, with a number if it is taken, and add it to `taken`."""
    unique, number = name, 1
    while unique in taken:
        number += 1
        suffix = f"_{number}"
        unique = name[: MAX_FUNCTION_NAME - len(suffix)] + suffix
    taken.add(unique)
    return unique


class Schemas:
    """The schemas of one document. A shared definition is converted once."""

    def __init__(self, document: ApiDocument) -> None:
        self._document = document
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._definitions: dict[str, Any] = {}
        self._references: dict[str, set[str]] = {}
        self._enclosing: str | None = None

    def convert(self, schema: object, references: set[str]) -> Any:
        """Return a schema as JSON Schema, and add the references in it to `references`."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            self._document.refuse(f"expected a schema, found {str(schema)[:100]!r}", "Correct it")
        if "$recursiveRef" in schema or "$dynamicRef" in schema:
            schema = {**schema, "$ref": self._resolve_dynamic(schema)}
        if "$ref" in schema and self._document.ignores_reference_siblings:
            schema = {keyword: value for keyword, value in schema.items() if keyword in _BESIDE_REFERENCES}
        values = {keyword: self._convert_value(keyword, value, references) for keyword, value in schema.items()}
        converted = {keyword: value for keyword, value in values.items() if value is not _DROPPED}
        if required := required_properties(schema):
            converted["required"] = required
        converted = _convert_bounds(converted)
        return _add_null(converted) if schema.get("nullable") is True else converted

    def collect_definitions(self, references: Iterable[str]) -> Json:
        """Return the definitions that references reach, transitively."""
        definitions: Json = {}
        pending = list(references)
        while pending:
            reference = pending.pop()
            if self._names[reference] not in definitions:
                definitions[self._names[reference]] = self._define(reference)
                pending.extend(self._references[reference])
        return dict(sorted(definitions.items()))

    def _define(self, reference: str) -> Any:
        if reference not in self._definitions:
            self._references[reference] = set()
            self._enclosing = reference
            self._definitions[reference] = self.convert(self._document.find(reference), self._references[reference])
            self._enclosing = None
        return self._definitions[reference]

    def _resolve_dynamic(self, schema: Json) -> str:
        """Return the enclosing definition: a dynamic reference means that, unless a schema extends it."""
        root = self._document.find(self._enclosing) if self._enclosing else None
        anchor = root.get("$dynamicAnchor") if isinstance(root, dict) else None
        target = schema.get("$recursiveRef", schema.get("$dynamicRef"))
        if self._enclosing is None or target not in ("#", f"#{anchor}"):
            self._document.refuse("a schema has a dynamic reference without a target", "Write a plain `$ref`")
        return self._enclosing

    def _convert_reference(self, reference: object, references: set[str]) -> str:
        self._document.find(reference)  # raises if it has no target
        text = str(reference)
        if text not in self._names:
            plain = text.removeprefix("#/components/schemas/").removeprefix("#/")
            self._names[text] = make_unique(argument_name(plain.replace("~1", "_")), self._taken)
        references.add(text)
        return f"#/$defs/{self._names[text]}"

    def _convert_value(self, keyword: str, value: Any, references: set[str]) -> Any:
        if keyword in _COPIED_KEYWORDS:
            return value
        if keyword in _SCHEMA_KEYWORDS:
            return self.convert(value, references)
        if keyword in _LIST_KEYWORDS and isinstance(value, list):
            return [self.convert(entry, references) for entry in value]
        if keyword in _MAPPING_KEYWORDS and isinstance(value, dict):
            return {name: self.convert(entry, references) for name, entry in value.items() if not is_read_only(entry)}
        match keyword:
            case "$ref":
                return self._convert_reference(value, references)
            case "description":
                return clean_description(value) or _DROPPED
            case "pattern" if isinstance(value, str) and _is_pattern(value):
                return value
        return _DROPPED


def is_read_only(schema: object) -> bool:
    """Return True for a property that is only in responses."""
    return isinstance(schema, dict) and schema.get("readOnly") is True


def required_properties(schema: Json) -> list[str]:
    """Return the properties that a request must have."""
    required, properties = schema.get("required"), schema.get("properties")
    declared = properties if isinstance(properties, dict) else {}
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return [name for name in dict.fromkeys(names) if not is_read_only(declared.get(name))]


@lru_cache(maxsize=2048)
def _is_pattern(text: str) -> bool:
    """Return True for a regular expression that the argument validator supports."""
    try:
        jsonschema_rs.validator_for({"pattern": text})
    except ValueError:
        return False
    return True


def is_legal(schema: Json) -> bool:
    """Return True for legal JSON Schema 2020-12."""
    return jsonschema_rs.meta.is_valid({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def _convert_bounds(schema: Json) -> Json:
    """Convert `exclusiveMinimum: true` with `minimum: 1` to `exclusiveMinimum: 1`, and the same for maxima."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)
    return schema


def _add_null(schema: Json) -> Json:
    """Return a schema that also accepts null."""
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
