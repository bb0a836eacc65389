"""The interface of session stores."""

from collections.abc import Callable
from typing import Protocol

from prompty.model.message import Json


class MemoryStore(Protocol):
    """Stores conversations. `prompty.memory.suite` is the test suite that a store must pass.

    Async code calls the methods on the event loop, so they must be fast.
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
