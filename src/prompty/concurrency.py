"""Run blocking functions on threads, and coroutines from code that has no event loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def in_thread(function: Callable[[], T]) -> Future[T]:
    """Run a function on a new daemon thread, with the caller's context variables.

    A thread cannot be stopped, and a tool that hangs must not keep the process alive.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # the future cannot be cancelled any more: its thread would go on
    context = copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(function))
        except BaseException as error:  # raised where the future is awaited
            future.set_exception(error)

    threading.Thread(target=work, name="prompty", daemon=True).start()
    return future


def in_event_loop(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine from synchronous code, with the caller's context variables. Cancelling the future cancels it."""
    loop, context = _event_loop(), copy_context()

    async def in_context() -> T:
        return await loop.create_task(coroutine, context=context)

    return asyncio.run_coroutine_threadsafe(in_context(), loop)


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop for the async parts of synchronous programs. It runs until the process ends."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="prompty event loop", daemon=True).start()
    return loop
