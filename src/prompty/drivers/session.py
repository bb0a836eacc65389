"""The session of one run in the host's store: lock it, load it, append to it and release it.

Async code calls a store's methods on threads, unless they are async or the store `never_blocks`.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from threading import Lock
from typing import Any, TypeVar

from prompty.concurrency import in_thread, run_in_event_loop, waiting_loops
from prompty.errors import MemoryFailed, RequestError
from prompty.memory.store import AsyncMemoryStore, MemoryStore
from prompty.model.message import Json

T = TypeVar("T")
LOCK_POLL = 0.02
_around: ContextVar[tuple["MemorySession", ...]] = ContextVar("prompty_sessions", default=())


class HeldSessions:
    """The sessions that runs of this process have locked. A run lets go of its session when it ends."""

    def __init__(self) -> None:
        self._sessions: list[MemorySession] = []
        self._lock = Lock()

    def add(self, session: "MemorySession") -> None:
        with self._lock:
            self._sessions.append(session)

    def remove(self, session: "MemorySession") -> None:
        with self._lock:
            self._sessions.remove(session)

    def find(self, memory: object, session_id: str) -> "list[MemorySession]":
        """Return those who hold a session of a store."""
        with self._lock:
            return [one for one in self._sessions if one.is_for(memory, session_id)]


HELD = HeldSessions()


class MemorySession:
    """The session of a run in a store."""

    def __init__(self, memory: MemoryStore | AsyncMemoryStore | None) -> None:
        self._memory: Any = memory
        self._never_blocks: bool = getattr(memory, "never_blocks", False)
        self._id = ""
        self._release: Callable[[], object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def is_for(self, memory: object, session_id: str) -> bool:
        return bool(self._id == session_id and self._memory == memory)

    @property
    def is_locked(self) -> bool:
        return self._release is not None

    def lock(self, session_id: str) -> bool:
        """Try to lock the session. Return False if another run holds it."""
        if not self.is_locked:
            self._hold(session_id, self._use(session_id, self._memory.acquire, session_id))
        return self.is_locked

    async def lock_async(self, session_id: str) -> bool:
        if not self.is_locked:
            self._loop = asyncio.get_running_loop()
            await self._finish(self._lock_async(session_id))
        return self.is_locked

    async def _lock_async(self, session_id: str) -> None:
        self._hold(session_id, await self._use_async(session_id, self._memory.acquire, session_id))

    def load(self, session_id: str) -> list[Json]:
        messages: list[Json] = self._use(session_id, self._memory.load, session_id)
        return messages

    async def load_async(self, session_id: str) -> list[Json]:
        messages: list[Json] = await self._use_async(session_id, self._memory.load, session_id)
        return messages

    def save(self, session_id: str, messages: tuple[Json, ...]) -> None:
        self._use(session_id, self._memory.append, session_id, messages)

    async def save_async(self, session_id: str, messages: tuple[Json, ...]) -> None:
        await self._finish(self._use_async(session_id, self._memory.append, session_id, messages))

    def release(self) -> None:
        """Unlock the session, if this run has locked it."""
        if release := self._let_go():
            self._use(self._id, release)

    async def release_async(self) -> None:
        if release := self._let_go():
            await self._finish(self._use_async(self._id, release))

    def around(self) -> AbstractContextManager[None]:
        """Enter a function of the host. What it calls cannot wait for this session: this run waits for the function."""
        return self._enter() if self.is_locked else nullcontext()

    @contextmanager
    def _enter(self) -> Iterator[None]:
        token = _around.set((*_around.get(), self))
        try:
            yield
        finally:
            _around.reset(token)

    def wrap_tool(self, call: Callable[[], object], *, is_async: bool) -> Callable[[], object]:
        """Return a function that runs a tool call inside this session."""

        async def wait(value: Any) -> object:
            with self._enter():
                return await value

        def run() -> object:
            with self._enter():
                value = call()
            return wait(value) if inspect.isawaitable(value) else value

        return (lambda: wait(call())) if is_async else run

    def check_wait(self, session_id: str, *, blocks: bool) -> None:
        """Raise RequestError if the session cannot become free while the caller waits for it. A caller that `blocks`
        keeps its event loop from running."""
        holders = HELD.find(self._memory, session_id)
        if any(holder in _around.get() for holder in holders):
            raise RequestError(
                f"the session '{session_id}' is in use by the turn that this call is part of",
                "Pass another session_id, or make the call after that turn.",
            )
        blocked = waiting_loops() if blocks else waiting_loops() - {asyncio.get_running_loop()}
        if any(holder._loop in blocked for holder in holders):
            raise RequestError(
                f"the session '{session_id}' is in use by a turn on an event loop that waits for this call",
                "Call `await turn_async(…)` in async code, not `turn(…)`.",
            )

    def _hold(self, session_id: str, release: Callable[[], object] | None) -> None:
        if release is not None:
            self._id, self._release = session_id, release
            HELD.add(self)

    def _let_go(self) -> Callable[[], object] | None:
        release, self._release = self._release, None
        if release is not None:
            HELD.remove(self)
        return release

    def _use(self, session_id: str, method: Callable[..., Any], *arguments: object) -> Any:
        try:
            with self.around():
                value = method(*arguments)
                return run_in_event_loop(_await(value)) if inspect.isawaitable(value) else value
        except Exception as error:
            raise MemoryFailed(session_id, error) from error

    async def _use_async(self, session_id: str, method: Callable[..., Any], *arguments: object) -> Any:
        try:
            with self.around():
                if self._never_blocks or inspect.iscoroutinefunction(method):
                    value = method(*arguments)
                else:
                    value = await asyncio.wrap_future(in_thread(lambda: method(*arguments)))
                return await value if inspect.isawaitable(value) else value
        except Exception as error:
            raise MemoryFailed(session_id, error) from error

    async def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the end of a change to the store, even if the task is cancelled meanwhile. A lock that came later
        would never be released, and messages would be stored after the release."""
        if self._never_blocks:
            return await work
        task, cancelled = asyncio.ensure_future(work), None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is None:
            return task.result()
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it
        raise cancelled


async def _await(awaitable: Any) -> Any:
    return await awaitable
