"""Cancel a run from any thread, and interrupt the waits of sync and async code."""

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from prompty.errors import Cancelled

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class CancelToken:
    """Cancels a run: pass it to the run, and call `cancel()` from any thread, any number of times."""

    def __init__(self) -> None:
        self.reason: str = ""
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], object]] = []

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def cancel(self, reason: str = "the turn was cancelled") -> None:
        with self._lock:
            if self.cancelled:
                return
            self.reason = reason
            self._cancelled.set()
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def check(self) -> None:
        """Raise `Cancelled` if the token is cancelled."""
        if self.cancelled:
            raise Cancelled(self.reason)

    def wait(self, seconds: float) -> None:
        """Sleep. Raise `Cancelled` as soon as the token is cancelled."""
        self._cancelled.wait(seconds)
        self.check()

    @contextmanager
    def listening(self, listener: Callable[[], object]) -> Iterator[None]:
        """Call `listener` once if the token is cancelled before or inside the block, on the cancelling thread."""
        with self._lock:
            already = self.cancelled
            self._listeners.append(listener)
        try:
            if already:
                listener()
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)


async def interruptible(awaitable: Awaitable[T], cancel: CancelToken | None) -> T:
    """Await a value. Raise `Cancelled` as soon as the token is cancelled.

    As with `asyncio.timeout`, the task is cancelled to end the wait, and that does not count as a cancellation of the
    task itself.
    """
    import asyncio  # only async code needs it, which has imported it

    task = asyncio.current_task()
    if cancel is None or task is None:
        return await awaitable
    loop, before = asyncio.get_running_loop(), task.cancelling()
    interruption = _Interruption(task)
    with cancel.listening(lambda: loop.call_soon_threadsafe(interruption.interrupt)):
        try:
            return await awaitable
        except asyncio.CancelledError:
            if interruption.happened and task.uncancel() <= before:
                raise Cancelled(cancel.reason) from None
            raise
        finally:
            interruption.waiting = False


class _Interruption:
    def __init__(self, task: "asyncio.Task[object]") -> None:
        self.task = task
        self.waiting, self.happened = True, False

    def interrupt(self) -> None:
        """Cancel the task, unless its wait is already over."""
        if self.waiting:
            self.happened = True
            self.task.cancel()
