"""Performs the effects of a turn: what a step of a durable engine does. `durable.steps` decides, and names the steps.

Inside a step, the ordinary async driver performs the effect.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from logging import Logger, getLogger
from random import uniform
from secrets import token_hex
from typing import Any, TypeVar, cast

from prompty.drivers.aio import AsyncDriver, drain_async
from prompty.drivers.run import Run
from prompty.drivers.session import LOCK_POLL, MemorySession
from prompty.drivers.tool_runner import NotRun, ToolRunner, interrupted, not_run
from prompty.durable.codec import UNKNOWN, answer_to_json, error_to_json, result_to_json
from prompty.durable.delta_stream import DeltaWriter
from prompty.durable.envelope import seal, unseal
from prompty.durable.steps import Wanted
from prompty.errors import DeadlineExceeded, PromptyError, RunBroken, ToolError
from prompty.loop.effects import (
    CallModel,
    CallTools,
    DescribeTools,
    Effect,
    LoadMemory,
    PlannedCall,
    SaveMemory,
)
from prompty.model.event import Event, ModelFailed, ModelReply, ModelRequested
from prompty.model.message import Json, Message, Reply
from prompty.providers import has_live_transport
from prompty.safety.redaction import masked_traceback

T = TypeVar("T")
Fence = Callable[[], Awaitable[None]]
Write = Callable[[Json], Awaitable[None]]
logger: Logger = getLogger("prompty")


@dataclass(frozen=True, slots=True)
class RunDeadline:
    """When a run must have ended, in seconds since 1970, or None.

    No effect begins after it, and one that is under way is abandoned. The error becomes the result of a step, so a
    worker that takes the run over meets the same end.
    """

    at: float | None = None

    def error(self) -> DeadlineExceeded:
        assert self.at is not None  # noqa: S101  it was exceeded
        return DeadlineExceeded(datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds"))

    def has_passed(self) -> bool:
        return self.at is not None and time.time() >= self.at

    def shorten(self, seconds: float) -> float:
        """Return how long a wait may take."""
        return seconds if self.at is None else max(min(seconds, self.at - time.time()), 0.0)

    async def limit(self, begin: Callable[[], Awaitable[T]]) -> T:
        """Perform an effect, if there is time for it. Abandon it at the deadline, and raise DeadlineExceeded."""
        if self.at is None:
            return await begin()
        if self.has_passed():
            raise self.error()
        limit = asyncio.timeout(self.at - time.time())
        try:
            async with limit:
                return await begin()
        except Exception:
            if limit.expired():  # whatever the effect made of its end
                raise self.error() from None
            raise


def read_clock() -> float:
    """Return seconds of a clock that also runs while the machine is suspended, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class Performer:
    """Performs the effects of one turn in this process. `fence` returns when a side effect may begin. With `write`, the
    deltas of a model's answer are written while they arrive. `execution` tells what this process did from what another
    one did."""

    def __init__(
        self,
        run: Run,
        hooks: Json,
        *,
        fence: Fence,
        write: Write | None = None,
        deadline: RunDeadline | None = None,
    ) -> None:
        self.inner: AsyncDriver = run.async_driver()
        self.run_id: str = run.run_id
        self.execution: str = token_hex(8)
        self.hooks = hooks
        self._fence, self._write = fence, write
        self._deadline = deadline or RunDeadline()
        self._session = MemorySession(run.settings.memory)
        self._session_id = run.settings.session_id
        self._locking = asyncio.Lock()
        self._stored = 0  # messages of the session when the turn began
        self._requested: ModelRequested | None = None  # the next model call, until it is made
        self._found_kinds = False
        self._finding = asyncio.Lock()
        self._tools.before_call, self._tools.session = self._fence_call, self._session

    def emit(self, event: Event) -> None:
        """Pass events to the spans, except those of a model call that an earlier execution made."""
        match event:
            case ModelRequested():
                self._requested = event
            case ModelReply() | ModelFailed():
                if self._requested is None:
                    self.inner.host.emit(event)
            case _:
                self.inner.host.emit(event)

    async def perform(self, name: str, wanted: Wanted, *, once: bool = False, interrupted: bool = False) -> Json:
        """Perform the effect of a step. Errors are results: an engine would return them as errors of another class."""
        try:
            if once and interrupted:
                return seal(UNKNOWN)
            if self._session_id is not None and not self._session.is_locked:
                await self._lock_session(self._session_id)
            await self._fence()
            return seal(await self._perform(name, wanted))
        except Exception as error:
            if is_cancelled():  # this execution ends, so the step has no result
                raise asyncio.CancelledError from error
            return seal({"error": error_to_json(self._describe_failure(error))})

    async def _perform(self, name: str, wanted: Wanted) -> Json:
        match wanted:
            case PlannedCall():
                return result_to_json(await self._call_tool(wanted))
            case CallModel():
                reply = await self._call_model(name, wanted)
                return {"answer": answer_to_json(wanted, reply), "attempt": self.execution}
            case DescribeTools():
                self._found_kinds = True
                return {"answer": answer_to_json(wanted, await self._run(wanted)), "hooks": self.hooks}
            case LoadMemory(session_id):
                return {"answer": await self._session.load_async(session_id)}
            case SaveMemory():
                await self._save(wanted)
                return {"answer": None}
        return {"answer": answer_to_json(wanted, await self._run(wanted))}

    async def _run(self, effect: Effect[object]) -> object:
        return await self._deadline.limit(lambda: drain_async(self.inner.perform(effect)))

    def _describe_failure(self, error: Exception) -> PromptyError:
        if isinstance(error, PromptyError):
            return error
        logger.error("A step of the run %s raised.\n%s", self.run_id, masked_traceback(error, self.inner.redactor))
        return RunBroken(f"{type(error).__name__}: {error}")

    async def _call_model(self, name: str, effect: CallModel) -> Reply:
        """Return the reply of a model. Deltas are written while they arrive, with the execution they belong to."""
        if self._requested is not None:  # this execution makes the call, so it has a span
            self.inner.host.emit(self._requested)
            self._requested = None
        events = self.inner.perform(effect)
        if self._write is not None and self.inner.targets[effect.model].streams(effect.request):
            async with DeltaWriter(self._write, name, self.execution) as deltas:
                return await self._deadline.limit(lambda: drain_async(deltas.record(events)))
        return await self._deadline.limit(lambda: drain_async(events))

    async def _call_tool(self, planned: PlannedCall) -> Message:
        await self._find_kinds()
        if planned.call.name not in self._tools.tools:
            error = ToolError(
                f"this process has no tool '{planned.call.name}'",
                "Give it the tools that its turns began with: tools=[...].",
            )
            return not_run(planned, NotRun(str(error)))
        if self._deadline.has_passed():
            return not_run(planned, NotRun("The run's deadline has passed."))
        try:
            [message] = cast(list[Message], await self._run(CallTools(calls=(planned,))))
        except DeadlineExceeded:  # the next effect ends the run
            return interrupted(planned)
        return message

    async def _fence_call(self, planned: PlannedCall) -> None:
        """Fence a call that waited for its kind."""
        await self._fence()

    async def _find_kinds(self) -> None:
        """Find the tools of other kinds than functions, unless this execution described them."""
        async with self._finding:
            if self._tools.has_kinds and not self._found_kinds:
                await self._tools.find_kinds(is_async=True)
                self._found_kinds = True

    @property
    def _tools(self) -> ToolRunner:
        assert self.inner.tools is not None  # noqa: S101  a turn always has them
        return self.inner.tools

    def get_wait(self, seconds: float) -> float:
        """Return how long to wait before a retry: longer by chance, and not beyond the deadline."""
        return self._deadline.shorten(uniform(seconds, seconds * 1.25)) if has_live_transport() else 0.0  # noqa: S311  not for secrets

    async def _lock_session(self, session_id: str) -> None:
        """Lock the session until `release`. The first step that this execution performs does it."""
        async with self._locking:
            while not await self._session.lock_async(session_id):
                self._session.check_wait(session_id, blocks=False)
                await asyncio.sleep(LOCK_POLL)

    def note_loaded(self, stored: Json) -> None:
        """Note how many messages the session had when the turn began."""
        value: Any = unseal(stored, "a session")
        self._stored = len(value.get("answer") or ())

    async def release(self) -> None:
        """Release the session."""
        await self._session.release_async()

    async def _save(self, effect: SaveMemory) -> None:
        """Append messages to the session, unless an execution that died has: then they follow after `_stored`."""
        new = list(effect.messages)
        known = (await self._session.load_async(effect.session_id))[self._stored :]
        if not any(known[at : at + len(new)] == new for at in range(len(known) - len(new) + 1)):
            await self._session.save_async(effect.session_id, effect.messages)


def is_cancelled() -> bool:
    """Return True if the current task was cancelled. What it awaits may turn that into another error."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
