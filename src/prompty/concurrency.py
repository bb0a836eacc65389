"""Run blocking functions on threads and coroutines from sync code, and lock files between processes.

Coroutines of sync code run on the event loops of `PORTAL`. One that calls sync code blocks its loop until the call
returns, so the call must not need the same loop. Each context therefore knows the loops that wait for it, and its
coroutines run on the first loop that does not.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import ContextVar, copy_context
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from prompty.errors import RequestError
from prompty.safety.write_files import open_to_append

T = TypeVar("T")
Loop = asyncio.AbstractEventLoop
END_SECONDS = 5.0  # that cancelled coroutines have for their `finally`
_waiting: ContextVar[frozenset[Loop]] = ContextVar("prompty_waiting_loops", default=frozenset())


def waiting_loops() -> frozenset[Loop]:
    """Return the event loops that stand still until the calling sync code returns."""
    try:
        return _waiting.get() | {asyncio.get_running_loop()}
    except RuntimeError:
        return _waiting.get()


def in_thread(function: Callable[[], T], *, blocks: bool = False) -> Future[T]:
    """Run a function on a new daemon thread, with the caller's context variables.

    A thread cannot be stopped, and a tool that hangs must not keep the process alive. A caller that `blocks` waits for
    the function without giving control back to its event loop.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from now on it cannot be cancelled: its thread would continue
    context = copy_context()
    if blocks:
        context.run(_waiting.set, waiting_loops())

    def work() -> None:
        try:
            future.set_result(context.run(function))
        except BaseException as error:  # raised where the future is awaited
            future.set_exception(error)

    threading.Thread(target=work, name="prompty", daemon=True).start()
    return future


class LoopFuture(Future[T]):
    """The result of a coroutine on the event loop of another thread. Cancelling it cancels the coroutine."""

    START_SECONDS: ClassVar[float] = 2.0  # after which a loop that has not started a coroutine counts as blocked

    def __init__(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> None:
        super().__init__()
        self._coroutine, self._context = coroutine, copy_context()
        self._name, self._waiting = name, _waiting.get() if name else waiting_loops()
        self._task: asyncio.Task[T] | None = None
        self._start = threading.Lock()  # held from the start on
        self._ended = threading.Event()
        self._loop = PORTAL.call(self._begin, self._waiting, name)

    @property
    def is_started(self) -> bool:
        return self._start.locked()

    def start_elsewhere(self) -> None:
        """Start the coroutine on the next loop, unless it has started: its loop is blocked."""
        if not self.is_started and not self._name:
            self._waiting |= {self._loop}
            self._loop = PORTAL.call(self._begin, self._waiting)

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result. Without a timeout, the coroutine starts elsewhere if its loop is blocked."""
        while timeout is None and not self.is_started:
            with suppress(TimeoutError):
                self.exception(self.START_SECONDS)
                break
            self.start_elsewhere()
        return super().result(timeout)

    def cancel(self) -> bool:
        was_cancelled = super().cancel()
        if self._start.acquire(blocking=False):
            self._coroutine.close()
            self._ended.set()
        elif was_cancelled and (task := self._task) is not None:
            with suppress(RuntimeError):  # a closed portal has cancelled it
                task.get_loop().call_soon_threadsafe(task.cancel)
        return was_cancelled

    def wait_for_end(self, seconds: float) -> None:
        """Wait for a cancelled coroutine to end, unless that keeps its loop from running."""
        if self._task is None or self._task.get_loop() not in waiting_loops():
            self._ended.wait(seconds)

    def _begin(self, loop: Loop) -> None:
        if self._start.acquire(blocking=False):
            self._context.run(_waiting.set, self._waiting)
            self._task = loop.create_task(self._coroutine, context=self._context)
            self._task.add_done_callback(self._finish)
            if self.cancelled():
                self._task.cancel()

    def _finish(self, task: asyncio.Task[T]) -> None:
        with suppress(InvalidStateError):  # cancelled meanwhile
            if task.cancelled():
                self.cancel()
                self.set_running_or_notify_cancel()
            elif error := task.exception():
                self.set_exception(error)
            else:
                self.set_result(task.result())
        self._ended.set()


def in_event_loop(coroutine: Coroutine[Any, Any, T], name: str = "") -> LoopFuture[T]:
    """Run a coroutine from sync code, with the caller's context variables, on a shared event loop or the one of a name.

    Raise RequestError if the caller keeps the loop of that name from running.
    """
    if name and PORTAL.is_waiting(name, waiting_loops()):
        coroutine.close()
        raise RequestError(
            "this call needs an event loop that waits for it", "Call it on another thread, or after you have returned."
        )
    return LoopFuture(coroutine, name)


def run_in_event_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from sync code and return its result. An interrupted wait cancels it."""
    future = in_event_loop(coroutine)
    try:
        return future.result()
    finally:
        cancel_and_wait([future])


def cancel_and_wait(futures: Collection[Future[Any]]) -> None:
    """Cancel coroutines that have not ended, and give them time for their `finally`. Threads cannot be cancelled."""
    running = [future for future in futures if future.cancel() and isinstance(future, LoopFuture)]
    deadline = time.monotonic() + END_SECONDS
    for future in running:
        future.wait_for_end(deadline - time.monotonic())


class _LoopThread(threading.Thread):
    """An event loop on a daemon thread."""

    def __init__(self, name: str) -> None:
        super().__init__(name=f"prompty {name}", daemon=True)
        self.loop = asyncio.new_event_loop()
        self._is_closed = False
        self.start()

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:  # which cancels what still runs
            runner.get_loop()
            while True:
                with suppress(BaseException):  # as SystemExit: it is raised where the coroutine's result is awaited
                    self.loop.run_forever()
                if self._is_closed:
                    break

    def close(self) -> None:
        """End the loop after what was submitted to it has begun."""
        self._is_closed = True
        self.loop.call_soon_threadsafe(self.loop.stop)


class Portal:
    """Event loops by name, each on a thread. They start when sync code needs them, and `close` ends them."""

    def __init__(self) -> None:
        self._threads: dict[str, _LoopThread] = {}
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            before, after = self._lock.acquire, self._lock.release
            os.register_at_fork(before=before, after_in_parent=after, after_in_child=self._forget_all)

    def call(self, begin: Callable[[Loop], object], waiting: frozenset[Loop], name: str = "") -> Loop:
        """Call `begin` on the loop of this name, or on the first shared loop that does not wait for the caller."""
        with self._lock:  # so that no loop is closed between
            loop = self._open(name) if name else self._find_shared(waiting)
            loop.call_soon_threadsafe(begin, loop)
            return loop

    def is_waiting(self, name: str, waiting: frozenset[Loop]) -> bool:
        """Return True if the loop of this name stands still until the caller returns."""
        return (thread := self._threads.get(name)) is not None and thread.loop in waiting

    def close(self, *, idle_only: bool = False) -> None:
        """Cancel what runs on the loops and end their threads, or only the threads of loops on which nothing runs.
        Later calls start new ones."""
        with self._lock:
            busy = {name for name, thread in self._threads.items() if idle_only and asyncio.all_tasks(thread.loop)}
            threads = [self._threads.pop(name) for name in self._threads.keys() - busy]
            for thread in threads:
                thread.close()
        waiting = waiting_loops()  # they cannot end before this returns
        deadline = time.monotonic() + END_SECONDS
        for thread in threads:
            if thread.loop not in waiting:
                thread.join(max(0, deadline - time.monotonic()))

    def _find_shared(self, waiting: frozenset[Loop]) -> Loop:
        return next(loop for number in count(1) if (loop := self._open(f"event loop {number}")) not in waiting)

    def _open(self, name: str) -> Loop:
        if name not in self._threads:
            self._threads[name] = _LoopThread(name)
        return self._threads[name].loop

    def _forget_all(self) -> None:
        """Forget the loops in the child of a fork, which has none of their threads."""
        self._threads = {}
        self._lock.release()


PORTAL: Portal = Portal()


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
        self._file = open_to_append(path)
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
