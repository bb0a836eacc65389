"""Properties to JSON Schema (§7.1.4)."""

from collections.abc import Iterable

from prompty.model.message import Json
from prompty.model.property import Property

# Rich kinds travel as text when a model writes them.
_TYPES = {"integer": "integer", "float": "number", "boolean": "boolean", "array": "array", "object": "object"}


def schema_of(properties: Iterable[Property], *, strict: bool = False) -> Json:
    """An object schema of these properties.

    Strict mode refuses an object whose properties are not all required and closed; one that the file calls
    optional (`required: false`) may then be null.
    """
    wanted = list(properties)
    schema: Json = {"type": "object", "properties": {one.name: _property_schema(one, strict) for one in wanted}}
    required = [one.name for one in wanted if strict or one.required]
    if required:
        schema["required"] = required
    if strict:
        schema["additionalProperties"] = False
    return schema


def _property_schema(one: Property, strict: bool) -> Json:
    schema: Json = _shape(one, strict)
    if one.description:
        schema["description"] = one.description
    if one.enum_values:
        schema["enum"] = list(one.enum_values)
    if strict and _may_be_missing(one):
        schema["type"] = [schema["type"], "null"]
        if one.enum_values:
            schema["enum"] = [*one.enum_values, None]
    return schema


def _shape(one: Property, strict: bool) -> Json:
    if one.kind == "object" and (one.properties or strict):
        return schema_of(one.properties, strict=strict)
    if one.kind == "array":
        return {"type": "array", "items": _items(one, strict)}
    return {"type": _TYPES.get(one.kind, "string")}


def _items(one: Property, strict: bool) -> Json:
    """What an array holds; APIs refuse one that does not say, and strict ones that do not say it by type."""
    if one.items is not None:
        return _property_schema(one.items, strict)
    return {"type": "string"} if strict else {}


def _may_be_missing(one: Property) -> bool:
    return "required" in one.model_fields_set and not one.required
