"""Which client reaches which endpoint: one for each endpoint and credential, built once and shared.

Building the first costs 25 ms and 0.7 MB. A synchronous one lives as long as the process; an asynchronous one as
long as the event loop it was built in, because its connections belong to that loop. The pool of a client looks at
every connection it has for every call it makes, so in asynchronous code many calls at once are given more clients.
"""

import logging
import os
from asyncio import AbstractEventLoop, Semaphore, get_running_loop
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import suppress
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from threading import Lock
from types import ModuleType
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from pydantic import SecretStr

from prompty.errors import RequestError
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection, ApiKeyConnection, ReferenceConnection
from prompty.providers.destination import check_environment_url, takes_environment
from prompty.providers.transport import AsyncSdkTransport, SdkTransport
from prompty.safety.redaction import mask_url

MAX_CONNECTIONS = 20_000  # the SDKs stop at 1,000; a program may have more calls in flight
MAX_CLIENTS = 64  # of one endpoint in one event loop
CALLS_PER_CLIENT = 16  # before there is another one
CALLS_PER_PASS = 32  # that begin in one pass of the event loop


class LoopTransports:
    """The transports of one event loop, whose calls take turns to begin. Their connections hold the loop and the loop
    must not be closed before them, so they are closed when it ends."""

    def __init__(self) -> None:
        self.turns: Semaphore = Semaphore(CALLS_PER_PASS)
        self.transports: dict[Hashable, list[AsyncSdkTransport]] = {}

    def end_with_loop(self, forget: Callable[[], object]) -> None:
        """A loop that ends closes the async generators it has seen begin: this one lies there for that."""
        self._closing = self._until_closed(forget)
        with suppress(StopIteration):  # how an async generator that is run by hand says that it has got to its `yield`
            self._closing.asend(None).send(None)

    async def _until_closed(self, forget: Callable[[], object]) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            forget()
            for place, transports in self.transports.items():
                for transport in transports:
                    if transport.client is not place:  # one that the host has registered is the host's to close
                        await transport.client.close()


class SdkConnector:
    """From an agent to the transport of one SDK.

    `locate` says where an agent's connection leads (and so which client it shares), `build` makes a client for it:
    an instance of the first of `classes` for synchronous code, of the second for asynchronous code.
    """

    def __init__(
        self,
        package: str,
        classes: tuple[str, str],
        locate: Callable[[PromptAgent], Hashable],
        build: Callable[[Any, bool], Any],
        transports: tuple[type[SdkTransport], type[AsyncSdkTransport]] = (SdkTransport, AsyncSdkTransport),
    ) -> None:
        self._package, self._classes, self._locate, self._build = package, classes, locate, build
        self._sync_class, self._async_class = transports
        self._lock = Lock()
        self._transports: dict[Hashable, SdkTransport] = {}
        self._by_loop: dict[AbstractEventLoop, LoopTransports] = {}

    def transport(self, agent: PromptAgent) -> SdkTransport:
        """The transport for synchronous code."""
        place = self._place(agent, asynchronous=False)
        found = self._transports.get(place)
        if found is None:
            with self._lock:
                found = self._transports.get(place)
                if found is None:
                    client = self._client(place, asynchronous=False)
                    found = self._sync_class(client, self._sdk(), **_describe_place(place))
                    self._transports[place] = found
        return found

    def transport_async(self, agent: PromptAgent) -> AsyncSdkTransport:
        """The transport for the running event loop: the first that is not busy, else a new one, else the least busy."""
        loop = get_running_loop()
        place = self._place(agent, asynchronous=True)
        found = self._by_loop.get(loop) or self._add_loop(loop)
        transports = found.transports.setdefault(place, [])
        for transport in transports:
            if transport.busy < CALLS_PER_CLIENT or transport.client is place:
                return transport
        if len(transports) == MAX_CLIENTS:
            return min(transports, key=lambda transport: transport.busy)
        client = _clone(transports[0]) if transports else self._client(place, asynchronous=True)
        transports.append(self._async_class(client, self._sdk(), found.turns, **_describe_place(place)))
        return transports[-1]

    def _add_loop(self, loop: AbstractEventLoop) -> "LoopTransports":
        """Begin to keep clients for a loop, until it ends. A loop that was closed without notice is forgotten."""
        for closed in [known for known in tuple(self._by_loop) if known.is_closed()]:
            self._by_loop.pop(closed, None)
        found = self._by_loop[loop] = LoopTransports()
        found.end_with_loop(lambda: self._by_loop.pop(loop, None))
        return found

    def _place(self, agent: PromptAgent, *, asynchronous: bool) -> Hashable:
        """Where an agent's calls go: an endpoint, or a client that the host has registered."""
        connection = agent.model.connection
        if isinstance(connection, ReferenceConnection):
            return cast(Hashable, agent.registry.connections.find(connection.name, self._client_class(asynchronous)))
        return self._locate(agent)

    def _client(self, place: Hashable, *, asynchronous: bool) -> Any:
        registered = isinstance(place, self._client_class(asynchronous))
        return place if registered else self._build(place, asynchronous)

    def _client_class(self, asynchronous: bool) -> type:
        return cast(type, getattr(self._sdk(), self._classes[asynchronous]))

    def _sdk(self) -> ModuleType:
        return require(self._package, extra=self._package)


def _clone(transport: AsyncSdkTransport) -> Any:
    """One more client for the same endpoint with the same credential, and a pool of its own."""
    http_client = transport.sdk.DefaultAsyncHttpxClient(**connection_limits(idle=CALLS_PER_CLIENT))
    return transport.client.copy(http_client=http_client)


def connection_limits(idle: int = 1000) -> dict[str, Any]:
    """Return the arguments of every HTTP client: room for many calls at once, no redirects, which would carry a
    credential to wherever the server says, and no cookies, which would tie the calls of different users together."""
    http = require("httpx2", extra="openai")
    limits = http.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=idle, keepalive_expiry=30)
    logging.getLogger("httpx2").addFilter(_mask_urls)  # a logger has a filter once
    no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
    return {"limits": limits, "follow_redirects": False, "verify": _certificates(), "cookies": no_cookies}


def _mask_urls(record: logging.LogRecord) -> bool:
    """Mask credentials in the URLs that the HTTP library logs."""
    if isinstance(record.args, tuple):
        record.args = tuple([mask_url(str(part)) if "://" in str(part) else part for part in record.args])
    return True


@cache
def _certificates() -> Any:
    """Whom to trust. Reading it is nearly all that building a client costs, so all clients share it."""
    return require("httpx2", extra="openai").create_ssl_context()


def split_query(base_url: str | None) -> dict[str, Any]:
    """Return the arguments of an SDK client for a base URL. Its query goes behind the path of every request."""
    parts = urlsplit(base_url or "")
    if not parts.query:
        return {"base_url": base_url}
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return {"base_url": urlunsplit(parts._replace(query="")), "default_query": query}


class EnvironmentNames(NamedTuple):
    """The environment variables that an SDK reads by itself."""

    keys: tuple[str, ...]
    base_url: str
    others: tuple[str, ...] = ()

    def read(self) -> tuple[str | None, ...]:
        """Return the values of all of them."""
        return tuple([os.environ.get(name) for name in (*self.keys, self.base_url, *self.others)])


class Endpoint(NamedTuple):
    """Where to send requests, and as whom: without a key to an endpoint of its own, as nobody.

    `ambient` is False if headers that the SDK reads from the environment may not go there.
    """

    base_url: str | None
    api_key: str | None
    environment: tuple[str | None, ...] = ()
    ambient: bool = True


def _describe_place(place: Hashable) -> dict[str, bool]:
    """Return the arguments of a transport to a place."""
    if not isinstance(place, tuple):
        return {}
    anonymous = isinstance(place, Endpoint) and place.base_url is not None and place.api_key is None
    return {"anonymous": anonymous, "ambient": getattr(place, "ambient", True)}


def locate_endpoint(agent: PromptAgent, names: EnvironmentNames, hosts: tuple[str, ...]) -> Endpoint:
    """Return where a prompt's connection leads; without one, where the SDK's own variables say."""
    match agent.model.connection:
        case None:
            return _locate_by_environment(agent, names)
        case ApiKeyConnection(endpoint=endpoint, api_key=key):
            secret = required_key(key, names.keys[0])
            if not endpoint:
                return _locate_by_environment(agent, names)._replace(api_key=secret)
            return Endpoint(endpoint, secret, (), takes_environment(agent, endpoint, hosts))
        case AnonymousConnection(endpoint=endpoint):
            return Endpoint(required_endpoint(endpoint), None, ambient=False)
        case other:
            raise wrong_kind(other.kind, agent.model.provider, "key, anonymous or reference")


def _locate_by_environment(agent: PromptAgent, names: EnvironmentNames) -> Endpoint:
    """Return what the SDK's variables say. A `.env` file can set the key alone, if no key is set."""
    values = names.read()
    check_environment_url(agent, values[len(names.keys)])
    is_set = any(values[: len(names.keys)])
    return Endpoint(None, None if is_set else agent.registry.dotenv.get(names.keys[0]), values)


def required_key(key: SecretStr | None, variable: str) -> str:
    """The key of a connection, which must have one (F11)."""
    secret = key.get_secret_value() if key else ""
    if not secret:
        raise RequestError("the connection has no `apiKey`", f"Write apiKey: ${{env:{variable}}}, and set {variable}.")
    if not (secret.isascii() and secret.isprintable()):
        raise RequestError(
            "the `apiKey` of the connection cannot be sent", "Remove its line break, or whatever in it is not ASCII."
        )
    return secret


def required_endpoint(endpoint: str | None) -> str:
    """The endpoint of a connection, which must have one (F11)."""
    if not endpoint:
        raise RequestError("the connection has no `endpoint`", "Write endpoint: https://….")
    return endpoint


def wrong_kind(kind: str, provider: str, offered: str) -> RequestError:
    return RequestError(
        f"the provider '{provider}' cannot use a connection of kind '{kind}'", f"Write `kind:` one of {offered}."
    )
