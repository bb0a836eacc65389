"""Add the connection's credential to a request, as the document declares.

Access tokens come from OAuth 2 client credentials: they are fetched once and used until they expire.
"""

import asyncio
import base64
import time
from dataclasses import dataclass, field, replace
from urllib.parse import quote_plus, unquote
from weakref import WeakKeyDictionary

from prompty.errors import ToolError
from prompty.model.connection import OAuthConnection
from prompty.model.message import Json
from prompty.safety.json import read_json
from prompty.safety.redaction import SHORTEST_NAMED, Redactor, remember_secrets
from prompty.tools.openapi.client import Permissions, ServiceError, send
from prompty.tools.openapi.document import ApiDocument
from prompty.tools.openapi.operations import FORM, Operation
from prompty.tools.openapi.request import TOKEN, HttpRequest, is_same_parameter, percent_encode

_TYPES = ("apiKey", "http", "oauth2", "openIdConnect")
BEARER: Json = {"type": "http", "scheme": "bearer"}
_EXPIRY_MARGIN = 30.0  # a token is not used in its last seconds
_DEFAULT_LIFETIME = 300.0


def find_scheme(document: ApiDocument, operation: Operation) -> Json | None:
    """Return an operation's security scheme, by default a bearer token, or None if it takes no credential."""
    schemes = _supported_schemes(document)
    if operation.security == []:
        return None
    alternatives = operation.security if isinstance(operation.security, list) else []
    for alternative in sorted((entry for entry in alternatives if isinstance(entry, dict)), key=len):
        for name in alternative:
            if name in schemes:
                return schemes[name]
    return BEARER if alternatives else next(iter(schemes.values()), BEARER)


def _supported_schemes(document: ApiDocument) -> dict[str, Json]:
    components = document.data.get("components")
    declared = components.get("securitySchemes") if isinstance(components, dict) else None
    schemes = {name: document.resolve(entry) for name, entry in declared.items()} if isinstance(declared, dict) else {}
    return {name: scheme for name, scheme in schemes.items() if scheme.get("type") in _TYPES and _is_supported(scheme)}


def _is_supported(scheme: Json) -> bool:
    return scheme.get("type") != "http" or str(scheme.get("scheme")).lower() in ("bearer", "basic")


def add_credential(request: HttpRequest, scheme: Json, secret: str) -> tuple[HttpRequest, Redactor]:
    """Return the request with a credential where the scheme puts it, and a redactor that masks it."""
    if not secret or not (secret.isascii() and secret.isprintable()):
        raise ToolError(
            "the connection's `apiKey` cannot be sent in a header",
            "Write apiKey: ${env:NAME} and set that variable to ASCII text without line breaks.",
        )
    if scheme.get("type") == "apiKey":
        return _add_key(request, scheme, secret), _redactor_for(secret)
    is_basic = str(scheme.get("scheme")).lower() == "basic"
    value = f"Basic {_base64(secret)}" if is_basic else f"Bearer {secret}"
    return request.with_header("Authorization", value), _redactor_for(secret)


def _redactor_for(secret: str) -> Redactor:
    """Return a redactor for a secret, and the password in it, in every form in which a service may repeat them."""
    texts = (secret, secret.partition(":")[2])
    return Redactor(
        [(text, percent_encode(text), quote_plus(text), _base64(text)) for text in texts], shortest=SHORTEST_NAMED
    )


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _add_key(request: HttpRequest, scheme: Json, secret: str) -> HttpRequest:
    name, location = str(scheme.get("name", "")), scheme.get("in")
    if not TOKEN.fullmatch(name):
        raise ToolError(f"the document's API key name {name[:50]!r} is not legal in a request", "Correct the document.")
    pair = f"{percent_encode(name)}={percent_encode(secret)}"
    if location == "query":
        return replace(request, query=(*_without(request.query, name), pair))
    if location == "cookie":
        return replace(request, cookies=(*_without(request.cookies, name), pair))
    return request.with_header(name, secret)


def _without(pairs: tuple[str, ...], name: str) -> list[str]:
    return [pair for pair in pairs if not is_same_parameter(unquote(pair.partition("=")[0]), name)]


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """The client that requests a token, and the token URL."""

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: tuple[str, ...]


class TokenCache:
    """Access tokens by client."""

    def __init__(self) -> None:
        self._tokens: dict[OAuthClient, tuple[str, float]] = {}
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[OAuthClient, asyncio.Lock]] = WeakKeyDictionary()

    async def get(self, connection: OAuthConnection, permissions: Permissions) -> str:
        """Return a connection's token. Concurrent calls that need the same token share one request."""
        client = _read_client(connection)
        locks = self._locks.setdefault(asyncio.get_running_loop(), {})
        async with locks.setdefault(client, asyncio.Lock()):
            token, expiry = self._tokens.get(client, ("", 0.0))
            if time.monotonic() >= expiry:
                token, lifetime = await _fetch_token(client, permissions)
                remember_secrets([token])
                self._tokens[client] = (token, time.monotonic() + lifetime)
        return token

    def forget(self, connection: OAuthConnection) -> None:
        """Drop a token that a service has refused."""
        self._tokens.pop(_read_client(connection), None)


def _read_client(connection: OAuthConnection) -> OAuthClient:
    secret = connection.client_secret.get_secret_value() if connection.client_secret else ""
    if not (connection.token_url and connection.client_id and secret):
        raise ToolError(
            "the connection of kind 'oauth' lacks `tokenUrl`, `clientId` or `clientSecret`",
            "Set all three. The secret is not sent to the document's own token URL.",
        )
    return OAuthClient(connection.token_url, connection.client_id, secret, connection.scopes or ())


async def _fetch_token(client: OAuthClient, permissions: Permissions) -> tuple[str, float]:
    """Return a token and its lifetime in seconds."""
    pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
    scope = f"&scope={quote_plus(' '.join(client.scopes))}" if client.scopes else ""
    request = HttpRequest(
        method="POST",
        headers=(("Authorization", f"Basic {_base64(pair)}"), ("Content-Type", FORM)),
        content=f"grant_type=client_credentials{scope}".encode(),
    )
    response = await send(client.token_url, request, permissions)
    if response.status != 200:
        raise ServiceError(f"no access token: the token URL answered {response.status} {response.reason}")
    try:
        data = read_json(response.content, strict=False)
    except ValueError:
        data = None
    token = data.get("access_token") if isinstance(data, dict) else None
    lifetime = data.get("expires_in") if isinstance(data, dict) else None
    if not isinstance(token, str) or not token:
        raise ServiceError("no access token: the token URL's response has none")
    is_number = isinstance(lifetime, int | float | str) and str(lifetime).isdecimal()
    seconds = float(str(lifetime)) if is_number else _DEFAULT_LIFETIME
    return token, max(seconds - _EXPIRY_MARGIN, 0.0)
