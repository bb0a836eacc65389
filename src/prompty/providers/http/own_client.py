"""Clients of the host: requests over an httpx2 client that the program has built, with its proxies, certificates,
hooks and limits.

What our own client does for each exchange is then up to the program: no cookies, one deadline that also holds while
headers arrive, and no connection that is used again after bytes which no request asked for.
"""

from collections.abc import Mapping
from contextlib import aclosing, closing
from itertools import islice
from typing import Any, NoReturn

import httpx2

from prompty.errors import ModelError, PromptyError, mask_error
from prompty.model.request import WireRequest
from prompty.providers.endpoint import Endpoint
from prompty.providers.http.client import EndpointClient, write_body
from prompty.providers.http.failures import answer_error, connection_error, timeout_error
from prompty.providers.sdk import AsyncSdkBytes, SdkBytes

MAX_ERROR = 64 * 1024  # bytes of the body of an error


class _OwnClient(EndpointClient):
    """Base of both transports: requests to an endpoint, for a client of the host."""

    def __init__(self, endpoint: Endpoint, client: Any) -> None:
        super().__init__(endpoint)
        self.client = client

    def build(self, request: WireRequest) -> httpx2.Request:
        """Return a request as the client sends it: with its own headers, cookies and timeouts."""
        body = write_body(request)
        url, headers = self.write_headers(request, body)
        limits: Mapping[str, Any] = {} if request.timeout is None else {"timeout": request.timeout}
        built: httpx2.Request = self.client.build_request(request.method, url, headers=headers, content=body, **limits)
        return built

    def refuse(self, response: Any, content: bytes) -> NoReturn:
        raise answer_error(response.status_code, response.headers, content)

    def fail(self, error: Exception) -> NoReturn:
        """Raise what the client raised as an error of ours. Its own may quote the server, which knows the key."""
        if isinstance(error, PromptyError):
            mask_error(error, self.masked)
            raise error
        if isinstance(error, httpx2.TimeoutException):
            raise timeout_error() from None
        if isinstance(error, httpx2.HTTPError | httpx2.StreamError):
            retryable = not isinstance(error, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol)
            raise connection_error(type(error).__name__, self.masked(str(error)), retryable=retryable) from None
        raise ModelError(f"the call could not be made: {self.masked(f'{type(error).__name__}: {error}')}") from error


class OwnTransport(_OwnClient):
    """Sends the requests of synchronous code over an `httpx2.Client`."""

    def send(self, request: WireRequest, /) -> bytes:
        stream = self.stream(request)
        try:
            return b"".join(stream)
        finally:
            stream.close()

    def stream(self, request: WireRequest, /) -> SdkBytes:
        try:
            response = self.client.send(self.build(request), stream=True, follow_redirects=False)
            if not response.is_success:
                with closing(response):
                    self.refuse(response, b"".join(islice(response.iter_bytes(4096), MAX_ERROR // 4096)))
        except Exception as error:
            self.fail(error)
        return SdkBytes(self, response)


class AsyncOwnTransport(_OwnClient):
    """Sends requests over an `httpx2.AsyncClient`."""

    async def send(self, request: WireRequest, /) -> bytes:
        stream = await self.stream(request)
        try:
            return b"".join([chunk async for chunk in stream])
        finally:
            await stream.aclose()

    async def stream(self, request: WireRequest, /) -> AsyncSdkBytes:
        try:
            response = await self.client.send(self.build(request), stream=True, follow_redirects=False)
            if not response.is_success:
                async with aclosing(response):
                    content = b""
                    async for chunk in response.aiter_bytes(4096):
                        content += chunk
                        if len(content) >= MAX_ERROR:
                            break
                    self.refuse(response, content)
        except Exception as error:
            self.fail(error)
        return AsyncSdkBytes(self, response)
