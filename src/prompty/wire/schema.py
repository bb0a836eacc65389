"""JSON Schema of properties (§7.1.4), and functions with such schemas as parameters (§7.1.3)."""

from collections.abc import Iterable

from prompty.model.message import Json
from prompty.model.property import Property
from prompty.model.request import Function
from prompty.model.tool import FunctionTool

# A model returns rich kinds as text.
_TYPES = {"integer": "integer", "float": "number", "boolean": "boolean", "array": "array", "object": "object"}


def build_function(tool: FunctionTool) -> Function:
    """Return a function tool as the model sees it, without bound parameters (§2.9.1)."""
    visible = [parameter for parameter in tool.parameters if parameter.name not in tool.bindings]
    parameters = build_schema(visible, strict=tool.strict)
    return Function(name=tool.name, description=tool.description, parameters=parameters, strict=tool.strict)


def build_schema(properties: Iterable[Property], *, strict: bool = False) -> Json:
    """Return an object schema of these properties.

    Strict mode requires every property and allows no others. A property with `required: false` can then be null.
    """
    declared = list(properties)
    schema: Json = {"type": "object", "properties": {item.name: _build_property(item, strict) for item in declared}}
    if required := [item.name for item in declared if strict or item.required]:
        schema["required"] = required
    if strict:
        schema["additionalProperties"] = False
    return schema


def _build_property(declared: Property, strict: bool) -> Json:
    schema: Json = _build_type(declared, strict)
    if declared.description:
        schema["description"] = declared.description
    if declared.enum_values:
        schema["enum"] = list(declared.enum_values)
    if strict and "required" in declared.model_fields_set and not declared.required:
        schema["type"] = [schema["type"], "null"]
        if declared.enum_values:
            schema["enum"] = [*declared.enum_values, None]
    return schema


def _build_type(declared: Property, strict: bool) -> Json:
    if declared.kind == "object" and (declared.properties or strict):
        return build_schema(declared.properties, strict=strict)
    if declared.kind == "array":
        return {"type": "array", "items": _build_items(declared, strict)}
    return {"type": _TYPES.get(declared.kind, "string")}


def _build_items(declared: Property, strict: bool) -> Json:
    """Return the schema of an array's items. APIs require one, and strict mode also requires a type."""
    if declared.items is not None:
        return _build_property(declared.items, strict)
    return {"type": "string"} if strict else {}
