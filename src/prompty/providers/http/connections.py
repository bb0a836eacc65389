"""Which transport reaches which endpoint: one for each endpoint and credential, built once and shared.

A synchronous one lives as long as the process; an asynchronous one as long as the event loop it was built in, because
its connections belong to that loop.
"""

import os
from asyncio import AbstractEventLoop, get_running_loop, sleep
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any
from weakref import WeakSet

from prompty.concurrency import Admission
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.connection import ReferenceConnection
from prompty.providers import AsyncTransport, Transport
from prompty.providers.http.endpoint import Endpoint
from prompty.providers.sdk import AsyncSdkTransport, RegisteredClient, SdkClients, SdkTransport

CALLS_PER_PASS = 32  # that begin in one pass of the event loop


class LoopTransports:
    """The transports of one event loop, and the admission of their calls. Their connections hold the loop and the loop
    must not be closed before them, so they are closed when it ends."""

    def __init__(self) -> None:
        self.admission: Admission = Admission(CALLS_PER_PASS)
        self.transports: dict[Endpoint | RegisteredClient, Any] = {}

    def end_with_loop(self, forget: Callable[[], object]) -> None:
        """Close the transports with the loop: `shutdown_asyncgens` finalizes this suspended generator."""
        self._closing = self._until_closed(forget)
        with suppress(StopIteration):  # how an async generator that is run by hand says that it has got to its `yield`
            self._closing.asend(None).send(None)

    async def _until_closed(self, forget: Callable[[], object]) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            forget()
            for transport in self.transports.values():
                await transport.aclose()
            await sleep(0)  # a socket is closed in the next pass of the loop


class Connector:
    """From an agent to its transport.

    `locate` returns the endpoint of an agent. With `sdk`, a connection of kind `reference` uses a client that the host
    has registered.
    """

    def __init__(self, locate: Callable[[PromptAgent], Endpoint], sdk: SdkClients | None = None) -> None:
        self._locate, self._sdk = locate, sdk
        self._forget()
        _connectors.add(self)

    def _forget(self) -> None:
        self._lock = Lock()
        self._transports: dict[Endpoint | RegisteredClient, Any] = {}
        self._by_loop: dict[AbstractEventLoop, LoopTransports] = {}

    def transport(self, agent: PromptAgent) -> Transport:
        """Return the transport for synchronous code."""
        place = self._place(agent, is_async=False)
        found = self._transports.get(place)
        if found is None:
            with self._lock:
                found = self._transports.get(place)
                if found is None:
                    found = self._transports[place] = self._build(place)
        return found  # type: ignore[no-any-return]  # kept by endpoint and by client

    def _build(self, place: Endpoint | RegisteredClient) -> Any:
        if isinstance(place, Endpoint):
            return _load_implementation().HttpTransport(place)
        return SdkTransport(place)

    def transport_async(self, agent: PromptAgent) -> AsyncTransport:
        """Return the transport for the running event loop."""
        loop = get_running_loop()
        place = self._place(agent, is_async=True)
        kept = self._by_loop.get(loop) or self._add_loop(loop)
        found = kept.transports.get(place)
        if found is None:
            found = kept.transports[place] = self._build_async(place, kept.admission)
        return found  # type: ignore[no-any-return]  # kept by endpoint and by client

    def _build_async(self, place: Endpoint | RegisteredClient, admission: Admission) -> Any:
        if isinstance(place, Endpoint):
            return _load_implementation().AsyncHttpTransport(place, admission)
        return AsyncSdkTransport(place, admission)

    def _add_loop(self, loop: AbstractEventLoop) -> LoopTransports:
        """Begin to keep transports for a loop, until it ends. A loop that was closed without notice is forgotten."""
        for closed in [known for known in tuple(self._by_loop) if known.is_closed()]:
            self._by_loop.pop(closed, None)
        found = self._by_loop[loop] = LoopTransports()
        found.end_with_loop(lambda: self._by_loop.pop(loop, None))
        return found

    def _place(self, agent: PromptAgent, *, is_async: bool) -> Endpoint | RegisteredClient:
        """Return where an agent's calls go: an endpoint, or a client that the host has registered."""
        connection = agent.model.connection
        if self._sdk is not None and isinstance(connection, ReferenceConnection):
            return self._sdk.find(agent, connection, is_async=is_async)
        return self._locate(agent)

    def close(self) -> None:
        """Close the transports of synchronous code. The next call builds new ones."""
        while self._transports:
            self._transports.popitem()[1].close()


_connectors: WeakSet[Connector] = WeakSet()


def _forget_all() -> None:
    """Forget the connections of the parent after a fork: both would read from the same sockets."""
    for connector in _connectors:
        connector._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


@contextmanager
def open_transport(endpoint: Endpoint) -> Iterator[Transport]:
    """Yield a transport for synchronous code that nobody shares, and close it."""
    transport = _load_implementation().HttpTransport(endpoint)
    try:
        yield transport
    finally:
        transport.close()


def _load_implementation() -> ModuleType:
    """Return the module of the transports. Only a call needs the extra that it imports."""
    require("httpcore2", extra="openai")
    return import_module("prompty.providers.http.client")
