"""What an MCP server says, as we show it: its tools as functions of the model, its results as parts of a message.

Nothing here trusts the server: what people cannot see is written out, and no schema may name a place to fetch.
"""

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from prompty.errors import ToolError
from prompty.model.message import AudioPart, ContentPart, FilePart, ImagePart, TextPart
from prompty.model.request import Function
from prompty.safety.visible import visible
from prompty.tools.arguments import validator_of
from prompty.tools.results import text_of

if TYPE_CHECKING:
    from mcp_types import BlobResourceContents, CallToolResult, ContentBlock, TextResourceContents, Tool

LONGEST_NAME = 64
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_PROSE = frozenset({"description", "title", "$comment", "examples"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


class McpError(RuntimeError):
    """What went wrong in a call, in words for the model."""


def functions_of(tools: "list[Tool]", server: str) -> "Iterator[tuple[Tool, Function]]":
    """The tools of a server, each with what the model sees of it. Their names differ, also once they are cleaned."""
    taken = {tool.name for tool in tools}
    for tool in tools:
        name = legal_name(tool.name)
        if name != tool.name and name in taken:
            name = f"{name[: LONGEST_NAME - 9]}_{sha256(tool.name.encode(errors='replace')).hexdigest()[:8]}"
        taken.add(name)
        description = tool.description or tool.title
        yield (
            tool,
            Function(
                name=name,
                description=visible(description) if description else None,
                parameters=_checked(tool, server),
            ),
        )


def legal_name(name: str) -> str:
    """A name that every API takes."""
    return _ILLEGAL.sub("_", name)[:LONGEST_NAME] or "tool"


def fingerprint(tool: "Tool") -> str:
    """A hash of everything that the model is told about a tool."""
    told = [tool.name, tool.description or tool.title, tool.input_schema]
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _checked(tool: "Tool", server: str) -> dict[str, Any]:
    schema: dict[str, Any] = _visible_prose(tool.input_schema)
    place = f"the schema of '{visible(tool.name)}', a tool of the MCP server '{server}',"
    fix = "Leave the tool out with `allowedTools`, or ask for a server with a schema that can be used."
    if foreign := next(_foreign_references(schema), None):
        raise ToolError(f"{place} refers to '{visible(foreign)}', and nothing is fetched for a schema", fix)
    try:
        validator_of(schema)
    except ValueError as error:
        raise ToolError(f"{place} is not a JSON Schema: {str(error).partition(chr(10))[0]}", fix) from None
    return schema


def _visible_prose(schema: Any, *, prose: bool = False) -> Any:
    """A schema whose descriptions are visible; what counts when arguments are checked stays as it is."""
    if isinstance(schema, dict):
        return {key: _visible_prose(value, prose=prose or _is_prose(key, value)) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_visible_prose(entry, prose=prose) for entry in schema]
    return visible(schema) if prose and isinstance(schema, str) else schema


def _is_prose(key: str, value: object) -> bool:
    return key in _PROSE and not isinstance(value, dict)  # a property may be called `description`


def _foreign_references(schema: Any) -> Iterator[str]:
    """What a validator would read from a file or a server."""
    if isinstance(schema, dict):
        found = (value for key, value in schema.items() if key in _REFERENCES and isinstance(value, str))
        yield from (reference for reference in found if not reference.startswith("#"))
    entries = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for entry in entries:
        yield from _foreign_references(entry)


def parts_of(result: "CallToolResult") -> list[ContentPart]:
    """The parts of a result. An error of the tool is raised: the model reads it as one."""
    parts = [_part(block) for block in result.content]
    has_text = any(isinstance(part, TextPart) for part in parts)
    if not has_text and result.structured_content is not None:
        parts.append(TextPart(text_of(result.structured_content)))
    if result.is_error:
        said = "\n".join(part.value for part in parts if isinstance(part, TextPart))
        raise McpError(said or "the server says that it failed, and not why")
    return parts or [TextPart("")]


def _part(block: "ContentBlock") -> ContentPart:
    match block.type:
        case "text":
            return TextPart(block.text)
        case "image":
            return ImagePart(block.data, block.mime_type)
        case "audio":
            return AudioPart(block.data, block.mime_type)
        case "resource_link":
            return TextPart(" ".join(filter(None, [f"{block.name}:", str(block.uri), block.description])))
        case "resource":
            return _resource_part(block.resource)


def _resource_part(resource: "TextResourceContents | BlobResourceContents") -> ContentPart:
    text = getattr(resource, "text", None)
    if isinstance(text, str):
        return TextPart(text)
    value, media_type = getattr(resource, "blob", ""), resource.mime_type or "application/octet-stream"
    match media_type.partition("/")[0]:
        case "image":
            return ImagePart(value, media_type)
        case "audio":
            return AudioPart(value, media_type)
    return FilePart(value, media_type, str(resource.uri).rpartition("/")[2] or None)
