"""Transports on pyreqwest, bindings to Rust's reqwest: a fraction of the processor time of `httpx2`.

A call that is cancelled before the headers of its answer have come leaves its connection open until its deadline.
A connection that the server closes a moment before a call may still be used for it: the call fails, and is retried.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any, NoReturn

from pyreqwest.client import ClientBuilder
from pyreqwest.exceptions import (
    BuilderError,
    DetailedPyreqwestError,
    PyreqwestError,
    RequestTimeoutError,
)
from pyreqwest.proxy import ProxyBuilder

from prompty.errors import ModelError, PromptyError
from prompty.model.request import WireRequest
from prompty.providers.http.body import MAX_ERROR, Body
from prompty.providers.http.deadline import MAX_CONNECT, MAX_ERROR_BODY, MAX_SILENCE, Deadline
from prompty.providers.http.endpoint import Endpoint, write_body
from prompty.providers.http.environment import find_proxy
from prompty.providers.http.failures import answer_error, connection_error, timeout_error
from prompty.providers.http.waiting import Waiting
from prompty.safety.redaction import mask_secrets, remember_secrets

_READ_AHEAD = 64 * 1024  # bytes of a whole answer that Rust may hold
_inherited: list[Any] = []  # clients of a parent process


class _FastConnection:
    """What the synchronous and the asynchronous transport have in common: requests out, failures back."""

    client: Any = None

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.address: str = endpoint.address
        remember_secrets(endpoint.secrets)
        self._process = os.getpid()
        self.client = _configure(ClientBuilder(), endpoint).build()

    def masked(self, text: str) -> str:
        """Return `text` without secrets."""
        return mask_secrets(text)

    def _write(self, request: WireRequest, body: bytes, *, read_ahead: int) -> Any:
        model = str(request.body.get("model", "")) if self.endpoint.route else ""
        url = self.endpoint.url_of(request.path, model)
        headers = self.endpoint.headers_for(request, url, body)
        builder = self.client.request(request.method, url).headers(headers).body_bytes(body)
        if request.timeout is not None:
            builder = builder.timeout(timedelta(seconds=request.timeout))
        return builder.streamed_read_buffer_limit(read_ahead).build_streamed()

    def __del__(self) -> None:
        """Keep the client in a child of `fork()`: dropping it could wait for threads that only the parent has."""
        if self._process != os.getpid():
            _inherited.append(self.client)

    async def _let_go(self) -> None:
        """Close the client. Its idle connections end when nothing refers to it any more."""
        client, self.client = self.client, None
        await client.close()


def _configure(builder: Any, endpoint: Endpoint) -> Any:
    builder = (
        builder.follow_redirects(False)
        .default_cookie_store(False)
        .gzip(False)
        .brotli(False)
        .zstd(False)
        .deflate(False)
        .referer(False)
        .http1_only()
        .connect_timeout(timedelta(seconds=MAX_CONNECT))
        .read_timeout(timedelta(seconds=MAX_SILENCE))
        .pool_idle_timeout(timedelta(seconds=30))
        .no_proxy()
    )
    if proxy := find_proxy(endpoint.base_url):
        all_requests = ProxyBuilder.all(proxy.url)
        builder = builder.proxy(all_requests.basic_auth(*proxy.credentials) if proxy.credentials else all_requests)
    return builder


def raise_failure(error: Exception) -> NoReturn:
    """Raise what pyreqwest raised as an error of ours. Its own may quote the server, which knows the key."""
    if isinstance(error, PromptyError):
        raise error
    if isinstance(error, RequestTimeoutError | TimeoutError):
        raise timeout_error() from None
    if isinstance(error, DetailedPyreqwestError):
        causes = error.details["causes"] or [{"message": error.message}]
        retryable = not isinstance(error, BuilderError)  # a request that cannot be written is a mistake
        raise connection_error(type(error).__name__, causes[-1]["message"], retryable=retryable) from None
    raise ModelError(f"the call could not be made: {mask_secrets(f'{type(error).__name__}: {error}')}") from error


def _get_encoding(response: Any) -> str:
    return (response.get_header("content-encoding") or "").strip().lower()


def _has_come(response: Any) -> bool:
    """Return True if the whole body of an answer has been read ahead, as it is: one step hands it over."""
    length = response.get_header("content-length") or ""
    return length.isdecimal() and int(length) <= _READ_AHEAD and not _get_encoding(response)


class HttpTransport(_FastConnection):
    """The transport of one endpoint for synchronous code, shared by all threads."""

    def send(self, request: WireRequest, /) -> bytes:
        stream = self._open(request, _READ_AHEAD)
        try:
            return stream.read()
        finally:
            stream.close()

    def stream(self, request: WireRequest, /) -> "HttpBytes":
        return self._open(request, 0)

    def _open(self, request: WireRequest, read_ahead: int) -> "HttpBytes":
        try:
            thread = Waiting()
            call = self._write(request, write_body(request), read_ahead=read_ahead)
            response = thread.wait_for(call.__aenter__())
            if not 200 <= response.status < 300:
                raise answer_error(response.status, dict(response.headers), _read_error(thread, call, response))
        except Exception as error:
            raise_failure(error)
        try:
            return HttpBytes(thread, call, response)
        except ModelError:  # its encoding is unknown
            thread.wait_for(call.__aexit__(None, None, None))
            raise

    def close(self) -> None:
        Waiting().wait_for(self._let_go())


def _read_error(thread: Waiting, call: Any, response: Any) -> bytes:
    """Return the beginning of the body of an error, or what has come of it before it failed."""
    deadline = Deadline(MAX_ERROR_BODY)
    content = b""
    try:
        body = Body(_get_encoding(response))
        while (chunk := thread.wait_for(response.body_reader.read_chunk(), deadline)) is not None:
            for piece in body.feed(bytes(chunk)):
                content += piece
                if len(content) > MAX_ERROR:
                    return content[:MAX_ERROR]
    except (ModelError, PyreqwestError, TimeoutError):
        pass
    finally:
        thread.wait_for(call.__aexit__(None, None, None))
    return content


class HttpBytes:
    """The bytes of an answer while they come."""

    def __init__(self, thread: Waiting, call: Any, response: Any) -> None:
        self._thread, self._call, self._response = thread, call, response
        self._body = Body(_get_encoding(response))

    def read(self) -> bytes:
        """Return the whole body."""
        if not _has_come(self._response):
            return b"".join(self)
        try:
            content = bytes(self._thread.wait_for(self._response.bytes()))
        except Exception as error:
            raise_failure(error)
        self._call = None  # it has ended by itself
        return content

    def __iter__(self) -> Iterator[bytes]:
        body, read, wait_for = self._body, self._response.body_reader.read_chunk, self._thread.wait_for
        try:
            while (chunk := wait_for(read())) is not None:
                yield from body.feed(bytes(chunk))
            self._call = None  # it has ended by itself
            body.finish()
        except Exception as error:
            self.close()
            raise_failure(error)

    def close(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            Waiting().wait_for(call.__aexit__(None, None, None))

    def abort(self) -> None:
        self._thread.give_up()


class AsyncHttpTransport(_FastConnection):
    """The transport of one endpoint for one event loop. Its pool is as fast with many calls, so it is never `busy`."""

    busy = 0

    def __init__(self, endpoint: Endpoint, _turns: asyncio.Semaphore, _idle: int) -> None:
        super().__init__(endpoint)

    async def send(self, request: WireRequest, /) -> bytes:
        stream = await self._open(request, _READ_AHEAD)
        try:
            return await stream.read()
        finally:
            await stream.aclose()

    async def stream(self, request: WireRequest, /) -> "AsyncHttpBytes":
        return await self._open(request, 0)

    async def _open(self, request: WireRequest, read_ahead: int) -> "AsyncHttpBytes":
        try:
            body, credential = write_body(request), self.endpoint.credential
            if credential is None or credential.is_ready():
                call = self._write(request, body, read_ahead=read_ahead)
            else:
                async with asyncio.timeout(request.timeout):
                    call = await asyncio.to_thread(self._write, request, body, read_ahead=read_ahead)
            response = await call.__aenter__()
            if not 200 <= response.status < 300:
                raise answer_error(response.status, dict(response.headers), await _read_error_async(call, response))
        except Exception as error:
            raise_failure(error)
        try:
            return AsyncHttpBytes(call, response)
        except ModelError:  # its encoding is unknown
            await call.__aexit__(None, None, None)
            raise

    async def aclose(self) -> None:
        await self._let_go()


async def _read_error_async(call: Any, response: Any) -> bytes:
    """The async form of `_read_error`."""
    content = b""
    try:
        body = Body(_get_encoding(response))
        async with asyncio.timeout(MAX_ERROR_BODY):
            while (chunk := await response.body_reader.read_chunk()) is not None:
                for piece in body.feed(bytes(chunk)):
                    content += piece
                    if len(content) > MAX_ERROR:
                        return content[:MAX_ERROR]
    except (ModelError, PyreqwestError, TimeoutError):
        pass
    finally:
        await call.__aexit__(None, None, None)
    return content


class AsyncHttpBytes:
    """The bytes of an answer while they come."""

    def __init__(self, call: Any, response: Any) -> None:
        self._call, self._response = call, response
        self._body = Body(_get_encoding(response))

    async def read(self) -> bytes:
        """Return the whole body."""
        if not _has_come(self._response):
            return b"".join([chunk async for chunk in self])
        try:
            content = bytes(await self._response.bytes())
        except Exception as error:
            raise_failure(error)
        self._call = None  # it has ended by itself
        return content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body, read = self._body, self._response.body_reader.read_chunk
        try:
            while (chunk := await read()) is not None:
                for piece in body.feed(bytes(chunk)):
                    yield piece
            self._call = None  # it has ended by itself
            body.finish()
        except Exception as error:
            await self.aclose()
            raise_failure(error)

    async def aclose(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            await call.__aexit__(None, None, None)
