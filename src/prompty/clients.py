"""Clients: what a registry keeps open between calls, such as pools of connections and sessions with MCP servers.

Each has an origin or a server as its key, never a user's credential alone, and one bounded table holds them all: what
rests for a while is closed, and so is what was used least recently beyond a number. What belongs to an event loop
is kept by that loop and closed in it, because its connections cannot be used in another one.
"""

import atexit
import os
import time
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable
from contextlib import suppress
from contextvars import Context
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet, finalize

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from concurrent.futures import Future

MAX_CLIENTS = 64  # of a registry, in sync code or in one event loop
MAX_IDLE_SECONDS = 30.0
CLOSE_SECONDS = 16.0  # for a loop of another thread; an MCP server that does not react takes 8 of them
CALLS_PER_PASS = 32  # that begin in one pass of the event loop


class SyncClient(Protocol):
    """A client of sync code. One that is busy would lose something if it were closed now."""

    @property
    def is_busy(self) -> bool: ...
    def close(self) -> None: ...


class AsyncClient(Protocol):
    """The async form of `SyncClient`."""

    @property
    def is_busy(self) -> bool: ...
    async def aclose(self) -> None: ...


Key = TypeVar("Key", bound=Hashable)
Sync = TypeVar("Sync", bound=SyncClient)
Async = TypeVar("Async", bound=AsyncClient)


class _Table:
    """Clients by key, the last used last."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, tuple[float, Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def get(self, key: Key, build: Callable[[Key], Any]) -> tuple[Any, list[Any]]:
        """Return the client of a key, and those that are no longer kept. A new one takes the place of idle ones."""
        entry = self._entries.pop(key, None)
        found = build(key) if entry is None else entry[1]
        dropped = self.drop_idle(MAX_CLIENTS - 1) if entry is None else []
        self._entries[key] = time.monotonic(), found
        return found, dropped

    def drop_idle(self, most: int = MAX_CLIENTS) -> list[Any]:
        """Drop clients that rest, if they have rested for long or more than `most` are kept. Return them."""
        resting = [(key, used, client) for key, (used, client) in self._entries.items() if not client.is_busy]
        last_use = time.monotonic() - MAX_IDLE_SECONDS
        surplus = len(self._entries) - most
        dropped = [entry for number, entry in enumerate(resting) if number < surplus or entry[1] < last_use]
        for key, _, _ in dropped:
            del self._entries[key]
        return [client for _, _, client in dropped]

    def clear(self) -> list[Any]:
        """Keep none, and return all that were kept."""
        dropped = [client for _, client in self._entries.values()]
        self._entries.clear()
        return dropped


class Clients:
    """The clients of one registry, which are closed by `close`, and quietly when the registry is dropped."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._table = _Table()
        self._loops: dict[AbstractEventLoop, LoopClients] = {}
        # At exit, sockets end with the process, and `_close_at_exit` closes what needs more.
        finalize(self, _abandon, self._table, self._loops).atexit = False
        _all.add(self)

    def get(self, key: Key, build: Callable[[Key], Sync]) -> Sync:
        """Return the client of a key for synchronous calls."""
        with self._lock:
            found, dropped = self._table.get(key, build)
        _close_each(dropped)
        return found  # type: ignore[no-any-return]  # built by `build`, now or earlier

    def in_loop(self) -> "LoopClients":
        """Return the clients of the running event loop."""
        from asyncio import get_running_loop  # `import prompty` would take twice as long with it

        loop = get_running_loop()
        return self._loops.get(loop) or self._add_loop(loop)

    def _add_loop(self, loop: "AbstractEventLoop") -> "LoopClients":
        for closed in [known for known in tuple(self._loops) if known.is_closed()]:  # without closing its generators
            self._loops.pop(closed, None)
        added = self._loops[loop] = LoopClients(loop)
        loops = self._loops  # the generator would keep a registry that is dropped
        added.close_with_loop(lambda: loops.pop(loop, None))
        return added

    def close(self) -> None:
        """Close all clients of synchronous code, and those of every event loop that runs.

        A loop that waits for the caller closes its own when it continues. One that does not run keeps them until it
        ends: call `aclose` in it.
        """
        if closing := self._begin_close():
            from concurrent.futures import wait  # as above

            wait(closing, CLOSE_SECONDS)

    async def aclose(self) -> None:
        """Close all clients of the running event loop, and all others as `close` does."""
        from asyncio import get_running_loop, wait, wrap_future  # as above

        if own := self._loops.get(get_running_loop()):
            await own.aclose()
        if closing := self._begin_close():
            await wait([wrap_future(future) for future in closing], timeout=CLOSE_SECONDS)

    def _begin_close(self) -> "list[Future[None]]":
        """Close what needs no event loop, and return the ends of those that are closed in loops of other threads."""
        with self._lock:
            dropped = self._table.clear()
        _close_each(dropped)
        if not self._loops:
            return []
        from asyncio import run_coroutine_threadsafe  # as above

        from prompty.concurrency import waiting_loops  # as above

        closing, waiting = [], waiting_loops()
        for loop, clients in self.list_loops():
            with suppress(RuntimeError):  # closed meanwhile
                if loop in waiting:
                    loop.call_soon_threadsafe(clients.drop_all)
                elif loop.is_running():
                    closing.append(run_coroutine_threadsafe(clients.aclose(), loop))
        return closing

    def list_loops(self) -> "list[tuple[AbstractEventLoop, LoopClients]]":
        """Return the event loops that have clients, and these."""
        return list(self._loops.items())

    def forget(self) -> None:
        """Forget all clients after a fork: they are the parent's, and both would read from the same sockets."""
        self._lock = Lock()
        _close_each(self._table.clear())  # ends the child's copies only
        self._loops.clear()


class LoopClients:
    """The clients of one event loop. They are closed before it, because their connections hold it."""

    def __init__(self, loop: "AbstractEventLoop") -> None:
        from asyncio import Semaphore  # as above

        self.is_closed_at_exit: bool = False
        self._loop = loop
        self._table = _Table()
        self._dropped: list[Any] = []
        self._closing: set[Task[None]] = set()  # an event loop keeps no reference to its tasks
        self._is_watched = False
        self._admission = Semaphore(CALLS_PER_PASS)

    def get(self, key: Key, build: Callable[[Key], Async]) -> Async:
        """Return the client of a key."""
        found, dropped = self._table.get(key, build)
        self._drop(dropped)
        if not self._is_watched:
            self._is_watched = True
            self._loop.call_later(MAX_IDLE_SECONDS, self._drop_idle, context=Context())
        return found  # type: ignore[no-any-return]  # built by `build`, now or earlier

    async def admit(self) -> None:
        """Wait until a call may begin. If thousands began in one pass of the event loop, the connections of the first
        would time out before the loop came back to them."""
        await self._admission.acquire()
        self._loop.call_soon(self._admission.release)

    def drop_all(self) -> None:
        """Close all clients while the loop goes on."""
        self._drop(self._table.clear())

    async def aclose(self) -> None:
        """Close all clients."""
        self._dropped += self._table.clear()
        await self._close_dropped()

    def _drop_idle(self) -> None:
        self._drop(self._table.drop_idle())
        self._is_watched = bool(self._table)
        if self._is_watched:
            self._loop.call_later(MAX_IDLE_SECONDS, self._drop_idle, context=Context())

    def _drop(self, clients: Iterable[Any]) -> None:
        """Close clients in a separate task: one that is slow to close must not keep the caller waiting."""
        if clients:
            self._dropped += clients
            task = self._loop.create_task(self._close_dropped(), context=Context())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close_dropped(self) -> None:
        from asyncio import gather  # as above

        closing = list(self._dropped)  # they stay, in case this task is cancelled
        await gather(*(client.aclose() for client in closing), return_exceptions=True)
        self._dropped = [client for client in self._dropped if client not in closing]

    def close_with_loop(self, forget: Callable[[], object]) -> None:
        """Close the clients with the loop: `shutdown_asyncgens` finalizes this suspended generator."""
        self._until_end = self._close_at_end(forget)
        with suppress(StopIteration):  # raised by the `yield` of an async generator that is run by hand
            self._until_end.asend(None).send(None)

    async def _close_at_end(self, forget: Callable[[], object]) -> AsyncGenerator[None, None]:
        from asyncio import sleep  # as above

        try:
            yield
        finally:
            forget()
            await self.aclose()
            await sleep(0)  # a socket is closed in the next pass of the loop


def _close_each(clients: Iterable[SyncClient]) -> None:
    for client in clients:
        client.close()


def _abandon(table: _Table, loops: "dict[AbstractEventLoop, LoopClients]") -> None:
    """Close the clients of a registry that was dropped."""
    _close_each(table.clear())
    for loop, clients in loops.items():
        with suppress(RuntimeError):  # closed
            loop.call_soon_threadsafe(clients.drop_all)


_all: WeakSet[Clients] = WeakSet()


@atexit.register
def _close_at_exit() -> None:
    """Close what would be left behind: the process may end while sockets are open, but not its child processes."""
    kept = [(loop, kept) for clients in tuple(_all) for loop, kept in clients.list_loops() if kept.is_closed_at_exit]
    if running := [(loop, clients) for loop, clients in kept if loop.is_running()]:
        from asyncio import run_coroutine_threadsafe  # as above
        from concurrent.futures import wait  # as above

        wait([run_coroutine_threadsafe(clients.aclose(), loop) for loop, clients in running], CLOSE_SECONDS)


def _forget_all() -> None:
    for clients in tuple(_all):
        clients.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
