"""Shared transports: one for each endpoint and credential, built at its first call and closed when it is idle.

Sync transports belong to the process. Async transports belong to the event loop that they were built in, because their
connections do. Each open connection is a file descriptor, and a service may have as many keys as it has users, so that
only the transports that were used last are kept.
"""

import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from prompty.model.agent import PromptAgent
from prompty.model.connection import ReferenceConnection
from prompty.providers import AsyncTransport, Transport
from prompty.providers.endpoint import Endpoint
from prompty.providers.sdk import AsyncSdkTransport, RegisteredClient, SdkClients, SdkTransport

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

MAX_TRANSPORTS = 64  # of one provider, in sync code or in one event loop
MAX_IDLE_SECONDS = 30.0
CALLS_PER_PASS = 32  # that begin in one pass of the event loop
Key = Endpoint | RegisteredClient


class Transports:
    """The transports of one provider.

    `find_endpoint` returns the endpoint of an agent. With `sdk`, a connection of kind `reference` uses a client that
    the host has registered.
    """

    def __init__(self, find_endpoint: Callable[[PromptAgent], Endpoint], sdk: SdkClients | None = None) -> None:
        self._find_endpoint, self._sdk = find_endpoint, sdk
        self._forget()
        _tables.add(self)

    def _forget(self) -> None:
        self._lock = Lock()
        self._sync = _LastUsed()
        self._by_loop: dict[AbstractEventLoop, _LoopTransports] = {}

    def get(self, agent: PromptAgent) -> Transport:
        """Return the transport for an agent's synchronous calls."""
        key = self._find_key(agent, is_async=False)
        with self._lock:
            found, dropped = self._sync.get(key, _build)
        for transport in dropped:
            transport.close()
        return found  # type: ignore[no-any-return]  # of any implementation

    def get_async(self, agent: PromptAgent) -> AsyncTransport:
        """Return the transport for an agent's calls in the running event loop."""
        key = self._find_key(agent, is_async=True)
        from asyncio import get_running_loop  # `prompty check` reads requests of a provider without a loop

        loop = get_running_loop()
        return (self._by_loop.get(loop) or self._add_loop(loop)).get(key)

    def _find_key(self, agent: PromptAgent, *, is_async: bool) -> Key:
        connection = agent.model.connection
        if self._sdk is not None and isinstance(connection, ReferenceConnection):
            return self._sdk.find(agent, connection, is_async=is_async)
        return self._find_endpoint(agent)

    def _add_loop(self, loop: "AbstractEventLoop") -> "_LoopTransports":
        for closed in [known for known in tuple(self._by_loop) if known.is_closed()]:  # without closing its generators
            self._by_loop.pop(closed, None)
        added = self._by_loop[loop] = _LoopTransports()
        added.close_with_loop(lambda: self._by_loop.pop(loop, None))
        return added

    def close(self) -> None:
        """Close the transports of synchronous code. The next call builds a new one."""
        with self._lock:
            dropped = self._sync.clear()
        for transport in dropped:
            transport.close()


class _LastUsed:
    """Transports by endpoint or client, the last used last."""

    def __init__(self) -> None:
        self._entries: dict[Key, tuple[float, Any]] = {}

    def get(self, key: Key, build: Callable[[Key], Any]) -> tuple[Any, list[Any]]:
        """Return the transport of a key, and those that are no longer kept. A new one takes the place of idle ones."""
        now = time.monotonic()
        entry = self._entries.pop(key, None)
        found = build(key) if entry is None else entry[1]
        self._entries[key] = now, found
        return found, self._drop(now - MAX_IDLE_SECONDS) if entry is None else []

    def _drop(self, last_use: float) -> list[Any]:
        dropped = []
        for key, (used, transport) in tuple(self._entries.items()):
            if used >= last_use and len(self._entries) <= MAX_TRANSPORTS:
                break
            del self._entries[key]
            dropped.append(transport)
        return dropped

    def clear(self) -> list[Any]:
        """Keep none, and return all that were kept."""
        dropped = [transport for _, transport in self._entries.values()]
        self._entries.clear()
        return dropped


class _LoopTransports:
    """The transports of one event loop. They are closed before it, because their connections hold it."""

    def __init__(self) -> None:
        from asyncio import Semaphore, get_running_loop, sleep  # as above

        self._get_loop, self._sleep = get_running_loop, sleep
        self._kept = _LastUsed()
        self._dropped: list[Any] = []
        self._admission = Semaphore(CALLS_PER_PASS)

    def get(self, key: Key) -> AsyncTransport:
        found, dropped = self._kept.get(key, self._build)
        self._dropped += dropped
        return found  # type: ignore[no-any-return]  # of any implementation

    def _build(self, key: Key) -> Any:
        if isinstance(key, Endpoint):
            return _load_client().AsyncHttpTransport(key, self._admit)
        return AsyncSdkTransport(key, self._admit)

    async def _admit(self) -> None:
        """Wait until a call may begin. If thousands began in one pass of the event loop, the connections of the first
        would time out before the loop came back to them."""
        await self._close_dropped()
        await self._admission.acquire()
        self._get_loop().call_soon(self._admission.release)

    async def _close_dropped(self) -> None:
        while self._dropped:
            transport = self._dropped[-1]  # it stays, in case that this task is cancelled
            await transport.aclose()
            with suppress(ValueError):  # another task closed it, too
                self._dropped.remove(transport)

    def close_with_loop(self, forget: Callable[[], object]) -> None:
        """Close the transports with the loop: `shutdown_asyncgens` finalizes this suspended generator."""
        self._closing = self._until_closed(forget)
        with suppress(StopIteration):  # raised by the `yield` of an async generator that is run by hand
            self._closing.asend(None).send(None)

    async def _until_closed(self, forget: Callable[[], object]) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            forget()
            self._dropped += self._kept.clear()
            await self._close_dropped()
            await self._sleep(0)  # a socket is closed in the next pass of the loop


_tables: WeakSet[Transports] = WeakSet()


def _forget_all() -> None:
    """Forget the connections of the parent after a fork: both would read from the same sockets."""
    for table in _tables:
        table._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _build(key: Key) -> Any:
    return _load_client().HttpTransport(key) if isinstance(key, Endpoint) else SdkTransport(key)


def _load_client() -> ModuleType:
    from prompty.providers.http import client  # httpcore2 takes 60 ms to import, and a script needs no HTTP

    return client
