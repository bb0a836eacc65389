"""HTTP: the one place from which requests of OpenAPI tools leave the process.

A name is resolved once, its addresses are checked, and the connection is made to the very address that was checked:
a name server that answers differently the next time changes nothing. Redirects are not followed, proxies and
`.netrc` of the environment are not used, and nothing is kept between requests.
"""

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from prompty.extras import require
from prompty.tools.openapi.permissions import Permissions, Place, place_of
from prompty.tools.openapi.request import HttpRequest
from prompty.version import __version__

SECONDS = 30.0
LARGEST_ANSWER = 1_000_000
_MOST_ADDRESSES = 3


class ServiceError(RuntimeError):
    """A service did not do what it was asked for. The text is for the model to read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a service answered; `content` is at most as long as was asked for, `cut` says that there was more."""

    status: int
    reason: str
    media_type: str
    charset: str
    location: str
    content: bytes
    cut: bool


async def exchange(base: str, request: HttpRequest, permissions: Permissions, largest: int = LARGEST_ANSWER) -> Answer:
    """Send a request to a service and read its answer."""
    place = place_of(base)
    try:
        async with asyncio.timeout(SECONDS):
            addresses = await _addresses(place)
            permissions.check(place, addresses)
            return await _sent(place, addresses, request, largest)
    except TimeoutError:
        raise ServiceError(f"{place.authority} did not answer within {SECONDS:g} s") from None


async def _addresses(place: Place) -> list[str]:
    try:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ServiceError(f"the name {place.host} cannot be resolved") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def _sent(place: Place, addresses: Sequence[str], request: HttpRequest, largest: int) -> Answer:
    """Try the addresses of a service in turn; from the first that takes a connection on, there is no other try."""
    http = require("httpx2", extra="openapi")
    failure = "it has no address"
    for address in addresses[:_MOST_ADDRESSES]:
        try:
            return await _sent_to(http, place, address, request, largest)
        except (http.ConnectError, http.ConnectTimeout) as error:
            failure = str(error) or type(error).__name__
        except http.TimeoutException:
            raise ServiceError(f"{place.authority} did not answer in time") from None
        except (http.HTTPError, http.StreamError) as error:
            raise ServiceError(f"the connection to {place.authority} failed: {type(error).__name__}") from None
    raise ServiceError(f"{place.authority} cannot be reached: {failure}")


async def _sent_to(http: Any, place: Place, address: str, request: HttpRequest, largest: int) -> Answer:
    outgoing = http.Request(
        request.method,
        http.URL(scheme=place.scheme, host=address, port=place.port, raw_path=_target(place, request)),
        headers=_headers(place, request),
        content=request.content,
        extensions={"sni_hostname": place.host, "timeout": http.Timeout(SECONDS).as_dict()},
    )
    async with http.AsyncHTTPTransport(verify=_certificates(), trust_env=False) as transport:
        response = await transport.handle_async_request(outgoing)
        try:
            return await _read(response, largest)
        finally:
            await response.aclose()


@cache
def _certificates() -> Any:
    """Whom to trust. Reading it is nearly all that a request to a near service costs."""
    return require("httpx2", extra="openapi").create_ssl_context()


def _target(place: Place, request: HttpRequest) -> bytes:
    query = "&".join([*([place.query] if place.query else []), *request.query])
    path = (place.path.rstrip("/") + request.path if request.path else place.path) or "/"
    return (f"{path}?{query}" if query else path).encode()


def _headers(place: Place, request: HttpRequest) -> list[tuple[str, str]]:
    """The headers of a request. Answers come as they are: one that is packed could unpack to any size."""
    own = [
        ("Host", place.authority),
        ("User-Agent", f"prompty/{__version__}"),
        ("Accept", "application/json, text/*;q=0.9, */*;q=0.1"),
        ("Accept-Encoding", "identity"),
        ("Connection", "close"),
    ]
    cookies = [("Cookie", "; ".join(request.cookies))] if request.cookies else []
    return [*own, *request.headers, *cookies]


async def _read(response: Any, largest: int) -> Answer:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise ServiceError(f"the service answered in the encoding '{encoding[:40]}', which was not asked for")
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > largest:
            break
    return Answer(
        status=response.status_code,
        reason=response.reason_phrase,
        media_type=response.headers.get("content-type", "").partition(";")[0].strip().lower(),
        charset=response.charset_encoding or "utf-8",
        location=response.headers.get("location", ""),
        content=bytes(content[:largest]),
        cut=len(content) > largest,
    )
