"""Shared transports: a value for each run that carries the endpoint and its credential, over a pool of connections that
all endpoints at one origin share. The pools belong to the clients of the agent's registry."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from prompty.model.agent import PromptAgent
from prompty.model.connection import ReferenceConnection
from prompty.providers import AsyncTransport, Transport
from prompty.providers.credentials import needs_public_address
from prompty.providers.endpoint import Endpoint, Server
from prompty.providers.sdk import AsyncSdkTransport, SdkClients, SdkTransport


@dataclass(frozen=True, slots=True)
class Transports:
    """The transports of one provider.

    `find_endpoint` returns the endpoint of an agent, and `hosts` are the provider's. With `sdk`, a connection of kind
    `reference` uses a client that the host has registered.
    """

    find_endpoint: Callable[[PromptAgent], Endpoint]
    hosts: tuple[str, ...] = ()
    sdk: SdkClients | None = None

    def get(self, agent: PromptAgent) -> Transport:
        """Return the transport for an agent's synchronous calls."""
        connection, clients = agent.model.connection, agent.registry.clients
        if self.sdk is not None and isinstance(connection, ReferenceConnection):
            return SdkTransport(self.sdk.find(agent, connection, is_async=False))
        endpoint = self.find_endpoint(agent)
        if own := agent.registry.connections.find_client(agent.model.provider, is_async=False):
            own_transport: Transport = _load_own_client().OwnTransport(endpoint, own)
            return own_transport
        http = _load_client()
        transport: Transport = http.HttpTransport(endpoint, clients.get(self._find_server(agent, endpoint), http.Pool))
        return transport

    def get_async(self, agent: PromptAgent) -> AsyncTransport:
        """Return the transport for an agent's calls in the running event loop."""
        connection, clients = agent.model.connection, agent.registry.clients.in_loop()
        if self.sdk is not None and isinstance(connection, ReferenceConnection):
            return AsyncSdkTransport(self.sdk.find(agent, connection, is_async=True), clients.admit)
        endpoint = self.find_endpoint(agent)
        if own := agent.registry.connections.find_client(agent.model.provider, is_async=True):
            own_transport: AsyncTransport = _load_own_client().AsyncOwnTransport(endpoint, own)
            return own_transport
        http = _load_client()
        pool = clients.get(self._find_server(agent, endpoint), http.AsyncPool)
        transport: AsyncTransport = http.AsyncHttpTransport(endpoint, pool, clients.admit)
        return transport

    def _find_server(self, agent: PromptAgent, endpoint: Endpoint) -> Server:
        """Return the server of an agent's requests, whose connections they share."""
        return Server(endpoint.origin, needs_public_address(agent, self.hosts))


def _load_own_client() -> ModuleType:
    from prompty.providers.http import own_client  # httpx2 is slow to import, and few programs bring a client

    return own_client


def _load_client() -> ModuleType:
    from prompty.providers.http import client  # httpcore2 takes 60 ms to import, and a script needs no HTTP

    return client
