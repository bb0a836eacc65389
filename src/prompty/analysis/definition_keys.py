"""Find unknown keys in a file, and keys that only this runtime reads."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from prompty.errors import did_you_mean, nearest
from prompty.model import connection
from prompty.model.agent import Format, Frontmatter, Model, ModelOptions, Template, TemplateParser
from prompty.model.connection import infer_connection_kind
from prompty.model.property import ACCEPTED_SYNONYMS, PROPERTY_KEYS, Property
from prompty.model.synonyms import KEY_SYNONYMS, KIND_SYNONYMS, PROPERTY_SYNONYMS
from prompty.model.tool import (
    CodeInterpreterTool,
    CustomTool,
    FileSearchTool,
    FunctionTool,
    McpTool,
    OpenApiTool,
    PromptyTool,
    RawTool,
    SkillsTool,
    UserLocation,
    WebFetchTool,
    WebSearchTool,
    unwrap_properties,
)
from prompty.pipeline.definitions import list_tools
from prompty.pipeline.source_map import Finding, KeyPath, SourceMap

_TOOLS: dict[str, type[BaseModel]] = {
    "function": FunctionTool,
    "prompty": PromptyTool,
    "mcp": McpTool,
    "openapi": OpenApiTool,
    "skills": SkillsTool,
    "web_search": WebSearchTool,
    "web_fetch": WebFetchTool,
    "file_search": FileSearchTool,
    "code_interpreter": CodeInterpreterTool,
    "provider": RawTool,
}
_CONNECTIONS: dict[str, type[BaseModel]] = {
    "key": connection.ApiKeyConnection,
    "reference": connection.ReferenceConnection,
    "remote": connection.RemoteConnection,
    "anonymous": connection.AnonymousConnection,
    "foundry": connection.FoundryConnection,
    "oauth": connection.OAuthConnection,
}
EXTENSIONS: Mapping[type[BaseModel], tuple[str, ...]] = {
    Property: ("sensitive",),
    Model: ("script",),
    connection.ApiKeyConnection: ("apiVersion", "headers"),
    connection.ReferenceConnection: ("headers",),
    connection.AnonymousConnection: ("headers",),
    connection.FoundryConnection: ("apiVersion", "headers"),
    FunctionTool: ("approvalMode",),
    PromptyTool: ("approvalMode", "parameters"),
    McpTool: ("execution",),
    OpenApiTool: ("approvalMode", "operations", "tags", "methods"),
    CustomTool: ("approvalMode",),
}
METADATA_EXTENSIONS = ("actsAs", "cache", "fallbacks", "reasoning")


def _key_paths() -> Iterator[tuple[str, str]]:
    """Yield the keys of a model, its connection and its options, with their paths."""
    for path, definition in (
        ("model.connection", connection.ApiKeyConnection),
        ("model.options", ModelOptions),
        ("model", Model),
    ):
        for name, field in definition.model_fields.items():
            key = field.alias or name
            if key not in ("kind", "id", "additionalProperties"):
                yield key.lower(), f"{path}.{key}"


_ELSEWHERE = {**KEY_SYNONYMS, **dict(_key_paths())}


def find_unknown_keys(data: Mapping[str, Any], source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each unknown key, with the nearest known key."""
    for site in _definition_sites(data):
        known = [field.alias or name for name, field in site.definition.model_fields.items()]
        for name in site.value:
            if name not in known:
                yield _unknown_key(site, name, known, source_map)


def _unknown_key(site: "_Site", name: str, known: list[str], source_map: SourceMap) -> Finding:
    elsewhere = _ELSEWHERE.get(name.lower().replace("_", ""))
    if elsewhere and elsewhere.rpartition(".")[0] != ".".join(map(str, site.keys)):
        message, fix = f"`{name}` has no effect here", f"Write it as `{elsewhere}`."
        return source_map.locate((*site.keys, name), "misplaced-key", message, fix, severity="warning", on_key=True)
    near = nearest(name, known)
    fix = did_you_mean(near)
    if site.definition is Property and name in PROPERTY_SYNONYMS:
        code, message, fix, near = "unknown-key", f"unknown key `{name}`", PROPERTY_SYNONYMS[name], None
    elif site.definition is ModelOptions:
        code, message = "unknown-option", f"unknown option `{name}`"
        fix += "Provider-specific options go under `additionalProperties:`."
    else:
        code, message = "unknown-key", f"unknown key `{name}`"
        fix += "It has no effect here." if site.keys else "It is kept in `metadata`."
    replacement = (
        near if near and near not in site.value and _accepts(site.definition, near, site.value[name]) else None
    )
    keys = (*site.keys, name)
    return source_map.locate(keys, code, message, fix, severity="warning", on_key=True, replacement=replacement)


def _accepts(definition: type[BaseModel], key: str, value: object) -> bool:
    try:
        definition.model_validate({key: value})
    except ValidationError as error:
        return all(detail["loc"][0] != key for detail in error.errors(include_url=False, include_input=False))
    return True


def find_kind_synonyms(data: Mapping[str, Any], source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each kind that is another name for one of this format's."""
    for keys, value, definition in _definition_sites(data):
        kind = value.get("kind") if definition is Property else None
        if isinstance(kind, str) and kind in ACCEPTED_SYNONYMS:
            meant = KIND_SYNONYMS[kind]
            message, fix = f"`{kind}` is read as `{meant}`, and not by every runtime", f"Write `{meant}`."
            yield source_map.locate(
                (*keys, "kind"), "kind-synonym", message, fix, severity="warning", replacement=meant
            )


def find_extensions(data: Mapping[str, Any], source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each key that only this runtime reads."""
    for keys, value, definition in _definition_sites(data):
        for name in EXTENSIONS.get(definition, ()):
            if name in value:
                yield _extension((*keys, name), f"`{name}`", source_map)
        if definition in _CONNECTIONS.values() and "kind" not in value:
            fix = f"Add `kind: {infer_connection_kind(value)}`."
            yield _extension(keys, "a connection without a `kind`", source_map, fix)
        metadata = value.get("metadata") if definition is Frontmatter else None
        for name in METADATA_EXTENSIONS:
            if isinstance(metadata, dict) and name in metadata:
                yield _extension(("metadata", name), f"`metadata.{name}`", source_map)


# The same, for every runtime.
_ALTERNATIVES = {
    "approvalMode": "Remove it, and pass `approval=` in your program.",
    "apiVersion": "Remove it, and set OPENAI_API_VERSION.",
    "script": "Remove it, and name a model of another provider.",
    "operations": "Remove it, and keep only these operations in the document.",
    "tags": "Remove it, and keep only the operations with these tags in the document.",
    "methods": "Remove it, and keep only the operations with these methods in the document.",
    "fallbacks": "Remove it, and call another model in your program.",
}


def _extension(keys: KeyPath, subject: str, source_map: SourceMap, fix: str | None = None) -> Finding:
    message = f"only this runtime reads {subject}; others ignore it or refuse the file"
    fix = fix or _ALTERNATIVES.get(str(keys[-1]), "Remove it in a file for other runtimes.")
    return source_map.locate(keys, "extension", message, fix, severity="warning", on_key=True)


class _Site(NamedTuple):
    """A mapping that is a definition."""

    keys: tuple[str | int, ...]
    value: dict[Any, Any]
    definition: type[BaseModel]


def _definition_sites(data: Mapping[str, Any]) -> Iterator[_Site]:
    """Yield every definition of a file, from the top down."""
    yield from _site(data, (), Frontmatter)
    for group in ("inputs", "outputs"):
        yield from _property_sites(data.get(group), (group,))
    model = data.get("model")
    if isinstance(model, dict):
        yield from _site(model, ("model",), Model)
        yield from _site(model.get("options"), ("model", "options"), ModelOptions)
        yield from _connection_site(model.get("connection"), ("model", "connection"))
    for index, tool in list_tools(data):
        if "kind" not in tool and "function" in tool:  # a tool in OpenAI's form
            continue
        keys = ("tools", index)
        yield from _site(tool, keys, _TOOLS.get(str(tool.get("kind")), CustomTool))
        yield from _property_sites(unwrap_properties(tool.get("parameters")), (*keys, "parameters"))
        yield from _connection_site(tool.get("connection"), (*keys, "connection"))
        if tool.get("kind") == "web_search":
            yield from _site(tool.get("location"), (*keys, "location"), UserLocation)
    template = data.get("template")
    if isinstance(template, dict):
        yield from _site(template, ("template",), Template)
        yield from _site(template.get("format"), ("template", "format"), Format)
        yield from _site(template.get("parser"), ("template", "parser"), TemplateParser)


def _connection_site(value: Any, keys: tuple[str | int, ...]) -> Iterator[_Site]:
    definition = _CONNECTIONS.get(str(infer_connection_kind(value))) if isinstance(value, dict) else None
    if definition:
        yield from _site(value, keys, definition)


def _property_sites(value: Any, keys: tuple[str | int, ...]) -> Iterator[_Site]:
    entries: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, list):
        entries = enumerate(value)
    elif isinstance(value, dict):
        entries = ((name, entry) for name, entry in value.items() if _is_property(entry))
    for key, entry in entries:
        yield from _property_site(entry, (*keys, key))


def _property_site(entry: Any, keys: tuple[str | int, ...]) -> Iterator[_Site]:
    """Yield a property and those inside it."""
    if isinstance(entry, dict):
        yield from _site(entry, keys, Property)
        yield from _property_sites(entry.get("properties"), (*keys, "properties"))
        yield from _property_site(entry.get("items"), (*keys, "items"))
        for group in ("oneOf", "anyOf"):
            yield from _property_sites(entry.get(group), (*keys, group))


def _is_property(value: Any) -> bool:
    return isinstance(value, dict) and not PROPERTY_KEYS.isdisjoint(value)


def _site(value: Any, keys: tuple[str | int, ...], definition: type[BaseModel]) -> Iterator[_Site]:
    if isinstance(value, dict):
        yield _Site(keys, value, definition)
