"""Access tokens by OAuth 2 client credentials: fetched once, kept until they expire."""

import asyncio
import base64
import time
from dataclasses import dataclass, field
from urllib.parse import quote_plus
from weakref import WeakKeyDictionary

from prompty.errors import ToolError
from prompty.model.connection import OAuthConnection
from prompty.safety.json import read_json
from prompty.safety.redaction import remember_secrets
from prompty.tools.openapi.client import ServiceError, exchange
from prompty.tools.openapi.permissions import Permissions
from prompty.tools.openapi.request import HttpRequest

_EARLY = 30.0  # seconds before its end at which a token is no longer used
_DEFAULT_LIFE = 300.0


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks for a token, and where."""

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: tuple[str, ...]


class Tokens:
    """The tokens of a process."""

    def __init__(self) -> None:
        self._known: dict[Client, tuple[str, float]] = {}
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Client, asyncio.Lock]] = WeakKeyDictionary()

    async def token(self, connection: OAuthConnection, permissions: Permissions) -> str:
        """The token of a connection; calls that need the same one wait for the first of them."""
        client = client_of(connection)
        locks = self._locks.setdefault(asyncio.get_running_loop(), {})
        async with locks.setdefault(client, asyncio.Lock()):
            token, end = self._known.get(client, ("", 0.0))
            if time.monotonic() >= end:
                token, life = await _fetched(client, permissions)
                remember_secrets([token])
                self._known[client] = (token, time.monotonic() + life)
        return token

    def forget(self, connection: OAuthConnection) -> None:
        """A service has refused the token: the next call asks for another."""
        self._known.pop(client_of(connection), None)


def client_of(connection: OAuthConnection) -> Client:
    secret = connection.client_secret.get_secret_value() if connection.client_secret else ""
    if not (connection.token_url and connection.client_id and secret):
        raise ToolError(
            "the connection of kind 'oauth' lacks `tokenUrl`, `clientId` or `clientSecret`",
            "Write all three; the document's own token URL is not trusted with the secret.",
        )
    return Client(connection.token_url, connection.client_id, secret, connection.scopes or ())


async def _fetched(client: Client, permissions: Permissions) -> tuple[str, float]:
    pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
    scope = f"&scope={quote_plus(' '.join(client.scopes))}" if client.scopes else ""
    request = HttpRequest(
        method="POST",
        headers=(
            ("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ),
        content=f"grant_type=client_credentials{scope}".encode(),
    )
    answer = await exchange(client.token_url, request, permissions)
    if answer.status != 200:
        raise ServiceError(f"no access token: the token URL answered {answer.status} {answer.reason}")
    return _read(answer.content)


def _read(content: bytes) -> tuple[str, float]:
    try:
        data = read_json(content, strict=False)
    except ValueError:
        data = None
    token = data.get("access_token") if isinstance(data, dict) else None
    life = data.get("expires_in") if isinstance(data, dict) else None
    if not isinstance(token, str) or not token:
        raise ServiceError("no access token: the answer of the token URL holds none")
    seconds = float(life) if isinstance(life, int | float | str) and str(life).isdecimal() else _DEFAULT_LIFE
    return token, max(seconds - _EARLY, 0.0)
