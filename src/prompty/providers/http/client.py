"""HTTP clients on httpcore2, the engine of httpx2: requests out, bytes back, one deadline for each exchange.

httpx2's own client would add cookies, redirects, authentication flows and a timeout for each read, none of which is
wanted here, and half of the cost of a call. httpcore2's pool looks at each of its connections for each request, so
idle connections are kept here, in a stack.
"""

import asyncio
import logging
import sys
import time
import zlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from socket import SHUT_RDWR
from types import FrameType
from typing import Any, Generic, NoReturn, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import httpcore2

from prompty.certificates import find_tls_files, load_certificates
from prompty.errors import ModelError, PromptyError, mask_error
from prompty.model.request import Content, WireRequest
from prompty.providers.endpoint import Endpoint, Server
from prompty.providers.http.failures import answer_error, connection_error, timeout_error
from prompty.providers.http.network import AsyncNetwork, Deadline, Network, Unread
from prompty.safety.origins import Origin, parse_origin
from prompty.safety.redaction import SHORTEST_SECRET, Redactor, current_redactor, hide_secrets, mask_secrets
from prompty.wire.json_bytes import write_bytes

KEEP_ALIVE = 30  # seconds for which an idle connection is kept
MAX_IDLE = 64  # connections to one server that no call uses; calls in flight are not limited
MAX_ANSWER = 64 * 1024 * 1024  # bytes of an answer, whole or streamed, after decompression
MAX_ERROR = 64 * 1024  # bytes of the body of an error; the rest is not read
MAX_ERROR_SECONDS = 10.0  # for the body of an answer that has failed already
_MAX_DECOMPRESSED = 256 * 1024  # bytes that one step of decompression may return
AnyPool = TypeVar("AnyPool", "Pool", "AsyncPool")
Connection = TypeVar("Connection", httpcore2.ConnectionInterface, httpcore2.AsyncConnectionInterface)
_TIMEOUTS = (TimeoutError, httpcore2.TimeoutException)
_FAILURES = (
    OSError,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)
_MISTAKES = (httpcore2.LocalProtocolError, httpcore2.UnsupportedProtocol)  # trying again would not help


_SENDERS = (__name__, "prompty.providers.sdk", "prompty.tools.openapi.client")


class _MaskSecrets(logging.Filter):
    """httpcore2 logs what a server sends, at DEBUG; and a server knows the key.

    The program may also use httpcore2. Its records stay as they are.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if _sends_for_prompty(record):
            record.msg, record.args = mask_secrets(record.getMessage()), ()
        return True


def _sends_for_prompty(record: logging.LogRecord) -> bool:
    """Return True if a record that is being made comes from a request of ours. A record does not say for whom it is,
    but the call stack does. Walking it is slow, and nothing to what a program pays that logs at DEBUG."""
    if record.threadName == "prompty MCP sessions":  # the MCP SDK sends from tasks that it starts there
        return True
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") not in _SENDERS:
        frame = frame.f_back
    return frame is not None


for _name in ("connection", "http11", "proxy"):
    logging.getLogger(f"httpcore2.{_name}").addFilter(_MaskSecrets())


class _IdleConnections(Generic[Connection]):
    """Open connections that no call uses, the last used last. A closed collection keeps none."""

    def __init__(self) -> None:
        self._entries: deque[tuple[float, Connection]] = deque()
        self.is_closed = False

    def take(self) -> Connection | None:
        """Return the connection that was used last, or None. The server may have closed it."""
        try:
            return self._entries.pop()[1]
        except IndexError:
            return None

    def add(self, connection: Connection) -> list[Connection]:
        """Keep a connection, and return those that are no longer kept."""
        now = time.monotonic()
        self._entries.append((now, connection))
        dropped: list[Connection] = []
        try:
            while self.is_closed or len(self._entries) > MAX_IDLE or self._entries[0][0] < now - KEEP_ALIVE:
                dropped.append(self._entries.popleft()[1])
        except IndexError:  # none are left: other threads take some, too
            pass
        return dropped


class _Pool(Generic[Connection]):
    """Base of both pools: the idle connections to one origin, and what it takes to open more.

    All keys share them, because a key is a header of each request. The proxy and the certificates are those that the
    environment names when the pool is built.
    """

    is_busy = False  # closing it leaves calls under way alone

    def __init__(self, server: Server, pool: Callable[..., Any], connect: Callable[[Origin | None], object]) -> None:
        self.url: httpcore2.URL = httpcore2.URL(server.origin)
        self.host: str = server.origin.partition("://")[2]
        self.idle: _IdleConnections[Connection] = _IdleConnections()
        self._origin: httpcore2.Origin = self.url.origin
        certificates, proxy = load_certificates(find_tls_files()), _find_proxy(server.origin)
        # A proxy finds the address of a name by itself.
        network = connect(parse_origin(server.origin) if server.is_public and proxy is None else None)
        self.secrets: tuple[str, ...] = _find_password(proxy)
        self._factory = pool(
            ssl_context=certificates, keepalive_expiry=KEEP_ALIVE, proxy=proxy, network_backend=network
        )

    def open(self) -> Connection:
        """Return a new connection. It connects when it is used."""
        connection: Connection = self._factory.create_connection(self._origin)
        return connection


class Pool(_Pool[httpcore2.ConnectionInterface]):
    """Connections to one origin for synchronous code, shared by all threads."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, httpcore2.ConnectionPool, Network)

    def take(self) -> httpcore2.ConnectionInterface:
        """Return a connection that no other call uses."""
        while connection := self.idle.take():
            if not connection.has_expired():
                return connection
            connection.close()
        return self.open()

    def release(self, connection: httpcore2.ConnectionInterface, unread: Unread) -> None:
        """Keep a connection whose call has ended, or close it if it cannot be used again."""
        for surplus in self.idle.add(connection) if connection.is_idle() and not unread else [connection]:
            surplus.close()

    def close(self) -> None:
        """Close the connections that no call uses now, and each of the others when its call ends."""
        self.idle.is_closed = True
        while connection := self.idle.take():
            connection.close()


class AsyncPool(_Pool[httpcore2.AsyncConnectionInterface]):
    """Connections to one origin for one event loop."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, httpcore2.AsyncConnectionPool, AsyncNetwork)

    async def take(self) -> httpcore2.AsyncConnectionInterface:
        """Return a connection that no other call uses."""
        while connection := self.idle.take():
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return self.open()

    async def release(self, connection: httpcore2.AsyncConnectionInterface, unread: Unread) -> None:
        """Keep a connection whose call has ended, or close it if it cannot be used again."""
        for surplus in self.idle.add(connection) if connection.is_idle() and not unread else [connection]:
            await surplus.aclose()

    async def aclose(self) -> None:
        """Close the connections that no call uses now, and each of the others when its call ends."""
        self.idle.is_closed = True
        while connection := self.idle.take():
            await connection.aclose()


class EndpointClient:
    """Base of all transports: the headers of requests to one endpoint, and the secrets among them."""

    def __init__(self, endpoint: Endpoint, secrets: Iterable[str] = ()) -> None:
        self.endpoint = endpoint
        self._secrets = [*endpoint.secrets, *secrets]
        hide_secrets(self._secrets)

    @property
    def url(self) -> str:
        """The URL of the endpoint, without its query, which may hold a key."""
        return self.endpoint.base_url.partition("?")[0]

    def masked(self, text: str) -> str:
        """Return `text` without secrets."""
        return Redactor(self._secrets, shortest=SHORTEST_SECRET, parent=current_redactor()).mask(text)

    def write_headers(self, request: WireRequest, body: bytes | Content) -> tuple[str, dict[str, str]]:
        """Return the URL of a request and its headers, signed if the endpoint asks for it."""
        url = self.endpoint.get_url(request.path, str(request.body.get("model", "")) if self.endpoint.route else "")
        headers = {**dict(self.endpoint.headers), **{name.lower(): value for name, value in request.headers.items()}}
        if self.endpoint.credential is not None:
            signed = body if isinstance(body, bytes) else b""  # files go to servers that need no signature
            computed = self.endpoint.credential.headers(request.method, url, headers, signed)
            self._hide_tokens(computed.values())
            headers |= computed
        headers["content-length"] = str(len(body))
        return url, headers

    def _hide_tokens(self, headers: Iterable[str]) -> None:
        """Hide what a credential computed, which may be another token for each request."""
        if new := [token for value in headers if (token := value.rpartition(" ")[2]) not in self._secrets]:
            self._secrets += new
            hide_secrets(new)


class _HttpClient(EndpointClient, Generic[AnyPool]):
    """Base of our own transports: requests go over the connections of a pool."""

    def __init__(self, endpoint: Endpoint, pool: AnyPool) -> None:
        super().__init__(endpoint, pool.secrets)
        self.pool: AnyPool = pool

    def _write(self, request: WireRequest, deadline: Deadline, body: bytes | Content) -> httpcore2.Request:
        url, headers = self.write_headers(request, body)
        headers["host"] = self.pool.host
        pairs = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        timeout = {"connect": deadline, "read": deadline, "write": deadline}
        return httpcore2.Request(
            request.method, self._find_target(url), headers=pairs, content=body, extensions={"timeout": timeout}
        )

    def _find_target(self, url: str) -> httpcore2.URL:
        origin, target = self.pool.url, "/" + url.split("/", 3)[3].partition("#")[0]
        return httpcore2.URL(scheme=origin.scheme, host=origin.host, port=origin.port, target=target.encode("ascii"))


def _find_proxy(url: str) -> httpcore2.Proxy | None:
    """Return the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY name for a URL, unless NO_PROXY names its host.

    Requests to this machine stay on it: they may be plain http, and carry credentials.
    """
    origin = parse_origin(url)
    if origin and origin.is_loopback:
        return None
    parts, proxies = urlsplit(url), getproxies()
    named = proxies.get(parts.scheme) or proxies.get("all")
    if not named or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    host = proxy.netloc.rpartition("@")[2]
    credentials = (unquote(proxy.username), unquote(proxy.password or "")) if proxy.username else None
    return httpcore2.Proxy(urlunsplit((proxy.scheme, host, proxy.path, "", "")), auth=credentials)


def _find_password(proxy: httpcore2.Proxy | None) -> tuple[str, ...]:
    return tuple(part.decode() for part in proxy.auth) if proxy and proxy.auth else ()


class Body:
    """Incremental decompression of the body of a response, with a limit of its size."""

    __slots__ = ("_left", "_limit", "_unzip")

    def __init__(self, encoding: str, limit: int = MAX_ANSWER) -> None:
        self._left = self._limit = limit
        self._unzip = _create_decompressor(encoding.strip().lower())

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the content of a chunk. Raise ModelError beyond the limit, or if it cannot be decompressed."""
        if self._unzip is None:
            yield self._count(chunk)
            return
        while chunk:
            try:
                piece = self._unzip.decompress(chunk, _MAX_DECOMPRESSED)
            except zlib.error as error:
                raise ModelError(f"the answer cannot be decompressed: {error}", retryable=True) from None
            chunk = self._unzip.unconsumed_tail
            if piece:
                yield self._count(piece)
            elif not chunk or self._unzip.eof:
                return

    def finish(self) -> None:
        """Raise ModelError if the compressed data ends too early."""
        if self._unzip is not None and not self._unzip.eof:
            raise ModelError("the answer cannot be decompressed: it ends too early", retryable=True)

    def _count(self, piece: bytes) -> bytes:
        self._left -= len(piece)
        if self._left < 0:
            raise ModelError(f"the answer is longer than {self._limit:,} bytes")
        return piece


def _create_decompressor(encoding: str) -> "zlib._Decompress | None":
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip"):
        return zlib.decompressobj(16 + zlib.MAX_WBITS)
    raise ModelError(f"the answer is compressed as {encoding[:20]!r}, which was not asked for")


def _decode_headers(response: httpcore2.Response) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}


def write_body(request: WireRequest) -> bytes | Content:
    """Return the body of a request as it is sent."""
    if request.content is not None:
        return request.content
    return b"" if request.method in ("GET", "DELETE") else write_bytes(request.body)


def raise_failure(error: Exception, mask: Callable[[str], str]) -> NoReturn:
    """Raise what the HTTP library raised as an error of ours. Its own may quote the server, which knows the key."""
    if isinstance(error, PromptyError):
        mask_error(error, mask)
        raise error
    if isinstance(error, _TIMEOUTS):
        raise timeout_error() from None
    if isinstance(error, _FAILURES):
        cause = _find_cause(error)
        text, retryable = mask(str(cause)), not isinstance(error, _MISTAKES)
        raise connection_error(type(cause).__name__, text, retryable=retryable) from None
    raise ModelError(f"the call could not be made: {mask(f'{type(error).__name__}: {error}')}") from error


def _find_cause(error: BaseException) -> BaseException:
    """Return the first cause of an error: the last may only say that all attempts have failed."""
    while cause := error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__:
        error = cause
    return error


class HttpTransport(_HttpClient[Pool]):
    """Sends the requests of synchronous code to one endpoint."""

    def send(self, request: WireRequest, /) -> bytes:
        stream = self.stream(request)
        try:
            return b"".join(stream)
        finally:
            stream.close()

    def stream(self, request: WireRequest, /) -> "HttpBytes":
        deadline = Deadline(request.timeout)
        try:
            written = self._write(request, deadline, write_body(request))
            connection = self.pool.take()
            answer = HttpBytes(self, connection, connection.handle_request(written))
            answer.raise_if_failed(deadline, request.max_answer or MAX_ANSWER)
        except Exception as error:
            raise_failure(error, self.masked)
        return answer


class _Answer(Generic[AnyPool, Connection]):
    """Base of the bytes of an answer: its connection and its headers."""

    def __init__(self, client: _HttpClient[AnyPool], connection: Connection, response: httpcore2.Response) -> None:
        self._pool: AnyPool = client.pool
        self._masked = client.masked
        self._response = response
        self._connection: Connection = connection
        self._stream: Any = response.extensions["network_stream"]
        self._unread: Unread = self._stream.get_extra_info("unread")
        self._headers = _decode_headers(response)
        self._unread.expect_body(self._headers)
        self._is_open = True


class HttpBytes(_Answer[Pool, httpcore2.ConnectionInterface]):
    """The bytes of an answer as they arrive."""

    def raise_if_failed(self, deadline: Deadline, limit: int) -> None:
        """Raise ModelError, and close the answer, if its status is not 2xx or its encoding is unknown."""
        status = self._response.status
        try:
            if not 200 <= status < 300:
                raise answer_error(status, self._headers, self._read_error(deadline))
            self._body = Body(self._headers.get("content-encoding", ""), limit)
        except BaseException:  # an interrupt, too
            self.close()
            raise

    def _read_error(self, deadline: Deadline) -> bytes:
        """Return the beginning of the body of an error, or what arrived of it before it failed."""
        deadline.shorten(MAX_ERROR_SECONDS)
        content = b""
        try:
            body = Body(self._headers.get("content-encoding", ""))
            for chunk in self._response.iter_stream():
                for piece in body.feed(chunk):
                    content += piece
                    if len(content) > MAX_ERROR:
                        return content[:MAX_ERROR]
        except (ModelError, OSError, *_TIMEOUTS, httpcore2.NetworkError, httpcore2.ProtocolError):
            pass
        return content

    def __iter__(self) -> Iterator[bytes]:
        body = self._body
        try:
            for chunk in self._response.iter_stream():
                yield from body.feed(chunk)
            body.finish()
        except Exception as error:
            self.close()
            raise_failure(error, self._masked)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._response.close()
            self._pool.release(self._connection, self._unread)

    def abort(self) -> None:
        """Closing would not wake a thread that waits for bytes; the end of the connection does."""
        with suppress(OSError):
            self._stream.get_extra_info("socket").shutdown(SHUT_RDWR)


class AsyncHttpTransport(_HttpClient[AsyncPool]):
    """Sends the requests of one event loop to one endpoint. `admit` waits until a call may begin."""

    def __init__(self, endpoint: Endpoint, pool: AsyncPool, admit: Callable[[], Awaitable[None]]) -> None:
        super().__init__(endpoint, pool)
        self._admit = admit

    async def send(self, request: WireRequest, /) -> bytes:
        stream = await self.stream(request)
        try:
            return b"".join([chunk async for chunk in stream])
        finally:
            await stream.aclose()

    async def stream(self, request: WireRequest, /) -> "AsyncHttpBytes":
        deadline = Deadline(request.timeout)
        try:
            await self._admit()
            written = await self._write_async(request, deadline)
            connection = await self.pool.take()
            answer = AsyncHttpBytes(self, connection, await connection.handle_async_request(written))
            await answer.raise_if_failed(deadline)
        except Exception as error:
            raise_failure(error, self.masked)
        return answer

    async def _write_async(self, request: WireRequest, deadline: Deadline) -> httpcore2.Request:
        """Write a request. A credential that has to be renewed does not keep the event loop waiting."""
        body, credential = write_body(request), self.endpoint.credential
        if credential is None or credential.is_ready():
            return self._write(request, deadline, body)
        async with asyncio.timeout(deadline.left()):
            return await asyncio.to_thread(self._write, request, deadline, body)


class AsyncHttpBytes(_Answer[AsyncPool, httpcore2.AsyncConnectionInterface]):
    """The bytes of an answer as they arrive."""

    async def raise_if_failed(self, deadline: Deadline) -> None:
        """The async form of `HttpBytes.raise_if_failed`."""
        status = self._response.status
        try:
            if not 200 <= status < 300:
                raise answer_error(status, self._headers, await self._read_error(deadline))
            self._body = Body(self._headers.get("content-encoding", ""))
        except BaseException:  # a cancellation, too
            await self.aclose()
            raise

    async def _read_error(self, deadline: Deadline) -> bytes:
        """The async form of `HttpBytes._read_error`."""
        deadline.shorten(MAX_ERROR_SECONDS)
        content = b""
        try:
            body = Body(self._headers.get("content-encoding", ""))
            async for chunk in self._response.aiter_stream():
                for piece in body.feed(chunk):
                    content += piece
                    if len(content) > MAX_ERROR:
                        return content[:MAX_ERROR]
        except (ModelError, OSError, *_TIMEOUTS, httpcore2.NetworkError, httpcore2.ProtocolError):
            pass
        return content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = self._body
        try:
            async for chunk in self._response.aiter_stream():
                for piece in body.feed(chunk):
                    yield piece
            body.finish()
        except Exception as error:
            await self.aclose()
            raise_failure(error, self._masked)

    async def aclose(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._response.aclose()
            await self._pool.release(self._connection, self._unread)
