"""Which client reaches which endpoint: one for each endpoint and credential, built once and shared.

Building a client costs 25 ms and 0.7 MB. A synchronous one lives as long as the process; an asynchronous one as
long as the event loop it was built in, because its connections belong to that loop.
"""

import os
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from pydantic import SecretStr

from prompty.errors import RequestError
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection, ApiKeyConnection, ReferenceConnection
from prompty.providers.transport import AsyncSdkTransport, SdkTransport

MAX_CONNECTIONS = 20_000  # the SDKs stop at 1,000; a program may have more calls in flight

T = TypeVar("T", SdkTransport, AsyncSdkTransport)


class NamedClients:
    """Clients that the host has built itself, for connections of kind `reference`."""

    def __init__(self) -> None:
        self._clients: dict[str, tuple[Any, ...]] = {}

    def register(self, name: str, *clients: Any) -> None:
        self._clients[name] = clients

    def find(self, name: str | None, wanted: type) -> Any:
        """The client of this name that is of this type."""
        if name not in self._clients:
            known = ", ".join(self._clients) or "none"
            raise RequestError(
                f"no connection is registered as '{name}' (registered: {known})",
                f"Call prompty.register_connection('{name}', client) before running the prompt.",
            )
        for client in self._clients[name]:
            if isinstance(client, wanted):
                return client
        raise RequestError(
            f"the connection '{name}' has no client that this call can use",
            f"Register one more: prompty.register_connection('{name}', client, {wanted.__name__}(…)).",
        )


named_clients = NamedClients()


class LoopTransports:
    """The transports of one event loop. Their connections hold the loop and the loop must not be closed before them,
    so they are closed when it ends."""

    def __init__(self) -> None:
        self.transports: dict[Hashable, AsyncSdkTransport] = {}

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
            for place, transport in self.transports.items():
                if transport.client is not place:  # a client that the host has registered is the host's to close
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
        return self._get(self._transports, self._sync_class, agent, asynchronous=False)

    def transport_async(self, agent: PromptAgent) -> AsyncSdkTransport:
        """The transport for the running event loop."""
        loop = get_running_loop()
        found = self._by_loop.get(loop) or self._add_loop(loop)
        return self._get(found.transports, self._async_class, agent, asynchronous=True)

    def _add_loop(self, loop: AbstractEventLoop) -> "LoopTransports":
        """Begin to keep clients for a loop, until it ends. A loop that was closed without notice is forgotten."""
        for closed in [known for known in tuple(self._by_loop) if known.is_closed()]:
            self._by_loop.pop(closed, None)
        found = self._by_loop[loop] = LoopTransports()
        found.end_with_loop(lambda: self._by_loop.pop(loop, None))
        return found

    def _get(self, known: dict[Hashable, T], transport_class: type[T], agent: PromptAgent, *, asynchronous: bool) -> T:
        connection = agent.model.connection
        reference = isinstance(connection, ReferenceConnection)
        place = self._named(connection, asynchronous) if reference else self._locate(agent)
        found = known.get(place)
        if found is None:
            with self._lock:
                found = known.get(place)
                if found is None:
                    client = place if reference else self._build(place, asynchronous)
                    sdk = require(self._package, extra=self._package)
                    found = known[place] = transport_class(client, sdk, anonymous=_is_anonymous(place))
        return found

    def _named(self, connection: Any, asynchronous: bool) -> Any:
        sdk = require(self._package, extra=self._package)
        return named_clients.find(connection.name, getattr(sdk, self._classes[asynchronous]))


def connection_limits() -> dict[str, Any]:
    """What every HTTP client of ours is built with: room for many calls at once, and no redirect, which would carry
    a credential to wherever the server says."""
    http = require("httpx2", extra="openai")
    limits = http.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=1000, keepalive_expiry=30)
    return {"limits": limits, "follow_redirects": False}


class Endpoint(NamedTuple):
    """Where to send requests, and as whom: without a key to an endpoint of its own, as nobody."""

    base_url: str | None
    api_key: str | None
    environment: tuple[str | None, ...] = ()


def _is_anonymous(place: Hashable) -> bool:
    return isinstance(place, Endpoint) and place.base_url is not None and place.api_key is None


def locate_endpoint(agent: PromptAgent, variables: Sequence[str]) -> Endpoint:
    """Where a prompt's connection leads; without one, where the SDK's own variables say. The first is the key's."""
    environment = tuple(os.environ.get(name) for name in variables)
    match agent.model.connection:
        case None:
            return Endpoint(None, None, environment)
        case ApiKeyConnection(endpoint=endpoint, api_key=key):
            return Endpoint(endpoint, required_key(key, variables[0]), () if endpoint else environment)
        case AnonymousConnection(endpoint=endpoint):
            return Endpoint(required_endpoint(endpoint), None)
        case other:
            raise wrong_kind(other.kind, agent.model.provider, "key, anonymous or reference")


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
