"""Sockets for httpcore2, the engine of httpx2. A deadline comes in the place of each timeout.

httpcore2 hands a timeout through to every read and write. As a number it would begin anew each time, so that a server
which sends a byte now and then could keep a call for ever.
"""

import asyncio
import select
import socket
import ssl
from collections.abc import Iterable
from typing import Any, cast

import httpcore2

from prompty.providers.http.deadline import MAX_CONNECT, Deadline

_MOST_WRITTEN = 64 * 1024  # bytes between two looks at the deadline
_MOST_BUFFERED = 256 * 1024  # bytes that wait to be read before the socket is paused
SocketOptions = Iterable[Any] | None


def _deadline(timeout: object) -> Deadline:
    return cast(Deadline, timeout)


class Network(httpcore2.SyncBackend):
    """Connects for synchronous code."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions = None,
    ) -> httpcore2.NetworkStream:
        deadline = _deadline(timeout)
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        for family, kind, protocol, _, address in _look_up(host, port):
            connected = socket.socket(family, kind, protocol)
            try:
                connected.settimeout(deadline.left(MAX_CONNECT))
                connected.connect(address)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return _Stream(connected)
            except OSError as error:
                connected.close()
                failure = error
        raise failure


def _look_up(host: str, port: int) -> list[Any]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


class _Stream(httpcore2.NetworkStream):
    """A connected socket, with or without TLS."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._socket.settimeout(_deadline(timeout).left())
        return self._socket.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        rest = memoryview(buffer)
        while rest:
            self._socket.settimeout(_deadline(timeout).left())
            try:
                rest = rest[self._socket.send(rest[:_MOST_WRITTEN]) :]
            except TimeoutError:
                raise
            except OSError as error:  # the server may have answered before it had read everything
                raise httpcore2.WriteError(error) from error

    def close(self) -> None:
        self._socket.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        self._socket.settimeout(_deadline(timeout).left(MAX_CONNECT))
        try:
            return _Stream(ssl_context.wrap_socket(self._socket, server_hostname=server_hostname))
        except BaseException:
            self.close()
            raise

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return _is_readable(self._socket)
        if info == "ssl_object":
            return self._socket if isinstance(self._socket, ssl.SSLSocket) else None
        return self._socket if info == "socket" else None


def _is_readable(idle: socket.socket) -> bool:
    """Return True if an idle connection has something to read: that the server has closed it, as a rule."""
    if idle.fileno() < 0:
        return True
    idle.settimeout(0)
    try:
        idle.recv(1, 0 if isinstance(idle, ssl.SSLSocket) else socket.MSG_PEEK)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    return True


def _has_input(transport: asyncio.Transport) -> bool:
    """Return True if the socket has something to read that its loop, which may have rested, has not seen yet."""
    descriptor = transport.get_extra_info("socket").fileno()
    if descriptor < 0:
        return True
    if not hasattr(select, "poll"):  # on Windows
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


class AsyncNetwork(httpcore2.AsyncNetworkBackend):
    """Connects for asyncio."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions = None,
    ) -> httpcore2.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_deadline(timeout).left(MAX_CONNECT)):
            _, connection = await loop.create_connection(_Connection, host, port, happy_eyeballs_delay=0.25)
        return connection


class _Connection(asyncio.Protocol, httpcore2.AsyncNetworkStream):
    """A connected socket of an event loop, with or without TLS."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._ended: bool = False
        self._failure: Exception | None = None
        self._paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._reader: asyncio.Future[None] | None = None

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _MOST_BUFFERED and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._failure = True, exc
        self._writable.set()
        self._wake()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # What httpcore2 calls.

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if not self._received and not self._ended:
            self._reader = asyncio.get_running_loop().create_future()
            async with asyncio.timeout(_deadline(timeout).left()):
                await self._reader
        else:
            _deadline(timeout).left()
        if not self._received and self._failure is not None:
            raise self._failure
        data = bytes(self._received[:max_bytes])
        del self._received[:max_bytes]
        if self._paused and not self._received:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._ended:
            raise httpcore2.WriteError(self._failure or "the server has closed the connection")
        self._transport.write(buffer)
        if not self._writable.is_set():
            async with asyncio.timeout(_deadline(timeout).left()):
                await self._writable.wait()

    async def aclose(self) -> None:
        self._transport.abort()
        await asyncio.sleep(0)  # the socket is closed in the next pass of the loop

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_deadline(timeout).left(MAX_CONNECT)):
                secured = await loop.start_tls(self._transport, self, ssl_context, server_hostname=server_hostname)
        except BaseException:
            self._transport.abort()
            raise
        self._transport = cast(asyncio.Transport, secured)
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # an idle connection has nothing to say but that it ends
            return self._ended or bool(self._received) or _has_input(self._transport)
        return self._transport.get_extra_info(info)
