"""JSON Schema of parameters and outputs (§7.1.3, §7.1.4), and structured results (§7.7)."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast as cast_type, get_type_hints, is_typeddict

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from prompty.errors import RequestError, ResultError, WrongArgument
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.model.property import NestedProperty, Property, walk_properties
from prompty.model.request import Function, OutputSchema
from prompty.model.tool import FunctionTool
from prompty.safety.json import may_have_surrogates, read_json, repair_json

# A model returns rich kinds as text.
_TYPES = {"integer": "integer", "float": "number", "boolean": "boolean", "array": "array", "object": "object"}
T = TypeVar("T")
SCHEMA_NAME = "structured_output"
# Strict mode rejects these, or interprets them differently.
_NOT_STRICT = frozenset({"prefixItems", "patternProperties", "propertyNames", "not", "if", "unevaluatedProperties"})
_DROPPED = frozenset({"default", "title", "discriminator"})
_DEFS = "#/$defs/"


def build_function(tool: FunctionTool) -> Function:
    """Return a function tool as the model sees it, without bound parameters (§2.9.1)."""
    visible = [parameter for parameter in tool.parameters if parameter.name not in tool.bindings]
    parameters = build_schema(visible, strict=tool.strict)
    return Function(name=tool.name, description=tool.description, parameters=parameters, strict=tool.strict)


def build_schema(properties: Iterable[Property], *, strict: bool = False) -> Json:
    """Return an object schema of these properties.

    Strict mode requires every property and allows no others. A property with `required: false` can then be null, like
    one with `nullable: true` in any mode.
    """
    declared = list(properties)
    schema: Json = {"type": "object", "properties": {item.name: _build_member(item, strict) for item in declared}}
    if required := [item.name for item in declared if strict or item.required]:
        schema["required"] = required
    if strict:
        schema["additionalProperties"] = False
    return schema


def _build_member(declared: Property, strict: bool) -> Json:
    """Return the schema of a property, or of an array's items."""
    is_optional = strict and "required" in declared.model_fields_set and not declared.required
    return _build_property(declared, strict, nullable=declared.nullable or is_optional)


def _build_property(declared: Property, strict: bool, *, nullable: bool) -> Json:
    schema: Json = _build_union(declared, strict, nullable) if declared.branches else _build_type(declared, strict)
    if declared.description:
        schema["description"] = declared.description
    if declared.enum_values:
        schema["enum"] = list(declared.enum_values)
    if nullable:
        if not declared.branches:
            schema["type"] = [schema["type"], "null"]
        if declared.enum_values and None not in declared.enum_values:
            schema["enum"] = [*declared.enum_values, None]
    return schema


def _build_union(declared: Property, strict: bool, nullable: bool) -> Json:
    branches = [_build_property(branch, strict, nullable=branch.nullable) for branch in declared.branches]
    if nullable:  # null must not fit two branches of `oneOf`
        branches = [*map(_remove_null, branches), {"type": "null"}]
    return {"oneOf" if declared.one_of else "anyOf": branches}


def _remove_null(schema: Json) -> Json:
    """Return the schema of a branch without null."""
    changed: dict[str, Any] = dict(schema)
    if "null" in _types_of(schema):
        changed["type"] = next(name for name in _types_of(schema) if name != "null")
    for key in ("oneOf", "anyOf"):
        if key in changed:
            changed[key] = [_remove_null(branch) for branch in changed[key] if branch != {"type": "null"}]
    if "enum" in changed:
        changed["enum"] = [value for value in changed["enum"] if value is not None]
    return changed


def _build_type(declared: Property, strict: bool) -> Json:
    if declared.kind == "object" and (declared.properties or strict):
        return build_schema(declared.properties, strict=strict)
    if declared.kind == "array":
        return {"type": "array", "items": _build_items(declared, strict)}
    return {"type": _TYPES.get(declared.kind, "string")}


def _build_items(declared: Property, strict: bool) -> Json:
    """Return the schema of an array's items. APIs require one, and strict mode also requires a type."""
    if declared.items is not None:
        return _build_member(declared.items, strict)
    return {"type": "string"} if strict else {}


class StrictOneOf(NamedTuple):
    """A `oneOf` in a strict schema: the keys that lead to it in the file, and what to say about it."""

    keys: tuple[str | int, ...]
    cause: str
    fix: str = "Write `anyOf` instead."


def find_strict_one_of(agent: PromptAgent) -> Iterator[StrictOneOf]:
    """Yield each `oneOf` in an agent's strict schemas: its outputs, and the parameters of strict functions."""
    for found in walk_properties(agent.outputs, ("outputs",)):
        if found.declared.one_of:
            yield _describe_one_of(found, f"the output `{found.path}`")
    for index, tool in enumerate(agent.tools):
        if isinstance(tool, FunctionTool) and tool.strict:
            for found in walk_properties(tool.parameters, ("tools", index, "parameters")):
                if found.declared.one_of and found.root not in tool.bindings:
                    yield _describe_one_of(found, f"the parameter `{found.path}` of the tool '{tool.name}'")


def _describe_one_of(found: NestedProperty, subject: str) -> StrictOneOf:
    return StrictOneOf((*found.keys, "oneOf"), f"{subject} has `oneOf`, which strict schemas cannot have")


class StructuredResult(dict[str, Any]):
    """A dict that keeps the JSON text it was parsed from, so that `cast` decodes once."""

    raw: str

    def __init__(self, values: dict[str, Any], raw: str) -> None:
        super().__init__(values)
        self.raw = raw


def output_schema(agent: PromptAgent) -> Json | None:
    """Return the strict schema of a prompt's `outputs`, or None if it declares none."""
    return build_schema(agent.outputs, strict=True) if agent.outputs else None


def parse_structured(text: str) -> object:
    """Parse JSON text. An object keeps its text. Text that is not JSON is returned unchanged."""
    try:
        value = read_json(text, unique=False)
        value = repair_json(value) if may_have_surrogates(text) else value
    except (ValueError, RecursionError):
        return text
    return StructuredResult(value, text) if isinstance(value, dict) else value


def cast(result: object, output_type: type[T]) -> T:
    """Convert a result to a dataclass, TypedDict, pydantic model, msgspec struct or any type that pydantic supports.

    Raise ResultError if it does not match.
    """
    if hasattr(output_type, "__struct_fields__"):
        return _cast_to_struct(result, output_type)
    adapter = create_adapter(output_type)
    try:
        if isinstance(result, StructuredResult):
            return adapter.validate_json(result.raw)
        if isinstance(result, str) and output_type is not str:
            return adapter.validate_json(result)
        return adapter.validate_python(result)
    except ValidationError as error:
        raise ResultError(output_type, error) from None


# Raised by pydantic for anything that is not a type.
_UNUSABLE = (AttributeError, LookupError, NameError, RecursionError, TypeError, ValueError)


def create_adapter(output_type: type[T]) -> TypeAdapter[T]:
    """Return the adapter of a type. Raise WrongArgument if pydantic does not support it."""
    if not isinstance(output_type, str | bytes | int | float):
        try:
            return TypeAdapter(adapt_type(output_type))
        except (*_UNUSABLE, PydanticUserError, PydanticSchemaGenerationError):
            pass
    fix = "Pass a dataclass, a TypedDict, a pydantic model or a type such as list[int]."
    raise WrongArgument("output_type", output_type, "a type that pydantic can validate", fix)


def adapt_type(output_type: type[T]) -> type[T]:
    """Return a type that pydantic accepts: before Python 3.12 it only accepts the TypedDict of typing_extensions."""
    if not is_typeddict(output_type):
        return output_type
    fields = get_type_hints(output_type, include_extras=True)
    total = getattr(output_type, "__total__", True)
    return cast_type("type[T]", TypedDict(output_type.__name__, fields, total=total))  # type: ignore[operator]  # mypy wants a literal


def _cast_to_struct(result: object, output_type: type[T]) -> T:
    msgspec = require("msgspec")
    text = result.raw if isinstance(result, StructuredResult) else result
    try:
        decoded: T = (
            msgspec.json.decode(text, type=output_type)
            if isinstance(text, str)
            else msgspec.convert(text, type=output_type)
        )
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ResultError(output_type, error) from None
    return decoded


def find_result_schema(agent: PromptAgent, output_type: type[Any]) -> OutputSchema | None:
    """Return the schema of the answer that a type adds to a file without outputs, or None. Raise RequestError if the
    file declares other outputs."""
    try:
        root = _read_schema(cast_type(Hashable, output_type))
    except TypeError:  # it is not hashable, or it is a WrongArgument, which is raised again
        root = _read_schema.__wrapped__(output_type)
    if root is None:
        return None
    if not agent.outputs:
        return _close_schema(root)
    for problem in _find_disagreements(output_schema(agent), root, root, ""):
        name = getattr(output_type, "__name__", str(output_type))
        raise RequestError(
            f"the file's `outputs` and {name} disagree: {problem}",
            "Change one of them, or remove `outputs:` from the file: the type has its own schema.",
        )
    return None


@lru_cache(maxsize=256)
def _read_schema(output_type: Any) -> Json | None:
    """Return the schema of a type, or None if it has none that an API accepts: its root must be an object."""
    if hasattr(output_type, "__struct_fields__"):
        schema: Any = require("msgspec").json.schema(output_type)
    else:
        try:
            schema = create_adapter(output_type).json_schema()
        except (PydanticUserError, PydanticSchemaGenerationError):
            return None
    root = _inline_root(schema)
    return root if root.get("type") == "object" and root.get("properties") else None


def _close_schema(root: Json) -> OutputSchema:
    strict = all(_fits_strict_mode(node) for node in _walk(root))
    return OutputSchema(_close(root) if strict else root, strict)


def _inline_root(schema: Json) -> Json:
    """Return a schema whose root is not a reference. Definitions stay, because a type may contain itself."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(_DEFS):
        return schema
    definitions: Any = schema["$defs"]
    return {**definitions[reference.removeprefix(_DEFS)], "$defs": definitions}


def _walk(node: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and every schema in it."""
    yield node
    for inner in _inner_schemas(node):
        yield from _walk(inner)


def _inner_schemas(node: Mapping[str, Any]) -> Iterator[Any]:
    for key, value in node.items():
        if key in ("properties", "$defs"):
            yield from value.values()
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            yield from value
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            yield value


def _fits_strict_mode(node: Mapping[str, Any]) -> bool:
    if not _NOT_STRICT.isdisjoint(node) or len(node.get("allOf", ())) > 1:
        return False
    if node.get("type") == "object":
        return bool(node.get("properties")) and node.get("additionalProperties") in (None, False)
    return bool(_DROPPED.union(("type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const")) & node.keys() - _DROPPED)


def _close(node: Any) -> Any:
    """Return a schema for strict mode: every property is required, no other is allowed, and there are no defaults."""
    closed: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("properties", "$defs"):
            closed[key] = {name: _close(inner) for name, inner in value.items()}
        elif key in ("anyOf", "oneOf"):
            closed["anyOf"] = [_close(inner) for inner in value]
        elif key == "allOf":
            closed |= _close(value[0])
        elif key == "items":
            closed[key] = _close(value)
        elif key not in _DROPPED:
            closed[key] = value
    if "properties" in closed:
        closed |= {"required": list(closed["properties"]), "additionalProperties": False}
    return closed


def _find_disagreements(declared: Any, found: Any, root: Json, path: str) -> Iterator[str]:
    """Yield the differences between the declared schema and the type's: for each branch that the file declares, from
    the nearest alternative of the type."""
    choices = _resolve(found, root)
    for branch in _resolve(declared, {}):
        if branch != {"type": "null"}:
            yield from _compare(branch, choices, root, path)


def _compare(declared: Mapping[str, Any], choices: list[Mapping[str, Any]], root: Json, path: str) -> Iterator[str]:
    written = set(_types_of(declared)) - {"null"}
    fitting = [choice for choice in choices if _takes(choice, written)]
    if not fitting:
        there = ", ".join(sorted({name for choice in choices for name in _types_of(choice)}))
        yield f"`{path or 'the result'}` is {', '.join(sorted(written))} in the file and {there} in the type"
        return
    yield from min((list(_compare_inside(declared, choice, root, path)) for choice in fitting), key=len)


def _takes(choice: Mapping[str, Any], written: set[str]) -> bool:
    types = _types_of(choice)
    return not types or all(name in types or (name == "integer" and "number" in types) for name in written)


def _compare_inside(declared: Mapping[str, Any], choice: Mapping[str, Any], root: Json, path: str) -> Iterator[str]:
    if "properties" in declared and "properties" in choice:
        for name in choice.get("required", ()):
            if name not in declared["properties"] and "default" not in choice["properties"][name]:
                yield f"the file has no output `{f'{path}.{name}'.lstrip('.')}`"
        for name, inner in declared["properties"].items():
            if name in choice["properties"]:
                yield from _find_disagreements(inner, choice["properties"][name], root, f"{path}.{name}".lstrip("."))
    if "items" in declared and isinstance(choice.get("items"), dict):
        yield from _find_disagreements(declared["items"], choice["items"], root, f"{path}[]")


def _resolve(node: Any, root: Json) -> list[Mapping[str, Any]]:
    """Return the alternatives of a schema, without references."""
    if "$ref" in node:
        definitions: Any = root["$defs"]
        return _resolve(definitions[node["$ref"].removeprefix(_DEFS)], root)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in node:
            return [choice for inner in node[key] for choice in _resolve(inner, root)]
    return [node]


def _types_of(node: Mapping[str, Any]) -> list[str]:
    types = node.get("type", [])
    return [types] if isinstance(types, str) else list(types)
