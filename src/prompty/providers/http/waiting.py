"""Coroutines of pyreqwest, run in the thread that waits for them.

The synchronous client of pyreqwest 0.15.1 cannot be used: neither a signal nor another thread wakes a thread inside it,
and an interrupt that comes meanwhile can abort the whole process. Its coroutines are futures of Rust. These need
nothing of an event loop but to be told when they are to be looked at again.
"""

from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from threading import Lock
from typing import Any, Self, TypeVar

from prompty.providers.http.deadline import Deadline

T = TypeVar("T")


class GivenUp(ConnectionError):
    """Another thread has ended the wait."""


class Waiting:
    """One thread that waits: its event loop and the future of that in one, as far as pyreqwest uses them."""

    __slots__ = ("_given_up", "_pause")

    def __init__(self) -> None:
        self._given_up = False
        self._pause = Lock()
        self._pause.acquire()

    def wait_for(self, coroutine: Coroutine[Any, Any, T], deadline: Deadline | None = None) -> T:
        """Return the result of a coroutine. Raise GivenUp if another thread ends the wait, and TimeoutError."""
        outer = _get_running_loop()
        try:
            while True:
                _set_running_loop(self)  # type: ignore[arg-type]  # as much of a loop as is needed
                try:
                    waits = coroutine.send(None) is not None
                finally:
                    _set_running_loop(outer)
                if waits:
                    self._pause.acquire(timeout=deadline.left() if deadline else -1)
                    if self._given_up:
                        raise GivenUp("the call was given up")
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the coroutine returns
        except BaseException:
            coroutine.close()
            raise

    def give_up(self) -> None:
        """End the wait, from another thread."""
        self._given_up = True
        self._wake()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # it has been woken already
            self._pause.release()

    # What a future of Rust calls.

    def create_future(self) -> Self:
        return self

    def __iter__(self) -> Iterator[Self]:
        yield self

    def call_soon_threadsafe(self, *_: object) -> None:
        self._wake()

    def is_closed(self) -> bool:
        return False
