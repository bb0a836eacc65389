"""Ending a wait in async code when a token is cancelled, as `asyncio.timeout` ends one: the task is cancelled, and what
comes of that is not the task's own end."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from prompty.errors import Cancelled
from prompty.tools.context import CancelToken

T = TypeVar("T")


async def interruptible(awaitable: Awaitable[T], cancel: CancelToken | None) -> T:
    """Wait for something, or raise `Cancelled` once the token is cancelled."""
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
    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task = task
        self.waiting, self.happened = True, False

    def interrupt(self) -> None:
        """Cancel the task, if it still waits for what it waited for."""
        if self.waiting:
            self.happened = True
            self.task.cancel()
