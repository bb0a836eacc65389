"""OpenAI's function definitions and JSON Schemas become tools and properties, if these can express them."""

from typing import Any

from prompty.v1.draft import Draft, V1Data, V1Keys, mapping_or_empty

_KINDS = {"string": "string", "integer": "integer", "number": "float", "boolean": "boolean"}
_ADDITIONAL: V1Keys = ("model", "options", "additionalProperties")
_SCHEMA_KEYS = frozenset({"type", "properties", "required", "additionalProperties"})


def translate_tools(draft: Draft, tools: Any, origin: V1Keys) -> None:
    """Declare functions as tools. If a tool cannot express one of them, all are sent unchanged."""
    entries = [_translate_function(entry) for entry in tools] if isinstance(tools, list) else [None]
    for index, entry in enumerate(entries):
        if entry is None:
            message = "`tools` is sent to the model unchanged: a v2 tool cannot express all of it"
            fix = "To run them in a turn, declare the functions under `tools:`, with `parameters:` that name a `kind:`."
            draft.note((*origin, index) if isinstance(tools, list) else origin, message, fix)
            draft.put((*_ADDITIONAL, "tools"), tools, origin)
            return
    if entries:
        draft.put(("tools",), entries, origin)


def _translate_function(entry: Any) -> V1Data | None:
    entry = mapping_or_empty(entry)
    function = mapping_or_empty(entry.get("function"))
    strict = function.get("strict", False)
    if (
        entry.get("type") != "function"
        or entry.keys() - {"type", "function"}
        or function.keys() - {"name", "description", "parameters", "strict"}
        or not _is_text(function.get("name"))
        or not isinstance(strict, bool)
    ):
        return None
    parameters = _translate_object(function.get("parameters") or {"type": "object"}, strict)
    if parameters is None:
        return None
    tool: V1Data = {"name": function["name"], "kind": "function"}
    if description := function.get("description"):
        if not isinstance(description, str):
            return None
        tool["description"] = description
    if strict:
        tool["strict"] = True
    return {**tool, "parameters": parameters} if parameters else tool


def translate_response_format(draft: Draft, value: Any, data: V1Data) -> None:
    """Declare a JSON Schema as outputs. Any other format is sent unchanged, unless `outputs` replaces it."""
    origin: V1Keys = ("model", "parameters", "response_format")
    entry = mapping_or_empty(value)
    if entry.get("type") == "json_schema":
        schema = mapping_or_empty(entry.get("json_schema"))
        outputs = _translate_object(schema.get("schema"), strict=True) if schema.get("strict") is True else None
        if outputs and draft.put(("outputs",), outputs, origin):
            return
        message = "the JSON Schema is sent to the model unchanged: `outputs` cannot express all of it"
        draft.note(origin, message, "To get data as a result, write `outputs:`, or pass output_type= to the call.")
    elif has_json_outputs(data):
        return  # as `outputs`, which request JSON of this shape
    draft.put((*_ADDITIONAL, "response_format"), value, origin)


def has_json_outputs(data: V1Data) -> bool:
    """Return True if a file declares outputs and requests JSON: only then does v1 read them."""
    parameters = mapping_or_empty(mapping_or_empty(data.get("model")).get("parameters"))
    wanted = mapping_or_empty(parameters.get("response_format")).get("type")
    return wanted == "json_object" and bool(data.get("outputs"))


def _translate_object(schema: Any, strict: bool) -> V1Data | None:
    """Return the properties of an object's schema, or None if properties cannot express all of it."""
    schema = mapping_or_empty(schema)
    properties = schema.get("properties") or {}
    required = schema.get("required") or []
    if schema.get("type") != "object" or schema.keys() - _SCHEMA_KEYS or not isinstance(properties, dict):
        return None
    if not isinstance(required, list) or not all(_is_text(name) and name in properties for name in required):
        return None
    if (
        schema.get("additionalProperties", not strict) is not (not strict)
        or ("additionalProperties" in schema) > strict
    ):
        return None
    if strict and len(set(required)) < len(properties):
        return None
    translated: V1Data = {}
    for name, entry in properties.items():
        declared = _translate_schema(entry, strict)
        if declared is None:
            return None
        translated[name] = {**declared, "required": True} if name in required else declared
    return translated


def _translate_schema(schema: Any, strict: bool) -> V1Data | None:
    schema = dict(mapping_or_empty(schema))
    kind, declared = schema.pop("type", None), V1Data()
    if not _is_text(kind):
        return None
    if "description" in schema:
        declared["description"] = schema.pop("description")
        if not _is_text(declared["description"]):
            return None
    if "enum" in schema:
        declared["enumValues"] = schema.pop("enum")
        if not isinstance(declared["enumValues"], list) or not declared["enumValues"]:
            return None
    if kind in _KINDS:
        return None if schema else {"kind": _KINDS[kind], **declared}
    if kind == "array":
        items = _translate_schema(schema.pop("items", None), strict)
        return None if schema or items is None else {"kind": "array", **declared, "items": items}
    if kind != "object":
        return None
    if not schema and not strict:
        return {"kind": "object", **declared}
    properties = _translate_object({"type": "object", **schema}, strict)
    return {"kind": "object", **declared, "properties": properties} if properties else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
