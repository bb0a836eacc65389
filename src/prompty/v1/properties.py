"""`inputs`, `outputs` and `sample` become properties with a kind and a default.

OpenAI's function definitions and JSON Schemas become tools and properties, if these can express them.
"""

from collections.abc import Sequence
from typing import Any, get_args

from prompty.model.property import PROPERTY_KEYS, Kind, kind_of_value
from prompty.model.synonyms import KIND_SYNONYMS
from prompty.v1.body import BodyEdit
from prompty.v1.draft import Draft, V1Data, V1Keys, is_file_reference, is_reference, mapping_or_empty

_KINDS = {"string": "string", "integer": "integer", "number": "float", "boolean": "boolean"}
_ADDITIONAL: V1Keys = ("model", "options", "additionalProperties")
_SCHEMA_KEYS = frozenset({"type", "properties", "required", "additionalProperties"})
KINDS: dict[str, str] = {**{kind: kind for kind in get_args(Kind)}, **KIND_SYNONYMS}
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "float": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_V1_KEYS = frozenset({"type", "is_required", "optional", "is_chat_history", "is_chat_input", "sample"})


def translate_tools(draft: Draft, tools: Any, origin: V1Keys) -> None:
    """Declare functions as tools. If a tool cannot express one of them, all are sent unchanged."""
    entries = [translate_function(entry) for entry in tools] if isinstance(tools, list) else [None]
    for index, entry in enumerate(entries):
        if entry is None:
            message = "`tools` is sent to the model unchanged: a v2 tool cannot express all of it"
            fix = "To run them in a turn, declare the functions under `tools:`, with `parameters:` that name a `kind:`."
            draft.note((*origin, index) if isinstance(tools, list) else origin, message, fix)
            draft.put((*_ADDITIONAL, "tools"), tools, origin)
            return
    if entries:
        draft.put(("tools",), entries, origin)


def translate_function(entry: Any) -> V1Data | None:
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
    parameters = translate_object(function.get("parameters") or {"type": "object"}, strict)
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
        outputs = translate_object(schema.get("schema"), strict=True) if schema.get("strict") is True else None
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


def translate_object(schema: Any, strict: bool) -> V1Data | None:
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
    if isinstance(kind, list) and len(kind) == 2 and kind[1] == "null" and "enum" not in schema:
        kind, declared = kind[0], {"nullable": True}
    if "description" in schema:
        declared["description"] = schema.pop("description")
        if not _is_text(declared["description"]):
            return None
    if kind is None and schema.keys() in ({"anyOf"}, {"oneOf"}):
        return _translate_union(declared, *schema.popitem(), strict=strict)
    if not _is_text(kind):
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
    properties = translate_object({"type": "object", **schema}, strict)
    return {"kind": "object", **declared, "properties": properties} if properties else None


def _translate_union(declared: V1Data, key: str, branches: Any, *, strict: bool) -> V1Data | None:
    if not isinstance(branches, list) or not branches or (strict and key == "oneOf"):
        return None
    if nullable := branches[-1] == {"type": "null"}:
        branches = branches[:-1]
    translated = [_translate_schema(branch, strict) for branch in branches]
    # `nullable` writes one null branch, at the end, so a branch must not allow null again.
    if not translated or any(branch is None or (nullable and "nullable" in branch) for branch in translated):
        return None
    return {"kind": "union", **({"nullable": True} if nullable else {}), **declared, key: translated}


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def translate_inputs(draft: Draft, data: V1Data, edits: Sequence[BodyEdit]) -> None:
    """Translate `inputs` and `sample` together, at the position of the first."""
    if "inputs" in draft.data:
        return
    sample, entries = data.get("sample"), data.get("inputs")
    if sample is not None and not isinstance(sample, dict):
        draft.drop(("sample",), "it is not a mapping of inputs", "Add a `default:` to each input.")
    samples = mapping_or_empty(sample)
    if isinstance(entries, list):
        named = {
            entry["name"]: entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("name"), str)
        }
        if len(named) < len(entries):
            draft.put(("inputs",), entries, ("inputs",))
            return
        places: dict[str, V1Keys] = {name: ("inputs", index) for index, name in enumerate(named)}
        entries = {name: {key: entry[key] for key in entry if key != "name"} for name, entry in named.items()}
    else:
        places = {name: ("inputs", name) for name in mapping_or_empty(entries)}
    if entries is not None and (not isinstance(entries, dict) or _is_json_schema(entries)):
        draft.put(("inputs",), entries, ("inputs",))
        return
    kinds = {edit.name: edit.kind for edit in edits}
    for name, entry in mapping_or_empty(entries).items():
        _translate_input(draft, name, entry, places[name], samples, kinds.get(name))
    for name, value in samples.items():
        if name not in places:
            declared = {} if is_reference(value) else {"kind": kind_of_value(value)}
            _put_default(draft, ("inputs", name), declared, value, ("sample", name), kinds.get(name))


def _is_json_schema(entries: V1Data) -> bool:
    return entries.get("type") == "object" and isinstance(entries.get("properties"), dict)


def add_media_inputs(draft: Draft, edits: Sequence[BodyEdit]) -> None:
    """Declare the inputs of the body's threads and images that the frontmatter does not declare."""
    for edit in edits:
        if edit.name not in mapping_or_empty(draft.data.get("inputs")):
            declared = {"kind": edit.kind} if edit.default is None else {"kind": edit.kind, "default": edit.default}
            draft.put(("inputs", edit.name), declared, ("inputs",))


def _translate_input(
    draft: Draft, name: str, entry: Any, place: V1Keys, samples: V1Data | Any, rich: str | None
) -> None:
    keys: V1Keys = ("inputs", name)
    if entry is None:
        entry = {"type": "string"}
    elif not _is_property(entry):
        if not isinstance(entry, dict):
            message = f"the input `{name}` has a value but no `type`: the value is read as its default"
            draft.note(place, message, "Write it as `default:`.")
        entry = {"default": entry}
    is_v1 = "kind" not in entry
    declared = _translate_property(draft, entry, place)
    optional = entry.get("optional") is True or entry.get("is_required") is False
    origin = (*place, "default")
    default = declared.pop("default", None)
    if "sample" in entry:
        default, origin = entry["sample"], (*place, "sample")
    if name in samples:
        default, origin = samples[name], ("sample", name)
    if default is None and is_v1 and name not in samples and not optional:
        declared.setdefault("required", True)
    _put_default(draft, keys, declared, default, origin, rich)
    draft.moves[keys] = place
    draft.moves[(*keys, "kind")] = (*place, "type") if is_v1 else (*place, "kind")


def _is_property(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    if not PROPERTY_KEYS.isdisjoint(entry) or not (_V1_KEYS - {"type"}).isdisjoint(entry):
        return True
    return isinstance(entry.get("type"), str) and (entry["type"].lower() in KINDS or len(entry) == 1)


def _translate_property(draft: Draft, entry: V1Data, place: V1Keys) -> V1Data:
    """Return a property with `kind` instead of `type`, and without v1's other keys."""
    declared: V1Data = {}
    for key, value in entry.items():
        if key == "type" and "kind" not in entry:
            kind = KINDS.get(value.lower()) if isinstance(value, str) else None
            if kind:
                declared["kind"] = kind
            else:
                message = f"no kind corresponds to the type `{value}`: the default's kind is used"
                draft.note((*place, "type"), message, "Write a `kind:`.")
        elif key == "is_required" and isinstance(value, bool):
            declared.setdefault("required", value)
        elif key == "items" and isinstance(value, dict):
            declared["items"] = _translate_property(draft, value, (*place, key))
        elif key in ("oneOf", "anyOf") and isinstance(value, list):
            declared[key] = [
                _translate_property(draft, branch, (*place, key, index)) if isinstance(branch, dict) else branch
                for index, branch in enumerate(value)
            ]
        elif key == "properties" and isinstance(value, dict):
            declared["properties"] = {
                name: _translate_property(draft, inner, (*place, key, name)) if _is_property(inner) else inner
                for name, inner in value.items()
            }
        elif key not in _V1_KEYS:
            declared[key] = value
    return declared


def _put_default(draft: Draft, keys: V1Keys, declared: V1Data, default: Any, origin: V1Keys, rich: str | None) -> None:
    """Set a property with its default. If they contradict each other, use the value's kind: in v1 a wrong kind never
    failed a call."""
    kind = declared.get("kind")
    if rich:
        declared = {"kind": rich, **{key: value for key, value in declared.items() if key not in ("kind", "items")}}
        default = _read_rich_default(draft, rich, default, origin)
        if default is None and origin[0] == "sample" and rich == "image":
            declared["required"] = True
    elif default is not None and isinstance(kind, str) and kind in _TYPES:
        if is_file_reference(default) and kind != "string":
            del declared["kind"]  # the file's content decides
        elif not _fits(kind, default):
            actual = kind_of_value(default)
            where = "sample" if origin[0] == "sample" else "default"
            message = f"the {where} of `{keys[-1]}` is not of the type {kind}: its kind is {actual}"
            draft.note(origin, message, "Correct the `kind:`, or the default.")
            declared = {"kind": actual, **{key: value for key, value in declared.items() if key in ("description",)}}
    if default is not None:
        declared["default"] = default
    if not declared:
        declared = {"kind": "string"}
    draft.put(keys, declared, origin)
    draft.moves[(*keys, "default")] = origin


def _fits(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if is_reference(value) and kind != "string":
        return False  # a variable is text
    return isinstance(value, _TYPES[kind])


def _read_rich_default(draft: Draft, kind: str, default: Any, origin: V1Keys) -> Any:
    if default is None or is_file_reference(default):
        return default
    if kind == "thread":
        if isinstance(default, list):
            return default
        draft.drop(origin, "it is not a list of messages", "Write a list of messages with `role` and `content`.")
        return None
    if isinstance(default, dict) and len(default) == 1:  # Prompt flow's {"data:image/png;url": …}
        ((head, value),) = default.items()
        form, _, source = str(head).rpartition(";")
        if form.startswith("data:image/") and isinstance(value, str) and source in ("url", "base64"):
            return value if source == "url" else f"{form};base64,{value}"
    if isinstance(default, str) and ";path:" not in default:
        return default
    reason = "an image in a prompt is a URL or a data URI"
    draft.drop(origin, reason, "Pass the image when you call the prompt, or write a data URI.")
    return None


def translate_outputs(draft: Draft, outputs: Any, data: V1Data) -> None:
    """Translate `outputs`. v1 reads them only if the file requests a JSON object."""
    entries = mapping_or_empty(outputs)
    has_kind = any("kind" in mapping_or_empty(entry) for entry in entries.values())
    if not entries or has_kind or has_json_outputs(data):
        translated = {
            name: _translate_property(draft, entry, ("outputs", name)) if _is_property(entry) else entry
            for name, entry in entries.items()
        }
        if draft.put(("outputs",), translated if isinstance(outputs, dict) else outputs, ("outputs",)):
            for name in entries:
                draft.moves[("outputs", name, "kind")] = ("outputs", name, "type")
        return
    message = "`outputs` is moved to `metadata`: v1 reads it only with `response_format: {type: json_object}`"
    draft.note(("outputs",), message, "Write `outputs:` with a `kind:` for each entry to request data of that shape.")
    draft.put(("metadata", "outputs"), outputs, ("outputs",))
