"""Send HTTP requests: the only place from which OpenAPI tools reach the network.

A name is resolved once and the connection goes to a checked address, so that DNS rebinding has no effect. Redirects
are not followed, the environment's proxies and `.netrc` are not used, and connections are not reused.
"""

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from prompty.extras import require
from prompty.tools.openapi.permissions import Permissions, Url, parse_url
from prompty.tools.openapi.request import HttpRequest
from prompty.tools.results import ReportedFailure
from prompty.version import __version__

TIMEOUT_SECONDS = 30.0
MAX_RESPONSE_BYTES = 1_000_000
_MAX_ADDRESSES = 3


class ServiceError(ReportedFailure):
    """A service did not answer, or refused. The model reads the text."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response. `truncated` is True if `content` reached the caller's limit."""

    status: int
    reason: str
    media_type: str
    charset: str
    content: bytes
    truncated: bool


async def send(
    base_url: str, request: HttpRequest, permissions: Permissions, max_bytes: int = MAX_RESPONSE_BYTES
) -> HttpResponse:
    """Send a request to a service and read its response."""
    url = parse_url(base_url)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            addresses = await resolve(url)
            permissions.check(url, addresses)
            return await _send_to_any(url, addresses, request, max_bytes)
    except TimeoutError:
        raise ServiceError(f"{url.authority} did not answer within {TIMEOUT_SECONDS:g} s") from None


async def resolve(url: Url) -> list[str]:
    """Return the addresses of a URL's host."""
    try:
        loop = asyncio.get_running_loop()
        entries = await loop.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ServiceError(f"the host name {url.host} cannot be resolved") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


async def _send_to_any(url: Url, addresses: Sequence[str], request: HttpRequest, max_bytes: int) -> HttpResponse:
    """Try addresses until one accepts a connection. After that there is no retry."""
    http = require("httpx2", extra="openapi")
    failure = "it has no address"
    for address in addresses[:_MAX_ADDRESSES]:
        try:
            return await _send_to(http, url, address, request, max_bytes)
        except (http.ConnectError, http.ConnectTimeout) as error:
            failure = str(error) or type(error).__name__
        except http.TimeoutException:
            raise ServiceError(f"{url.authority} did not answer in time") from None
        except (http.HTTPError, http.StreamError) as error:
            raise ServiceError(f"the connection to {url.authority} failed: {type(error).__name__}") from None
    raise ServiceError(f"cannot connect to {url.authority}: {failure}")


async def _send_to(http: Any, url: Url, address: str, request: HttpRequest, max_bytes: int) -> HttpResponse:
    query = "&".join([*([url.query] if url.query else []), *request.query])
    path = (url.path.rstrip("/") + request.path if request.path else url.path) or "/"
    target = f"{path}?{query}" if query else path
    outgoing = http.Request(
        request.method,
        http.URL(scheme=url.scheme, host=address, port=url.port, raw_path=target.encode()),
        headers=_build_headers(url, request),
        content=request.content,
        extensions={"sni_hostname": url.host, "timeout": http.Timeout(TIMEOUT_SECONDS).as_dict()},
    )
    async with http.AsyncHTTPTransport(verify=_ssl_context(), trust_env=False) as transport:
        response = await transport.handle_async_request(outgoing)
        try:
            return await _read(response, max_bytes)
        finally:
            await response.aclose()


@cache
def _ssl_context() -> Any:
    """Return the shared SSL context. Building it is nearly all the cost of a request to a nearby service."""
    return require("httpx2", extra="openapi").create_ssl_context()


def _build_headers(url: Url, request: HttpRequest) -> list[tuple[str, str]]:
    """Return the headers of a request. Compressed responses are not accepted: one could expand to any size."""
    own = [
        ("Host", url.authority),
        ("User-Agent", f"prompty/{__version__}"),
        ("Accept", "application/json, text/*;q=0.9, */*;q=0.1"),
        ("Accept-Encoding", "identity"),
        ("Connection", "close"),
    ]
    cookies = [("Cookie", "; ".join(request.cookies))] if request.cookies else []
    return [*own, *request.headers, *cookies]


async def _read(response: Any, max_bytes: int) -> HttpResponse:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise ServiceError(f"the service used the encoding '{encoding[:40]}', which was not accepted")
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > max_bytes:
            break
    return HttpResponse(
        status=response.status_code,
        reason=response.reason_phrase,
        media_type=response.headers.get("content-type", "").partition(";")[0].strip().lower(),
        charset=response.charset_encoding or "utf-8",
        content=bytes(content[:max_bytes]),
        truncated=len(content) > max_bytes,
    )
