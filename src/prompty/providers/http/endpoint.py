"""An endpoint: a base URL, the headers that every request has, and a credential that is computed for each request."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from prompty.errors import RequestError
from prompty.model.request import WireRequest
from prompty.providers import join_url
from prompty.safety.redaction import mask_url
from prompty.version import __version__
from prompty.wire.json_bytes import write_bytes

USER_AGENT = f"prompty/{__version__}"


class Credential(Protocol):
    """Computes headers for a request: a token that expires, or a signature."""

    def is_ready(self) -> bool:
        """Return True if `headers` returns at once. If it has to wait, async code runs it in a thread."""

    def headers(self, method: str, url: str, headers: Mapping[str, str], body: bytes, /) -> Mapping[str, str]:
        """Return the headers that prove who sends this request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """Where requests go, and as whom. Two equal endpoints share their connections.

    `headers` are names in lower case and their values. `route` changes a path by the model of a request. `secrets` are
    masked in whatever a server says.
    """

    base_url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    credential: Credential | None = field(default=None, repr=False)
    route: Callable[[str, str], str] | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def url_of(self, path: str, model: str) -> str:
        """Return the URL of a request."""
        return join_url(self.base_url, self.route(path, model) if self.route else path)

    @property
    def address(self) -> str:
        """The base URL without its query, which may hold a key."""
        return self.base_url.partition("?")[0]

    def headers_for(self, request: WireRequest, url: str, body: bytes) -> dict[str, str]:
        """Return all headers of a request. Its own replace those of the endpoint."""
        headers = {**dict(self.headers), **{name.lower(): value for name, value in request.headers.items()}}
        if self.credential is not None:
            headers |= self.credential.headers(request.method, url, headers, body)
        return headers


def create_endpoint(
    base_url: str,
    credential_headers: Mapping[str, str],
    *,
    headers: Iterable[tuple[str, str]] = (),
    credential: Credential | None = None,
    route: Callable[[str, str], str] | None = None,
    secrets: Iterable[str] = (),
) -> Endpoint:
    """Return an endpoint for JSON requests. A user and a password in its URL take the place of its credential.

    `credential_headers` are secret; `headers` are any others. `secrets` are masked as well as those that it finds.
    """
    common = {"content-type": "application/json", "accept-encoding": "gzip", "user-agent": USER_AGENT}
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https"):
        fix = "Write it with its scheme, like https://host/v1 or http://localhost:8080/v1."
        raise RequestError(f"the endpoint '{mask_url(base_url)}' is not an absolute http(s) URL", fix)
    user, at, host = parts.netloc.rpartition("@")
    if at:
        base_url = urlunsplit(parts._replace(netloc=host))
        credential_headers = {"authorization": f"Basic {b64encode(unquote(user).encode()).decode()}"}
        credential = None
    found = [value.rpartition(" ")[2] for value in credential_headers.values()]
    return Endpoint(
        base_url=base_url,
        headers=tuple({**dict(headers), **common, **credential_headers}.items()),
        credential=credential,
        route=route,
        secrets=(*secrets, *found, *map(unquote, user.split(":")), *[value for _, value in parse_qsl(parts.query)]),
    )


def check_header(name: str, value: str) -> str:
    """Return a value that can stand in a header. Raise RequestError for any other."""
    if value.isascii() and value.isprintable():
        return value
    raise RequestError(f"{name} cannot be sent in a header", "Remove its line break, or whatever in it is not ASCII.")


def write_body(request: WireRequest) -> bytes:
    return write_bytes(request.body) if request.method != "GET" else b""
