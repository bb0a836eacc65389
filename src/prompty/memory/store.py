"""The interface of session stores."""

import copy
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from prompty.model.message import Json


class MemoryStore(Protocol):
    """Stores conversations.

    Async code calls the methods on threads. A store that never waits, not even for a disk, can set
    `never_blocks = True` to be called on the event loop.
    """

    def load(self, session_id: str, /) -> list[Json]:
        """Return the messages of a session in order, or an empty list for a new one."""
        ...

    def append(self, session_id: str, messages: tuple[Json, ...], /) -> None:
        """Add messages, all or none."""
        ...

    def replace(self, session_id: str, messages: tuple[Json, ...], /) -> None:
        """Replace all messages of a session."""
        ...

    def acquire(self, session_id: str, /) -> Callable[[], None] | None:
        """Lock a session across all threads and processes that use the store.

        Return a function that releases the lock, or None if it is held elsewhere. The lock must also be released when
        its process ends or is killed.
        """
        ...


class AsyncMemoryStore(Protocol):
    """A `MemoryStore` with async methods. Sync code runs them on the event loop of async tools."""

    async def load(self, session_id: str, /) -> list[Json]: ...

    async def append(self, session_id: str, messages: tuple[Json, ...], /) -> None: ...

    async def replace(self, session_id: str, messages: tuple[Json, ...], /) -> None: ...

    async def acquire(self, session_id: str, /) -> Callable[[], object] | None:
        """Like `MemoryStore.acquire`. The function that releases the lock may be async."""
        ...


class InProcessMemory:
    """An in-memory store. Its sessions end with the process."""

    never_blocks = True

    def __init__(self) -> None:
        self._sessions: defaultdict[str, list[Json]] = defaultdict(list)
        self._held: set[str] = set()
        self._lock = threading.Lock()

    def load(self, session_id: str, /) -> list[Json]:
        with self._lock:
            return copy.deepcopy(self._sessions.get(session_id, []))

    def append(self, session_id: str, messages: tuple[Json, ...], /) -> None:
        with self._lock:
            self._sessions[session_id] += copy.deepcopy(messages)

    def replace(self, session_id: str, messages: tuple[Json, ...], /) -> None:
        with self._lock:
            self._sessions[session_id] = copy.deepcopy(list(messages))

    def acquire(self, session_id: str, /) -> Callable[[], None] | None:
        with self._lock:
            if session_id in self._held:
                return None
            self._held.add(session_id)
        return lambda: self._held.discard(session_id)
