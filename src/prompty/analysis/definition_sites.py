"""The definitions that stand in a file, and where."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from prompty.model import connection
from prompty.model.agent import Frontmatter, Model
from prompty.model.connection import kind_of_connection
from prompty.model.options import ModelOptions
from prompty.model.property import PROPERTY_KEYS, Property
from prompty.model.template import Format, Parser, Template
from prompty.model.tool import CustomTool, FunctionTool, McpTool, OpenApiTool, PromptyTool

_TOOLS: dict[str, type[BaseModel]] = {
    "function": FunctionTool,
    "prompty": PromptyTool,
    "mcp": McpTool,
    "openapi": OpenApiTool,
}
CONNECTIONS: dict[str, type[BaseModel]] = {
    "key": connection.ApiKeyConnection,
    "reference": connection.ReferenceConnection,
    "remote": connection.RemoteConnection,
    "anonymous": connection.AnonymousConnection,
    "foundry": connection.FoundryConnection,
    "oauth": connection.OAuthConnection,
}


class Place(NamedTuple):
    """A map that is written where a definition is expected."""

    keys: tuple[str | int, ...]
    value: dict[Any, Any]
    definition: type[BaseModel]


Places = Iterator[Place]


def places(data: Mapping[str, Any]) -> Places:
    """Every definition of a file, from the top down."""
    yield from _place(data, (), Frontmatter)
    for group in ("inputs", "outputs"):
        yield from _properties(data.get(group), (group,))
    yield from _model(data.get("model"))
    tools = data.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else []):
        yield from _tool(tool, ("tools", index))
    template = data.get("template")
    if isinstance(template, dict):
        yield from _place(template, ("template",), Template)
        yield from _place(template.get("format"), ("template", "format"), Format)
        yield from _place(template.get("parser"), ("template", "parser"), Parser)


def _model(model: Any) -> Places:
    if isinstance(model, dict):
        yield from _place(model, ("model",), Model)
        yield from _place(model.get("options"), ("model", "options"), ModelOptions)
        yield from _connection(model.get("connection"), ("model", "connection"))


def _connection(value: Any, keys: tuple[str | int, ...]) -> Places:
    definition = CONNECTIONS.get(str(kind_of_connection(value))) if isinstance(value, dict) else None
    if definition:
        yield from _place(value, keys, definition)


def _tool(tool: Any, keys: tuple[str | int, ...]) -> Places:
    if isinstance(tool, dict):
        yield from _place(tool, keys, _TOOLS.get(str(tool.get("kind")), CustomTool))
        yield from _properties(tool.get("parameters"), (*keys, "parameters"))
        yield from _connection(tool.get("connection"), (*keys, "connection"))


def _properties(value: Any, keys: tuple[str | int, ...]) -> Places:
    if isinstance(value, list):
        entries = [((*keys, index), entry) for index, entry in enumerate(value)]
    elif isinstance(value, dict):
        entries = [((*keys, name), entry) for name, entry in value.items() if _is_property(entry)]
    else:
        entries = []
    for place, entry in entries:
        if isinstance(entry, dict):
            yield from _place(entry, place, Property)
            yield from _properties(entry.get("properties"), (*place, "properties"))
            yield from _place(entry.get("items"), (*place, "items"), Property)


def _is_property(value: Any) -> bool:
    return isinstance(value, dict) and not PROPERTY_KEYS.isdisjoint(value)


def _place(value: Any, keys: tuple[str | int, ...], definition: type[BaseModel]) -> Places:
    if isinstance(value, dict):
        yield Place(keys, value, definition)
