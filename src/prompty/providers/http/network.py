"""httpcore2's network streams, with one deadline for a whole exchange and no byte beyond the end of a response.

httpcore2 hands a timeout through to every read and write. As a plain number it would start anew each time, so a server
that sends a byte now and then could hold a call for ever. A `Deadline` is a number that knows when it was given.

h11 keeps bytes that follow a response, and reads them as the response to the next request. So it gets bytes in pieces
that end where a response can end. What is left then came unasked, and its connection is not used again.
"""

import asyncio
import re
import socket
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import httpcore2

from prompty.model.trust import refuse_private
from prompty.safety.origins import Origin

MAX_SILENCE = 600.0  # seconds without a byte
MAX_CONNECT = 10.0
_MAX_ADDRESSES = 3  # of a name
_READ_SIZE = 1024 * 1024  # more than asyncio ever receives at once, so that anyio's stream keeps nothing back
_WRITE_SIZE = 64 * 1024  # bytes between two checks of the deadline
# anyio's TLS stream takes 64 KiB at a time from its socket stream, and a record has up to 16 KiB. After less than the
# difference, either a whole record is left, which OpenSSL reports, or the socket stream has nothing left.
_MOST_BEFORE_UNSEEN = 47 * 1024
_RECORD_OVERHEAD = 72  # bytes
_EMPTY_LINE = re.compile(rb"\n\r?\n")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,20}(?=[;\s])")
_LONGEST_SIZE_LINE = 4096  # bytes, with what a server adds to the size

Inner = TypeVar("Inner", httpcore2.NetworkStream, httpcore2.AsyncNetworkStream)
SocketOptions = Iterable[httpcore2.SOCKET_OPTION] | None


class Deadline(float):
    """Seconds that an exchange may take, counted from now. Without a number, only silence is limited."""

    __slots__ = ("_end",)
    _end: float | None

    def __new__(cls, seconds: float | None) -> "Deadline":
        created = super().__new__(cls, MAX_SILENCE if seconds is None else seconds)
        created._end = None if seconds is None else time.monotonic() + seconds
        return created

    def left(self, most: float = MAX_SILENCE) -> float:
        """Return the seconds that the next step may take. Raise TimeoutError if none are left."""
        if self._end is None:
            return most
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return min(left, most)

    def shorten(self, seconds: float) -> None:
        """Move the end to at most `seconds` from now."""
        end = time.monotonic() + seconds
        self._end = end if self._end is None else min(self._end, end)


def _get_left(timeout: float | None, most: float = MAX_SILENCE) -> float | None:
    return timeout.left(most) if isinstance(timeout, Deadline) else timeout


class Unread:
    """Received bytes that the HTTP parser has not been given yet, in pieces that end where a response can end.

    Headers end with an empty line. Then `expect_body` says how a body ends: after its length, or after its last chunk,
    which has no bytes. The lines after that one are pieces of their own, and so are headers that come in parts.
    """

    __slots__ = ("_by_line", "_data", "_has_chunks", "_in_headers", "_left", "_size_line")

    def __init__(self) -> None:
        self._data = b""
        self.expect_headers()

    def __bool__(self) -> bool:
        return bool(self._data)

    def expect_headers(self) -> None:
        """Begin a response."""
        self._in_headers = True
        self._by_line = self._has_chunks = False
        self._left: int | None = None  # bytes of the body, or of its current chunk and the end of its line

    def expect_body(self, headers: Mapping[str, str]) -> None:
        """Go on to the body of a response with these headers, which h11 has checked. Names are in lower case."""
        self._in_headers = self._by_line = False
        if "transfer-encoding" in headers:
            self._has_chunks, self._left, self._size_line = True, 0, b""
        elif "content-length" in headers:
            self._left = int(headers["content-length"])

    def add(self, data: bytes) -> None:
        """Take what a socket has received, when nothing else is left."""
        self._data = data
        if self._in_headers and not self._by_line and data[:1] != b"H":
            self._in_headers = False  # not a response, but the reply of a SOCKS proxy, or one that h11 refuses

    def take(self, most: int) -> bytes:
        """Return the next piece."""
        data = self._data
        end = min(len(data), most)
        if self._by_line:
            end = data.find(b"\n", 0, end) + 1 or end
        elif self._has_chunks:
            end = self._find_last_chunk(data, end)
        elif self._left is not None:
            end = min(end, self._left)
            self._left -= end
        elif self._in_headers:
            found = _EMPTY_LINE.search(data, 0, end)
            end = found.end() if found else end
            self._by_line = not found
        self._data = data[end:]
        return data[:end]

    def _find_last_chunk(self, data: bytes, end: int) -> int:
        """Return where the size of the last chunk ends, or `end` if the last one has not begun."""
        at = 0
        while at < end:
            if self._left:
                step = min(self._left, end - at)
                self._left -= step
                at += step
                continue
            line_end = data.find(b"\n", at, end) + 1 or end
            self._size_line += data[at:line_end]
            at = line_end
            if len(self._size_line) > _LONGEST_SIZE_LINE:
                self._by_line = True  # slow, but it needs no size
                return at
            if self._size_line.endswith(b"\r\n"):
                size = _CHUNK_SIZE.match(self._size_line)
                bytes_in_chunk = int(size[0], 16) if size else 0  # h11 refuses what is not a size
                self._size_line = b""
                if not bytes_in_chunk:
                    self._by_line = True
                    return at
                self._left = bytes_in_chunk + len(b"\r\n")
        return end


class Network(httpcore2.SyncBackend):
    """Connects for synchronous code. With an `origin`, it connects to public addresses of that one only."""

    def __init__(self, origin: Origin | None = None) -> None:
        self._origin = origin

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions = None,
    ) -> httpcore2.NetworkStream:
        for is_last, address in self._find_addresses(host, port):
            left = _get_left(timeout, MAX_CONNECT)
            try:
                return Stream(super().connect_tcp(address, port, left, local_address, socket_options))
            except httpcore2.ConnectError:
                if is_last:
                    raise
        raise httpcore2.ConnectError("the host has no address")

    def _find_addresses(self, host: str, port: int) -> list[tuple[bool, str]]:
        """Return where to connect, and whether it is the last of these addresses."""
        if self._origin is None:
            return [(True, host)]
        try:
            return _check_addresses(self._origin, socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(str(error)) from error


def _check_addresses(origin: Origin, found: Sequence[tuple[Any, ...]]) -> list[tuple[bool, str]]:
    """Return the addresses of an origin, which must be public. The name is not resolved again: it may have another one
    by then."""
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))[:_MAX_ADDRESSES]
    if refusal := refuse_private(origin, addresses):
        raise refusal.as_error()
    return [(address == addresses[-1], address) for address in addresses]


class _Buffered(Generic[Inner]):
    """A connection whose bytes are kept until they are flushed, or taken."""

    def __init__(self, stream: Inner) -> None:
        self._stream: Inner = stream
        self._unsent = b""
        self.unread: Unread = Unread()

    def get_extra_info(self, info: str) -> Any:
        if info == "unread":
            return self.unread
        return (info == "is_readable" and bool(self.unread)) or self._stream.get_extra_info(info)


class Stream(_Buffered[httpcore2.NetworkStream], httpcore2.NetworkStream):
    """A connection of synchronous code."""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._unsent:
            with suppress(httpcore2.WriteError):  # the server may have answered before it had read everything
                self._flush(timeout)
        if not self.unread:
            self.unread.add(self._stream.read(_READ_SIZE, _get_left(timeout)))
        return self.unread.take(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.unread.expect_headers()
        self._unsent += buffer
        if len(self._unsent) > _WRITE_SIZE:
            self._flush(timeout)

    def _flush(self, timeout: float | None) -> None:
        """Send what was written: headers and body together, before the first read."""
        unsent, self._unsent = self._unsent, b""
        for start in range(0, len(unsent), _WRITE_SIZE):
            self._stream.write(unsent[start : start + _WRITE_SIZE], _get_left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        try:
            return Stream(self._stream.start_tls(ssl_context, server_hostname, _get_left(timeout, MAX_CONNECT)))
        except BaseException:  # the stream closes itself after an error, but not after an interrupt
            self.close()
            raise


class AsyncNetwork(httpcore2.AnyIOBackend):
    """Connects for asyncio. With an `origin`, it connects to public addresses of that one only."""

    def __init__(self, origin: Origin | None = None) -> None:
        self._origin = origin

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions = None,
    ) -> httpcore2.AsyncNetworkStream:
        for is_last, address in await self._find_addresses(host, port, timeout):
            left = _get_left(timeout, MAX_CONNECT)
            try:
                return AsyncStream(await super().connect_tcp(address, port, left, local_address, socket_options))
            except httpcore2.ConnectError:
                if is_last:
                    raise
        raise httpcore2.ConnectError("the host has no address")

    async def _find_addresses(self, host: str, port: int, timeout: float | None) -> list[tuple[bool, str]]:
        if self._origin is None:
            return [(True, host)]
        try:
            async with asyncio.timeout(_get_left(timeout, MAX_CONNECT)):
                loop = asyncio.get_running_loop()
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            kind = httpcore2.ConnectTimeout if isinstance(error, TimeoutError) else httpcore2.ConnectError
            raise kind(str(error)) from error
        return _check_addresses(self._origin, found)


class AsyncStream(_Buffered[httpcore2.AsyncNetworkStream], httpcore2.AsyncNetworkStream):
    """A connection of an event loop."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._unsent:
            with suppress(httpcore2.WriteError):  # the server may have answered before it had read everything
                await self._flush(timeout)
        if not self.unread:
            self.unread.add(await self._receive(timeout))
        return self.unread.take(max_bytes)

    async def _receive(self, timeout: float | None) -> bytes:
        return await self._stream.read(_READ_SIZE, _get_left(timeout))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.unread.expect_headers()
        self._unsent += buffer
        if len(self._unsent) > _WRITE_SIZE:
            await self._flush(timeout)

    async def _flush(self, timeout: float | None) -> None:
        """Send what was written: headers and body together, before the first read."""
        unsent, self._unsent = self._unsent, b""
        await self._stream.write(unsent, _get_left(timeout))

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        left = _get_left(timeout, MAX_CONNECT)
        try:
            return AsyncTlsStream(await self._stream.start_tls(ssl_context, server_hostname, left))
        except BaseException:  # the stream closes itself after an error, but not after a cancellation
            await self.aclose()
            raise


class AsyncTlsStream(AsyncStream):
    """An encrypted connection of an event loop. Records that were received may not have been decrypted yet."""

    _at_once: int = 0  # bytes of records since the last read that had to wait
    _has_waited: bool = False

    async def _receive(self, timeout: float | None) -> bytes:
        self._has_waited = False
        mark = asyncio.get_running_loop().call_soon(self._note_wait)
        data = await super()._receive(timeout)
        mark.cancel()
        self._at_once = len(data) + _RECORD_OVERHEAD + (0 if self._has_waited else self._at_once)
        return data

    def _note_wait(self) -> None:
        self._has_waited = True

    def get_extra_info(self, info: str) -> Any:
        found = super().get_extra_info(info)
        return self._has_unseen() if info == "is_readable" and not found else found

    def _has_unseen(self) -> bool:
        """Return True if records may have come that no read has returned."""
        if self._at_once >= _MOST_BEFORE_UNSEEN:
            return True
        try:
            self._stream.get_extra_info("ssl_object").read(1)
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            return True
        return True
