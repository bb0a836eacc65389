"""Transports on httpcore2, the engine of httpx2.

httpx2's own client would add cookies, redirects, authentication flows and a timeout for each read, none of which is
wanted here, and half of the cost of a call.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import cache
from socket import SHUT_RDWR
from typing import Any, NoReturn
from urllib.parse import urlsplit

import httpcore2

from prompty.errors import ModelError, PromptyError
from prompty.model.request import WireRequest
from prompty.providers.http.body import MAX_ERROR, Body
from prompty.providers.http.deadline import MAX_ERROR_BODY, Deadline
from prompty.providers.http.endpoint import Endpoint, write_body
from prompty.providers.http.environment import TlsFiles, find_proxy, find_tls_files, reading_certificates
from prompty.providers.http.failures import answer_error, connection_error, timeout_error
from prompty.providers.http.network import AsyncNetwork, Network
from prompty.safety.redaction import mask_secrets, remember_secrets

MAX_CONNECTIONS = 20_000  # a program may have that many calls in flight
_TIMEOUTS = (TimeoutError, httpcore2.TimeoutException)
_FAILURES = (
    OSError,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)
_MISTAKES = (httpcore2.LocalProtocolError, httpcore2.UnsupportedProtocol)  # trying again would not help


class _MaskSecrets(logging.Filter):
    """httpcore2 logs what a server sends, at DEBUG; and a server knows the key."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = mask_secrets(record.getMessage()), ()
        return True


for _name in ("connection", "http11", "proxy"):
    logging.getLogger(f"httpcore2.{_name}").addFilter(_MaskSecrets())


class _HttpConnection:
    """What the synchronous and the asynchronous transport have in common: requests out, failures back."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.address: str = endpoint.address
        self._urls: dict[tuple[str, str], tuple[str, httpcore2.URL]] = {}
        self._host: str = urlsplit(endpoint.base_url).netloc.rpartition("@")[2]
        remember_secrets(endpoint.secrets)

    def masked(self, text: str) -> str:
        """Return `text` without secrets."""
        return mask_secrets(text)

    def _write(self, request: WireRequest, deadline: Deadline, body: bytes) -> httpcore2.Request:
        url, parsed = self._find_url(request)
        headers = self.endpoint.headers_for(request, url, body)
        headers["host"], headers["content-length"] = self._host, str(len(body))
        pairs = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        timeout = {"connect": deadline, "read": deadline, "write": deadline, "pool": deadline.left()}
        return httpcore2.Request(request.method, parsed, headers=pairs, content=body, extensions={"timeout": timeout})

    def _find_url(self, request: WireRequest) -> tuple[str, httpcore2.URL]:
        model = str(request.body.get("model", "")) if self.endpoint.route else ""
        found = self._urls.get((request.path, model))
        if found is None:
            url = self.endpoint.url_of(request.path, model)
            found = self._urls[request.path, model] = url, httpcore2.URL(url)
        return found

    def _pool_options(self, idle: int) -> dict[str, Any]:
        proxy = find_proxy(self.endpoint.base_url)
        return {
            "ssl_context": _load_certificates(find_tls_files()),
            "max_connections": MAX_CONNECTIONS,
            "max_keepalive_connections": idle,
            "keepalive_expiry": 30,
            "proxy": proxy and httpcore2.Proxy(proxy.url, auth=proxy.credentials),
        }


@cache
def _load_certificates(files: TlsFiles) -> ssl.SSLContext:
    """Return whom to trust. Reading it is nearly all that building a client costs, so all clients share it."""
    with reading_certificates():
        context = httpcore2.default_ssl_context()
        if files.client:
            context.load_cert_chain(files.client, files.client_key)
        return context


def _get_headers(response: httpcore2.Response) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}


def _get_encoding(response: httpcore2.Response) -> str:
    for name, value in response.headers:
        if name.lower() == b"content-encoding":
            return value.decode("latin-1").strip().lower()
    return ""


def raise_failure(error: Exception) -> NoReturn:
    """Raise what the HTTP library raised as an error of ours. Its own may quote the server, which knows the key."""
    if isinstance(error, PromptyError):
        raise error
    if isinstance(error, _TIMEOUTS):
        raise timeout_error() from None
    if isinstance(error, _FAILURES):
        raise connection_error(type(error).__name__, str(error), retryable=not isinstance(error, _MISTAKES)) from None
    raise ModelError(f"the call could not be made: {mask_secrets(f'{type(error).__name__}: {error}')}") from error


class HttpTransport(_HttpConnection):
    """The transport of one endpoint for synchronous code, shared by all threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._pool = httpcore2.ConnectionPool(**self._pool_options(1000), network_backend=Network())

    def send(self, request: WireRequest, /) -> bytes:
        stream = self.stream(request)
        try:
            return b"".join(stream)
        finally:
            stream.close()

    def stream(self, request: WireRequest, /) -> "HttpBytes":
        deadline = Deadline(request.timeout)
        try:
            response = self._pool.handle_request(self._write(request, deadline, write_body(request)))
            if not 200 <= response.status < 300:
                raise answer_error(response.status, _get_headers(response), _read_error(response, deadline))
        except Exception as error:
            raise_failure(error)
        try:
            return HttpBytes(response)
        except ModelError:  # its encoding is unknown
            response.close()
            raise

    def close(self) -> None:
        self._pool.close()


def _read_error(response: httpcore2.Response, deadline: Deadline) -> bytes:
    """Return the beginning of the body of an error, or what has come of it before it failed."""
    deadline.shorten(MAX_ERROR_BODY)
    content = b""
    try:
        body = Body(_get_encoding(response))
        for chunk in response.iter_stream():
            for piece in body.feed(chunk):
                content += piece
                if len(content) > MAX_ERROR:
                    return content[:MAX_ERROR]
    except (ModelError, OSError, *_TIMEOUTS, httpcore2.NetworkError, httpcore2.ProtocolError):
        pass
    finally:
        response.close()
    return content


class HttpBytes:
    """The bytes of an answer while they come."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response
        self._body = Body(_get_encoding(response))

    def __iter__(self) -> Iterator[bytes]:
        body = self._body
        try:
            for chunk in self._response.iter_stream():
                yield from body.feed(chunk)
            body.finish()
        except Exception as error:
            self._response.close()
            raise_failure(error)

    def close(self) -> None:
        self._response.close()

    def abort(self) -> None:
        """Closing would not wake a thread that waits for bytes; the end of the connection does."""
        with suppress(OSError):
            self._response.extensions["network_stream"].get_extra_info("socket").shutdown(SHUT_RDWR)


class AsyncHttpTransport(_HttpConnection):
    """The transport of one endpoint for one event loop, and how many calls it has in flight.

    `turns` are the calls that may begin in one pass of the event loop. If thousands began at once, the first would
    not be looked at before their connections timed out.
    """

    busy: int = 0

    def __init__(self, endpoint: Endpoint, turns: asyncio.Semaphore, idle: int) -> None:
        super().__init__(endpoint)
        self._turns = turns
        self._pool = httpcore2.AsyncConnectionPool(**self._pool_options(idle), network_backend=AsyncNetwork())

    async def send(self, request: WireRequest, /) -> bytes:
        stream = await self.stream(request)
        try:
            return b"".join([chunk async for chunk in stream])
        finally:
            await stream.aclose()

    async def stream(self, request: WireRequest, /) -> "AsyncHttpBytes":
        self.busy += 1
        deadline = Deadline(request.timeout)
        try:
            await self._take_turn()
            body = write_body(request)
            credential = self.endpoint.credential
            if credential is None or credential.is_ready():
                written = self._write(request, deadline, body)
            else:
                async with asyncio.timeout(deadline.left()):
                    written = await asyncio.to_thread(self._write, request, deadline, body)
            response = await self._pool.handle_async_request(written)
            if not 200 <= response.status < 300:
                raise answer_error(response.status, _get_headers(response), await _read_error_async(response, deadline))
        except Exception as error:
            raise_failure(error)
        finally:
            self.busy -= 1
        try:
            return AsyncHttpBytes(self, response)
        except ModelError:  # its encoding is unknown
            await response.aclose()
            raise

    async def _take_turn(self) -> None:
        await self._turns.acquire()
        asyncio.get_running_loop().call_soon(self._turns.release)

    async def aclose(self) -> None:
        await self._pool.aclose()


async def _read_error_async(response: httpcore2.Response, deadline: Deadline) -> bytes:
    """The async form of `_read_error`."""
    deadline.shorten(MAX_ERROR_BODY)
    content = b""
    try:
        body = Body(_get_encoding(response))
        async for chunk in response.aiter_stream():
            for piece in body.feed(chunk):
                content += piece
                if len(content) > MAX_ERROR:
                    return content[:MAX_ERROR]
    except (ModelError, OSError, *_TIMEOUTS, httpcore2.NetworkError, httpcore2.ProtocolError):
        pass
    finally:
        await response.aclose()
    return content


class AsyncHttpBytes:
    """The bytes of an answer while they come."""

    def __init__(self, transport: AsyncHttpTransport, response: httpcore2.Response) -> None:
        self._transport, self._response = transport, response
        self._body = Body(_get_encoding(response))
        self._closed = False
        transport.busy += 1

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = self._body
        try:
            async for chunk in self._response.aiter_stream():
                for piece in body.feed(chunk):
                    yield piece
            body.finish()
        except Exception as error:
            await self._response.aclose()
            raise_failure(error)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._transport.busy -= 1
            await self._response.aclose()
