"""Run blocking functions on threads and coroutines from sync code, and lock files between processes."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def in_thread(function: Callable[[], T]) -> Future[T]:
    """Run a function on a new daemon thread, with the caller's context variables.

    A thread cannot be stopped, and a tool that hangs must not keep the process alive.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from now on it cannot be cancelled: its thread would continue
    context = copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(function))
        except BaseException as error:  # raised where the future is awaited
            future.set_exception(error)

    threading.Thread(target=work, name="prompty", daemon=True).start()
    return future


def in_event_loop(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine from sync code, with the caller's context variables. Cancelling the future cancels it."""
    loop, context = _event_loop(), copy_context()

    async def in_context() -> T:
        return await loop.create_task(coroutine, context=context)

    return asyncio.run_coroutine_threadsafe(in_context(), loop)


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """Return the shared event loop for sync programs. It runs until the process ends."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="prompty event loop", daemon=True).start()
    return loop


def _import_if_present(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


fcntl: Any = _import_if_present("fcntl")  # on POSIX
msvcrt: Any = _import_if_present("msvcrt")  # on Windows
_LOCKED_BYTE = 2**31 - 2  # msvcrt blocks access to locked bytes: lock one byte at the largest offset


class FileLock:
    """Exclusive lock on a file, held by one process at a time.

    Raises `BlockingIOError` if another process holds it. The operating system releases it when the process ends or is
    killed. `remove=True` deletes the file on release.
    """

    def __init__(self, path: Path, *, remove: bool = False) -> None:
        self._path, self._remove = path, remove
        self._file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            _lock(self._file)
            if remove:
                self._check_still_linked()
        except BaseException:
            os.close(self._file)
            raise

    def _check_still_linked(self) -> None:
        """Raise if the last holder deleted the file after this process opened it: the lock would have no effect."""
        try:
            linked = os.stat(self._path).st_ino == os.fstat(self._file).st_ino
        except FileNotFoundError:
            linked = False
        if not linked:
            raise BlockingIOError(f"'{self._path}' is being released")

    def release(self) -> None:
        if self._remove:
            with suppress(PermissionError):  # Windows does not delete open files: the next holder uses the same file
                self._path.unlink(missing_ok=True)
        os.close(self._file)


def _lock(file: int) -> None:
    """Lock an open file without waiting, or raise `BlockingIOError`."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    elif msvcrt is not None:
        os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(*error.args) from None
    else:
        raise OSError("cannot lock files: this Python has neither fcntl nor msvcrt")
