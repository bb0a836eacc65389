"""The JSON Schema of an `output_type`, for the model (W16)."""

from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from pydantic import PydanticSchemaGenerationError, PydanticUserError

from prompty.errors import RequestError
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.model.request import OutputSchema
from prompty.wire.structured import create_adapter, output_schema

# Strict mode rejects these, or interprets them differently.
_NOT_STRICT = frozenset({"prefixItems", "patternProperties", "propertyNames", "not", "if", "unevaluatedProperties"})
_DROPPED = frozenset({"default", "title", "discriminator"})
_DEFS = "#/$defs/"


def with_output_type(agent: PromptAgent, output_type: type[Any]) -> PromptAgent:
    """Return the agent with the schema of a type. Raise RequestError if the file declares other outputs."""
    try:
        root = _read_schema(cast(Hashable, output_type))
    except TypeError:  # it is not hashable, or it is a WrongArgument, which is raised again
        root = _read_schema.__wrapped__(output_type)
    if root is None:
        return agent
    if not agent.outputs:
        return agent.model_copy(update={"result_schema": _close_schema(root)})
    for problem in _find_disagreements(output_schema(agent), root, root, ""):
        name = getattr(output_type, "__name__", str(output_type))
        raise RequestError(
            f"the file's `outputs` and {name} disagree: {problem}",
            "Change one of them, or remove `outputs:` from the file: the type has its own schema.",
        )
    return agent


@lru_cache(maxsize=256)
def _read_schema(output_type: Any) -> Json | None:
    """Return the schema of a type, or None if it has none that an API accepts: its root must be an object."""
    if hasattr(output_type, "__struct_fields__"):
        schema: Any = require("msgspec", extra="openai").json.schema(output_type)
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
    """Yield the differences between the declared schema and the type's."""
    choices = _resolve(found, root)
    types = {name for choice in choices for name in _types_of(choice)}
    written = set(_types_of(declared)) - {"null"}
    if types and not all(name in types or (name == "integer" and "number" in types) for name in written):
        there = ", ".join(sorted(types))
        yield f"`{path or 'the result'}` is {', '.join(sorted(written))} in the file and {there} in the type"
        return
    for choice in choices:
        if "properties" in declared and "properties" in choice:
            for name in choice.get("required", ()):
                if name not in declared["properties"] and "default" not in choice["properties"][name]:
                    yield f"the file has no output `{f'{path}.{name}'.lstrip('.')}`"
            for name, inner in declared["properties"].items():
                if name in choice["properties"]:
                    yield from _find_disagreements(
                        inner, choice["properties"][name], root, f"{path}.{name}".lstrip(".")
                    )
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
