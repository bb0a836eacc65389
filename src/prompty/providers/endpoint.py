"""Endpoints: where requests go, and with which headers and credential."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.providers.credentials import Credential
from prompty.providers.profiles import find_profile
from prompty.safety.redaction import mask_url
from prompty.version import __version__

USER_AGENT = f"prompty/{__version__}"


def append_path(endpoint: str, path: str) -> str:
    """Return the URL of a path below an endpoint. A query of the endpoint comes after the path."""
    base, mark, query = endpoint.partition("?")
    return f"{base.rstrip('/')}{path}{mark}{query}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """Where requests go, and as whom. Calls to equal endpoints share their connections.

    `headers` are lowercase names and their values. `credential` computes further headers for each request. `route`
    changes a path by the model of a request. `secrets` are masked in whatever a server says.
    """

    base_url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    credential: Credential | None = field(default=None, repr=False)
    route: Callable[[str, str], str] | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def origin(self) -> str:
        """The part of the base URL that decides where to connect."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def get_url(self, path: str, model: str) -> str:
        """Return the URL of a request."""
        return append_path(self.base_url, self.route(path, model) if self.route else path)


class Server(NamedTuple):
    """Where connections go: an origin, and whether it must have a public address."""

    origin: str
    is_public: bool = False


def create_endpoint(
    base_url: str,
    credential_headers: Mapping[str, str],
    *,
    headers: Iterable[tuple[str, str]] = (),
    credential: Credential | None = None,
    route: Callable[[str, str], str] | None = None,
    secrets: Iterable[str] = (),
) -> Endpoint:
    """Return an endpoint for JSON requests. A user and a password in its URL replace its credential.

    `credential_headers` are secret, `headers` are not. The values of `secrets` are masked, and so are a password and
    the query of the URL.
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
    if parts.query:
        found += [value for name, value in parse_qsl(parts.query) if name != "api-version"]
    if user:
        found += map(unquote, user.split(":"))
    return Endpoint(
        base_url=base_url,
        headers=tuple({**dict(headers), **common, **credential_headers}.items()),
        credential=credential,
        route=route,
        secrets=(*secrets, *found),
    )


def find_server_name(agent: PromptAgent) -> str:
    """Return the name of the known server at the agent's endpoint, such as `ollama`, or else its provider."""
    profile = find_profile(getattr(agent.model.connection, "endpoint", None) or "")
    return profile.name if agent.model.provider == "openai" and profile.hosts else agent.model.provider
