"""Work on other threads: functions that block, and coroutines for code that has no event loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def in_thread(function: Callable[[], T]) -> Future[T]:
    """Run a function on a thread of its own, with the context variables of here. A program can end while it runs: a
    thread cannot be stopped, and a tool that hangs must not keep the process."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from here on nobody can cancel it: its thread goes on
    context = copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(function))
        except BaseException as error:  # whoever waits for the future gets it
            future.set_exception(error)

    threading.Thread(target=work, name="prompty", daemon=True).start()
    return future


def in_event_loop(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine from code without an event loop, or inside one that is busy, with the context variables of here.
    Cancelling the future cancels it."""
    loop, context = _event_loop(), copy_context()

    async def in_context() -> T:
        return await loop.create_task(coroutine, context=context)

    return asyncio.run_coroutine_threadsafe(in_context(), loop)


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """The one event loop for async parts of synchronous programs; it runs as long as the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="prompty event loop", daemon=True).start()
    return loop
