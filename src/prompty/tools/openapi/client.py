"""Send HTTP requests: the only place from which OpenAPI tools reach the network.

Requests go to public addresses over https, and to destinations that the host allows. A name is resolved once and the
connection goes to a checked address, so that DNS rebinding has no effect. Redirects are not followed, the environment's
proxies and `.netrc` are not used, and connections are not reused.
"""

import asyncio
import socket
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from prompty.certificates import find_tls_files, load_certificates
from prompty.errors import ToolError
from prompty.safety.origins import Origin, is_public, parse_origin
from prompty.tools.calls import ReportedFailure
from prompty.tools.openapi.request import HttpRequest
from prompty.version import __version__

_PUBLIC = "8.8.8.8"  # for any address that is public
TIMEOUT_SECONDS = 30.0
MAX_RESPONSE_BYTES = 1_000_000
_MAX_ADDRESSES = 3


class Url(NamedTuple):
    """The parts of an absolute HTTP URL."""

    scheme: str
    host: str
    port: int
    path: str
    query: str

    @property
    def origin(self) -> str:
        return str(Origin(self.scheme, self.host, self.port))

    @property
    def authority(self) -> str:
        return self.origin.partition("://")[2]


def parse_url(url: str) -> Url:
    """Split an absolute URL. Raise `ToolError` if two parsers might read it differently."""
    if (origin := parse_origin(url)) is None:
        raise _invalid_url(url)
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ToolError("a URL contains a user name or a password", "Move credentials to the connection's `apiKey`.")
    return Url(*origin, parts.path, parts.query)


def resolve_url(base: str, url: str) -> str:
    """Resolve a URL against a base. Raise `ToolError` if the result is not a URL."""
    try:
        return urljoin(base, url)
    except ValueError:
        raise _invalid_url(url) from None


def _invalid_url(url: str) -> ToolError:
    return ToolError(f"{url[:200]!r} is not an absolute http(s) URL", "Write it as https://host/path, in ASCII.")


class Permissions:
    """The hosts and servers that the program allows."""

    def __init__(self) -> None:
        self._hosts: set[str] = set()
        self._networks: list[IPv4Network | IPv6Network] = []
        self._servers: set[str] = set()

    def allow(self, *, hosts: Iterable[str] = (), servers: Iterable[str] = ()) -> None:
        """Allow hosts (`name`, `name:port`, an address or a network) over http and at private addresses, and servers
        (`https://host`) that documents from another origin name."""
        for host in hosts:
            try:
                self._networks.append(ip_network(host, strict=False))
            except ValueError:
                self._hosts.add(host.lower())
        self._servers |= {parse_url(server).origin for server in servers}

    def allows_server(self, origin: str) -> bool:
        return origin in self._servers

    def find_trusted(self, url: Url) -> frozenset[Origin]:
        """Return the URL's origin if its host is allowed by name: it may receive credentials, even over http."""
        is_allowed = bool({url.host, f"{url.host}:{url.port}", url.authority} & self._hosts) or self.allows_server(
            url.origin
        )
        return frozenset([Origin(url.scheme, url.host, url.port)] if is_allowed else [])

    def check_name(self, url: Url) -> None:
        """Raise `ToolError` unless the host is allowed, for a client that finds the address of a name by itself."""
        origin = Origin(url.scheme, url.host, url.port)
        self.check(url, [url.host] if origin.is_address else ["127.0.0.1"] if origin.is_loopback else [_PUBLIC])

    def check(self, url: Url, addresses: Iterable[str]) -> None:
        """Raise `ToolError` unless every address of the URL's host is public, or the host is allowed."""
        if {url.host, f"{url.host}:{url.port}", url.authority} & self._hosts:
            return
        fix = f"If this is intended, allow it in code: prompty.openapi.allow(hosts=['{url.authority}'])."
        for text in addresses:
            address = ip_address(text.partition("%")[0])
            if any(address in network for network in self._networks):
                continue
            if not is_public(address):
                raise ToolError(f"{url.authority} has the address {address}, which is not public", fix)
            if url.scheme != "https":
                raise ToolError(f"{url.origin} is not https", fix)


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
    base_url: str,
    request: HttpRequest,
    permissions: Permissions,
    max_bytes: int = MAX_RESPONSE_BYTES,
    *,
    client: Any = None,
) -> HttpResponse:
    """Send a request to a service and read its response. A `client` of the program connects as it is made to."""
    url = parse_url(base_url)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            if client is not None:
                permissions.check_name(url)
                return await _send_to_any(url, [url.host], request, max_bytes, client)
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


async def _send_to_any(
    url: Url, addresses: Sequence[str], request: HttpRequest, max_bytes: int, client: Any = None
) -> HttpResponse:
    """Try addresses until one accepts a connection. After that there is no retry."""
    import httpx2  # slow, and many programs have no OpenAPI tool

    http: Any = httpx2
    failure = "it has no address"
    for address in addresses[:_MAX_ADDRESSES]:
        try:
            return await _send_to(http, url, address, request, max_bytes, client)
        except (http.ConnectError, http.ConnectTimeout) as error:
            failure = str(error) or type(error).__name__
        except http.TimeoutException:
            raise ServiceError(f"{url.authority} did not answer in time") from None
        except (http.HTTPError, http.StreamError) as error:
            raise ServiceError(f"the connection to {url.authority} failed: {type(error).__name__}") from None
    raise ServiceError(f"cannot connect to {url.authority}: {failure}")


async def _send_to(
    http: Any, url: Url, address: str, request: HttpRequest, max_bytes: int, client: Any
) -> HttpResponse:
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
    if client is not None:
        async with aclosing(await client.send(outgoing, stream=True, follow_redirects=False)) as response:
            return await _read(response, max_bytes)
    async with http.AsyncHTTPTransport(
        verify=load_certificates(find_tls_files()._replace(client=None)), trust_env=False
    ) as transport:
        response = await transport.handle_async_request(outgoing)
        try:
            return await _read(response, max_bytes)
        finally:
            await response.aclose()


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
