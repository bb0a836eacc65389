"""Generate values that fit a JSON Schema."""

import math
from collections.abc import Iterable
from typing import Any

JsonSchema = dict[str, Any]
MAX_DEPTH = 12  # below it a value is as small as its schema allows, so that a schema can name itself
_MAX_REFERENCES = 100  # in one chain
_TEXTS = {
    "date": "2026-01-02",
    "date-time": "2026-01-02T03:04:05Z",
    "time": "03:04:05Z",
    "duration": "P1D",
    "email": "ada@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def create_value(schema: object) -> Any:
    """Return a value that fits a schema. All properties are present. A `pattern` is not obeyed."""
    return _create(schema, schema, 0)


def _create(schema: object, root: object, depth: int) -> Any:
    if not isinstance(schema, dict):
        return "text"
    resolved = _resolve(schema, root)
    if "const" in resolved:
        return resolved["const"]
    if values := resolved.get("enum"):
        return values[0]
    for key in ("anyOf", "oneOf"):
        if choices := resolved.get(key):
            rest = {name: value for name, value in resolved.items() if name != key}
            return _create(_merge([_choose(choices, root, depth), rest]), root, depth + 1)
    match _find_type(resolved, depth):
        case "object":
            return _create_object(resolved, root, depth)
        case "array":
            return _create_array(resolved, root, depth)
        case "integer":
            return _create_number(resolved, step=resolved.get("multipleOf") or 1)
        case "number":
            return _create_number(resolved, step=resolved.get("multipleOf"))
        case "boolean":
            return True
        case "null":
            return None
    return _create_text(resolved)


def _resolve(schema: JsonSchema, root: object) -> JsonSchema:
    """Return a schema with what it refers to in its place."""
    for _ in range(_MAX_REFERENCES):
        if "$ref" in schema:
            target: Any = root
            for name in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
                target = target.get(name.replace("~1", "/").replace("~0", "~"), {}) if name else target
            schema = _merge([target, {name: value for name, value in schema.items() if name != "$ref"}])
        elif "allOf" in schema:
            schema = _merge([*schema["allOf"], {name: value for name, value in schema.items() if name != "allOf"}])
        else:
            break
    return schema


def _merge(schemas: Iterable[object]) -> JsonSchema:
    merged: JsonSchema = {}
    for schema in schemas:
        if isinstance(schema, dict):
            properties = {**merged.get("properties", {}), **schema.get("properties", {})}
            required = [*merged.get("required", []), *schema.get("required", [])]
            both = [*merged.get("allOf", []), *schema.get("allOf", [])]
            merged = {**merged, **schema}
            merged |= {"properties": properties} if properties else {}
            merged |= {"required": required} if required else {}
            merged |= {"allOf": both} if both else {}
    return merged


def _choose(choices: list[object], root: object, depth: int) -> object:
    """Return the first choice that is not null; for a deep value, null if it may be."""
    is_null = [isinstance(choice, dict) and _resolve(choice, root).get("type") == "null" for choice in choices]
    return next(
        (choice for choice, null in zip(choices, is_null, strict=True) if null == (depth > MAX_DEPTH)), choices[0]
    )


def _find_type(schema: JsonSchema, depth: int) -> str:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        wanted = "null" if depth > MAX_DEPTH and "null" in kinds else None
        return wanted or next((kind for kind in kinds if kind != "null"), "null")
    if isinstance(kinds, str):
        return kinds
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _create_object(schema: JsonSchema, root: object, depth: int) -> JsonSchema:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    names = required if depth > MAX_DEPTH else [*properties, *(name for name in required if name not in properties)]
    return {name: _create(properties.get(name, schema.get("additionalProperties")), root, depth + 1) for name in names}


def _create_array(schema: JsonSchema, root: object, depth: int) -> list[Any]:
    least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    fixed = schema.get("prefixItems", [])
    number = min(max(least, len(fixed), 0 if depth > MAX_DEPTH else 1), most)
    kinds = [*fixed, *[schema.get("items")] * max(number - len(fixed), 0)][:number]
    return [_create(kind, root, depth + 1) for kind in kinds]


def _create_number(schema: JsonSchema, step: float | None) -> float:
    """Return 1 if it fits, or a number near a bound."""
    low = [schema[name] for name in ("minimum", "exclusiveMinimum") if name in schema]
    high = [schema[name] for name in ("maximum", "exclusiveMaximum") if name in schema]
    near = [bound + shift for bound in (*low, *high) for shift in (0, 1, -1)]
    middle = [(max(low) + min(high)) / 2] if low and high else []
    stepped = (
        [round_(number / step) * step for number in (1, *near) for round_ in (math.floor, math.ceil)] if step else []
    )
    candidates = [1, 0, *stepped, *near, *middle]
    return next((number for number in candidates if _fits(number, schema, step)), 1)


def _fits(number: float, schema: JsonSchema, step: float | None) -> bool:
    return (
        schema.get("minimum", -math.inf) <= number <= schema.get("maximum", math.inf)
        and schema.get("exclusiveMinimum", -math.inf) < number < schema.get("exclusiveMaximum", math.inf)
        and (step is None or number % step == 0)
    )


def _create_text(schema: JsonSchema) -> str:
    text = _TEXTS.get(str(schema.get("format")), "text")
    return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
