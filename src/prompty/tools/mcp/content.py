"""Limit the size of an MCP server's messages, and convert its tools to functions and its results to message parts.

The server is not trusted: hidden characters in prose are escaped, and schemas must not have external references. The
SDK bounds the bytes of an event of an HTTP stream, and nothing else. So `LINES` is an encoding for the output of a
process that ends a line at the limit, and `limit_body` is a hook of the HTTP client that bounds the body of a response,
the events of a stream, and the values in each message, before the SDK parses it.
"""

import codecs
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from prompty.errors import ToolError
from prompty.model.content import AudioPart, ContentPart, FilePart, ImagePart, TextPart
from prompty.model.request import Function
from prompty.safety.json import TooManyValues, check_size
from prompty.safety.schemas import get_validator
from prompty.safety.visible import visible
from prompty.tools.calls import ReportedFailure, to_text
from prompty.wire.stream import MAX_LINES

if TYPE_CHECKING:
    from mcp_types import BlobResourceContents, CallToolResult, ContentBlock, TextResourceContents, Tool

MAX_MESSAGE_BYTES = 16_000_000
MAX_TOOL_DESCRIPTION = 4_000  # higher than for OpenAPI, because some servers explain a tool at length
MAX_DEFINITIONS_LENGTH = 2_000_000
LINES = "prompty_limited_lines"
_NOT_JSON = "\0\n"
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
MAX_NAME_LENGTH = 64
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_PROSE = frozenset({"description", "title", "$comment", "examples"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


class LineDecoder(codecs.IncrementalDecoder):
    """Decodes UTF-8 in whole lines. A line that is too long, or has too many values, is replaced with one that is not
    JSON.

    An unfinished line is kept here: the SDK would copy all of it for every piece that arrives.
    """

    def __init__(self, errors: str = "strict", limit: int | None = None) -> None:
        super().__init__(errors)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)
        self._limit = MAX_MESSAGE_BYTES if limit is None else limit
        self._pieces: list[str] = []
        self._length = 0

    def decode(self, input: Any, final: bool = False) -> str:
        *ends, rest = self._decoder.decode(input, final).split("\n")
        return "".join([self._end_line(end) for end in ends]) + self._add(rest)

    def _add(self, piece: str) -> str:
        """Buffer a piece of a line. End the line at the limit, so that the reader does not wait for the rest."""
        was_too_long = self._length > self._limit
        self._length += len(piece)
        if self._length <= self._limit:
            self._pieces.append(piece)
            return ""
        self._pieces.clear()
        return "" if was_too_long else _NOT_JSON

    def _end_line(self, piece: str) -> str:
        ended = self._add(piece)
        line = ended if self._length > self._limit else "".join([*self._pieces, "\n"])
        self._pieces.clear()
        self._length = 0
        try:
            check_size(line.encode(errors="replace"))
        except TooManyValues:
            return _NOT_JSON
        return line


def _find_codec(name: str) -> codecs.CodecInfo | None:
    if name != LINES:
        return None
    utf8 = codecs.lookup("utf-8")
    return codecs.CodecInfo(utf8.encode, utf8.decode, incrementaldecoder=LineDecoder, name=LINES)


codecs.register(_find_codec)


async def limit_body(response: Any) -> None:
    """Limit the body of a response: a message, or a stream of events with one each. Compressed bodies are refused."""
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    read = _read_events if is_stream else _read_message
    response.stream = _limited_stream()(response.stream, read, response.headers.get("content-encoding", "identity"))


@cache
def _limited_stream() -> Any:
    import httpx2  # slow, and many programs have no MCP server

    class LimitedStream(httpx2.AsyncByteStream):
        def __init__(self, stream: Any, read: Callable[[Any], AsyncIterator[bytes]], encoding: str) -> None:
            self._stream, self._read, self._encoding = stream, read, encoding

        async def __aiter__(self) -> Any:
            try:
                if self._encoding.strip().lower() not in ("", "identity"):
                    raise ValueError(f"the encoding '{self._encoding[:40]}' is not accepted")
                async for chunk in self._read(self._stream):
                    yield chunk
            except ValueError as error:  # the SDK answers the call that waits for an event
                failure = httpx2.SSEError if self._read is _read_events else httpx2.StreamError
                raise failure(str(error)) from None

        async def aclose(self) -> None:
            await self._stream.aclose()

    return LimitedStream


async def _read_message(stream: Any) -> AsyncIterator[bytes]:
    """Yield the body of one message. Raise `ValueError` beyond the limits."""
    chunks, length = [], 0
    async for chunk in stream:
        chunks.append(chunk)
        length += len(chunk)
        if length > MAX_MESSAGE_BYTES:
            raise ValueError(f"the message has more than {MAX_MESSAGE_BYTES:,} bytes")
    body = b"".join(chunks)
    _check_message(body)
    yield body


async def _read_events(stream: Any) -> AsyncIterator[bytes]:
    """Yield the bytes of a stream of events. Raise `ValueError` beyond the limits."""
    chunks, lines, end = list[bytes](), 0, b""
    async for chunk in stream:
        lines += max(chunk.count(b"\n"), chunk.count(b"\r"))
        if lines > MAX_LINES:
            raise ValueError(f"the stream has more than {MAX_LINES:,} lines")
        chunks.append(chunk)
        end += chunk  # an empty line may have begun in the chunk before
        if any(empty_line in end for empty_line in _EVENT_ENDS):
            _check_message(b"".join(chunks))
            chunks = [chunk]
        end = chunk[-3:]
        yield chunk


def _check_message(content: bytes) -> None:
    try:
        check_size(content)
    except TooManyValues as error:
        raise ValueError(f"the message has {error}") from None


class McpError(ReportedFailure):
    """A call failed. The model reads the text."""


def describe_tools(tools: "list[Tool]", server: str) -> "Iterator[tuple[Tool, Function]]":
    """Yield each tool with the function that the model sees. Sanitized names stay distinct."""
    taken = {tool.name for tool in tools}
    length = 0
    for tool in tools:
        name = _ILLEGAL.sub("_", tool.name)[:MAX_NAME_LENGTH] or "tool"
        if name != tool.name and name in taken:
            name = f"{name[: MAX_NAME_LENGTH - 9]}_{sha256(tool.name.encode(errors='replace')).hexdigest()[:8]}"
        taken.add(name)
        text = tool.description or tool.title
        description = _clean(text) if text else None
        schema = _check_schema(tool, server)
        length += len(description or "") + len(json.dumps(schema))
        if length > MAX_DEFINITIONS_LENGTH:
            raise ToolError(
                f"the definitions of the MCP server '{server}' have more than {MAX_DEFINITIONS_LENGTH:,} characters",
                "Select the tools that the model needs with `allowedTools`.",
            )
        yield tool, Function(name=name, description=description, parameters=schema)


def _clean(text: str) -> str:
    """Escape hidden characters in prose, and truncate it."""
    cleaned = visible(text[: MAX_TOOL_DESCRIPTION + 1])
    return cleaned if len(cleaned) <= MAX_TOOL_DESCRIPTION else f"{cleaned[: MAX_TOOL_DESCRIPTION - 1]}…"


def fingerprint(tool: "Tool") -> str:
    """Return a hash of everything that the model reads about a tool."""
    definition = [tool.name, tool.description or tool.title, tool.input_schema]
    return sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()


def _check_schema(tool: "Tool", server: str) -> dict[str, Any]:
    """Return a tool's schema with its prose escaped. Raise `ToolError` if the schema is invalid."""
    schema: dict[str, Any] = _escape_prose(tool.input_schema)
    place = f"the schema of the tool '{visible(tool.name)}' of the MCP server '{server}'"
    fix = "Exclude the tool with `allowedTools`, or have the server's schema corrected."
    if foreign := next(_foreign_references(schema), None):
        raise ToolError(f"{place} has an external reference, '{visible(foreign)}', which is not fetched", fix)
    try:
        get_validator(json.dumps(schema))
    except ValueError as error:
        raise ToolError(f"{place} is not a JSON Schema: {error}", fix) from None
    return schema


def _escape_prose(schema: Any, *, prose: bool = False) -> Any:
    """Escape hidden characters in descriptions, and truncate them. Keywords that affect validation don't change."""
    if isinstance(schema, dict):
        # a property may be named `description`: then its value is a schema, not prose
        return {
            key: _escape_prose(value, prose=prose or (key in _PROSE and not isinstance(value, dict)))
            for key, value in schema.items()
        }
    if isinstance(schema, list):
        return [_escape_prose(entry, prose=prose) for entry in schema]
    return _clean(schema) if prose and isinstance(schema, str) else schema


def _foreign_references(schema: Any) -> Iterator[str]:
    """Yield the references that a validator would read from a file or a server."""
    if isinstance(schema, dict):
        references = (value for key, value in schema.items() if key in _REFERENCES and isinstance(value, str))
        yield from (reference for reference in references if not reference.startswith("#"))
    entries = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for entry in entries:
        yield from _foreign_references(entry)


def to_parts(result: "CallToolResult") -> list[ContentPart]:
    """Return the parts of a result. Raise `McpError` if the tool reports an error."""
    parts = [_to_part(block) for block in result.content]
    has_text = any(isinstance(part, TextPart) for part in parts)
    if not has_text and result.structured_content is not None:
        parts.append(TextPart(to_text(result.structured_content)))
    if result.is_error:
        text = "\n".join(part.value for part in parts if isinstance(part, TextPart))
        raise McpError(text or "the server reported an error without a message")
    return parts or [TextPart("")]


def _to_part(block: "ContentBlock") -> ContentPart:
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
