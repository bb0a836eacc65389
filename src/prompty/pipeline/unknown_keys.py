"""Keys that no definition knows: nothing reads them, so they are probably misspelt."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

from prompty.errors import Problem
from prompty.model import connection
from prompty.model.agent import Frontmatter, Model
from prompty.model.options import ModelOptions
from prompty.model.property import PROPERTY_KEYS, Property
from prompty.model.template import Format, Parser, Template
from prompty.model.tool import CustomTool, FunctionTool, McpTool, OpenApiTool, PromptyTool
from prompty.pipeline.source import Source

Found = Iterator[tuple[tuple[str | int, ...], list[str]]]

_TOOLS: dict[str, type[BaseModel]] = {
    "function": FunctionTool,
    "prompty": PromptyTool,
    "mcp": McpTool,
    "openapi": OpenApiTool,
}
_CONNECTIONS: dict[str, type[BaseModel]] = {
    "key": connection.ApiKeyConnection,
    "reference": connection.ReferenceConnection,
    "remote": connection.RemoteConnection,
    "anonymous": connection.AnonymousConnection,
    "foundry": connection.FoundryConnection,
    "oauth": connection.OAuthConnection,
}


def unknown_keys(data: Mapping[str, Any], source: Source) -> list[Problem]:
    """A warning for each key nothing reads, with the nearest one that something does."""
    return [_problem(keys, known, source) for keys, known in _top(data)]


def _problem(keys: tuple[str | int, ...], known: list[str], source: Source) -> Problem:
    name = str(keys[-1])
    near = nearest(name, known)
    fix = f"Did you mean `{near}`? " if near else ""
    if keys[:2] == ("model", "options"):
        code, what = "unknown-option", f"unknown option `{name}`"
        fix += "Options of one provider go under `additionalProperties:`."
    else:
        code, what = "unknown-key", f"unknown key `{name}`"
        fix += "It is kept in `metadata`." if len(keys) == 1 else "It has no effect here."
    return source.at_key(keys, code, what, fix, severity="warning", on_key=True)


def nearest(name: str, known: list[str]) -> str | None:
    """The known name that reads most like this one, whatever its case and underscores."""
    plain = {candidate.lower().replace("_", ""): candidate for candidate in known}
    found = get_close_matches(name.lower().replace("_", ""), plain, 1)
    return plain[found[0]] if found else None


def _keys_of(definition: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in definition.model_fields.items()]


def _unknown(value: Any, keys: tuple[str | int, ...], definition: type[BaseModel]) -> Found:
    known = _keys_of(definition)
    if isinstance(value, dict):
        for name in value:
            if name not in known:
                yield (*keys, name), known


def _top(data: Mapping[str, Any]) -> Found:
    yield from _unknown(data, (), Frontmatter)
    for group in ("inputs", "outputs"):
        yield from _properties(data.get(group), (group,))
    yield from _model(data.get("model"))
    tools = data.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else []):
        yield from _tool(tool, ("tools", index))
    template = data.get("template")
    if isinstance(template, dict):
        yield from _unknown(template, ("template",), Template)
        yield from _unknown(template.get("format"), ("template", "format"), Format)
        yield from _unknown(template.get("parser"), ("template", "parser"), Parser)


def _model(model: Any) -> Found:
    if isinstance(model, dict):
        yield from _unknown(model, ("model",), Model)
        yield from _unknown(model.get("options"), ("model", "options"), ModelOptions)
        yield from _connection(model.get("connection"), ("model", "connection"))


def _connection(value: Any, keys: tuple[str | int, ...]) -> Found:
    definition = _CONNECTIONS.get(str(value.get("kind"))) if isinstance(value, dict) else None
    if definition:
        yield from _unknown(value, keys, definition)


def _tool(tool: Any, keys: tuple[str | int, ...]) -> Found:
    if isinstance(tool, dict):
        yield from _unknown(tool, keys, _TOOLS.get(str(tool.get("kind")), CustomTool))
        yield from _properties(tool.get("parameters"), (*keys, "parameters"))
        yield from _connection(tool.get("connection"), (*keys, "connection"))


def _properties(value: Any, keys: tuple[str | int, ...]) -> Found:
    if isinstance(value, list):
        entries = [((*keys, index), entry) for index, entry in enumerate(value)]
    elif isinstance(value, dict):
        entries = [((*keys, name), entry) for name, entry in value.items() if _is_property(entry)]
    else:
        entries = []
    for place, entry in entries:
        if isinstance(entry, dict):
            yield from _unknown(entry, place, Property)
            yield from _properties(entry.get("properties"), (*place, "properties"))
            yield from _unknown(entry.get("items"), (*place, "items"), Property)


def _is_property(value: Any) -> bool:
    return isinstance(value, dict) and not PROPERTY_KEYS.isdisjoint(value)
