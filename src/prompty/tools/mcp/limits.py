"""Limits on the size of an MCP server's messages.

The SDK bounds the events of an HTTP stream. It does not bound a line of a process or the body of an HTTP response: for
the first, `LINES` is an encoding that ends a line at the limit; for the second, `limit_body` is a hook of the client.
"""

import codecs
from functools import cache
from typing import Any

from prompty.extras import require

MAX_MESSAGE_BYTES = 16_000_000
MAX_LISTED_TOOLS = 10_000
MAX_OFFERED_TOOLS = 500
MAX_TOOL_DESCRIPTION = 4_000  # higher than for OpenAPI, because some servers explain a tool at length
MAX_DEFINITIONS_LENGTH = 2_000_000
LINES = "prompty_limited_lines"
_NOT_JSON = "\0\n"


class LineDecoder(codecs.IncrementalDecoder):
    """Decodes UTF-8 in whole lines. A line that is too long is replaced with one that is not JSON.

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
        return line


def _find_codec(name: str) -> codecs.CodecInfo | None:
    if name != LINES:
        return None
    utf8 = codecs.lookup("utf-8")
    return codecs.CodecInfo(utf8.encode, utf8.decode, incrementaldecoder=LineDecoder, name=LINES)


codecs.register(_find_codec)


async def limit_body(response: Any) -> None:
    """Limit the body of a response that is one message. Compressed bodies are refused."""
    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        response.stream = _limited_stream()(response.stream, response.headers.get("content-encoding", "identity"))


@cache
def _limited_stream() -> Any:
    httpx: Any = require("httpx2", extra="mcp")

    class LimitedStream(httpx.AsyncByteStream):  # type: ignore[misc]  # the module is optional, and so untyped here
        def __init__(self, stream: Any, encoding: str) -> None:
            self._stream, self._encoding = stream, encoding

        async def __aiter__(self) -> Any:
            if self._encoding.strip().lower() not in ("", "identity"):
                raise httpx.StreamError(f"the encoding '{self._encoding[:40]}' is not accepted")
            length = 0
            async for chunk in self._stream:
                length += len(chunk)
                if length > MAX_MESSAGE_BYTES:
                    raise httpx.StreamError(f"the message has more than {MAX_MESSAGE_BYTES:,} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    return LimitedStream
