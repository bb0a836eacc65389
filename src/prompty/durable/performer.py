"""Performs the effects of a run: what a step of a durable engine does. `durable.driver` decides, and names the steps.

A step carries a reference to its effect: the effect itself follows from the record of the run and the steps before. The
process that decides has it at hand. Another one reads the stored steps and decides as far as the step once more
(`Follower`). Inside a step, the ordinary async driver performs the effect.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from logging import Logger, getLogger
from typing import Protocol, TypeVar, cast
from uuid import uuid4

from prompty.drivers.aio import AsyncDriver, Outcome, drain_async
from prompty.drivers.session import MemorySession
from prompty.drivers.tool_runner import NotRun, ToolRunner, interrupted, not_run
from prompty.durable.codec import answer_to_json, error_to_json, result_to_json
from prompty.durable.deadline import NO_DEADLINE, RunDeadline
from prompty.durable.delta_stream import DeltaWriter
from prompty.durable.engine import Attempt, WritableAttempt
from prompty.durable.envelope import seal
from prompty.durable.logs import follow_call
from prompty.durable.metrics import WorkerMetrics
from prompty.durable.selection import Outcome as RunOutcome
from prompty.errors import DeadlineExceeded, ModelError, PromptyError, RunBroken, ToolError
from prompty.loop.effects import (
    CallModel,
    CallTools,
    DescribeTools,
    Effect,
    LoadMemory,
    OutcomeUnknown,
    PlannedCall,
    SaveMemory,
)
from prompty.memory.store import AsyncMemoryStore, MemoryStore
from prompty.model.event import Event, ModelRequested
from prompty.model.message import Json, Message, Reply
from prompty.safety.redaction import masked_traceback

T = TypeVar("T")
logger: Logger = getLogger("prompty")


class CallLimiter(Protocol):
    """Wraps a worker's model calls. It receives the events of a call that has not started, and can delay them."""

    def __call__(
        self, events: AsyncGenerator[Event | Outcome[T], None], /
    ) -> AsyncGenerator[Event | Outcome[T], None]: ...


class Performer:
    """Performs the effects of one segment. `expected` are those that the driver has decided on, by step."""

    def __init__(
        self,
        inner: AsyncDriver,
        run_id: str,
        hooks: Json,
        memory: MemoryStore | AsyncMemoryStore | None,
        metrics: WorkerMetrics,
        pace: CallLimiter | None = None,
        deadline: RunDeadline = NO_DEADLINE,
    ) -> None:
        self.deadline = deadline
        self.inner = inner
        self.run_id = run_id
        self.hooks = hooks
        self.metrics = metrics
        self.pace = pace
        self.session: MemorySession = MemorySession(memory)
        self.expected: dict[str, Effect[object] | PlannedCall] = {}
        self.requested: ModelRequested | None = None  # the next model call, until it is made
        self.stored: int = 0  # messages of the session when the run began
        self._found_kinds = False
        self._finding = asyncio.Lock()
        self._calls: dict[str, Attempt] = {}
        self._tools.before_call, self._tools.session = self._check_call, self.session

    async def perform(self, attempt: Attempt, effect: Effect[object] | PlannedCall, reference: Json) -> Json:
        """Perform the effect of a step. Errors are results: the engine would return them as errors of another class."""
        try:
            await attempt.fence()
            begun = time.monotonic()
            result = await self._perform(attempt, effect, reference)
            self.metrics.record_step(attempt.name.partition(":")[0], time.monotonic() - begun)
            return seal(result)
        except Exception as error:
            if _is_cancelled():  # this execution ends, so the step has no result
                raise asyncio.CancelledError from error
            return seal({"error": error_to_json(self._describe_failure(error))})

    async def _perform(self, attempt: Attempt, effect: Effect[object] | PlannedCall, reference: Json) -> Json:
        match effect:
            case PlannedCall():
                with follow_call(effect.key, effect.call.name):
                    return result_to_json(await self._call_tool(attempt, effect, reference))
            case CallModel():
                reply = await self._call_model(attempt, effect)
                return {"answer": answer_to_json(effect, reply), "attempt": attempt.execution}
            case DescribeTools():
                self._found_kinds = True
                return {"answer": answer_to_json(effect, await self._run(effect)), "hooks": self.hooks}
            case LoadMemory(session_id):
                return {"answer": await self.session.load_async(session_id)}
            case SaveMemory():
                await self._save(effect)
                return {"answer": None}
        return {"answer": answer_to_json(effect, await self._run(effect))}

    async def _run(self, effect: Effect[object]) -> object:
        return await self.deadline.limit(lambda: drain_async(self.inner.perform(effect)))

    def _describe_failure(self, error: Exception) -> PromptyError:
        if isinstance(error, PromptyError):
            return error
        logger.error("A step of the run %s raised.\n%s", self.run_id, masked_traceback(error))
        return RunBroken(f"{type(error).__name__}: {error}")

    async def _call_model(self, attempt: Attempt, effect: CallModel) -> Reply:
        """Return the reply of a model. Deltas are written while they arrive, with the execution they belong to."""
        if self.requested is not None:  # this execution makes the call, so it has a span
            self.inner.host.emit(self.requested)
            self.requested = None
        events = self._fenced(attempt, self.inner.perform(effect))
        if self.pace is not None:
            events = self.pace(events)
        if self.inner.targets[effect.model].streams(effect.request) and isinstance(attempt, WritableAttempt):
            async with DeltaWriter(attempt.write, attempt.name, attempt.execution) as deltas:
                return await self.deadline.limit(lambda: self._metered(deltas.record(events)))
        return await self.deadline.limit(lambda: self._metered(events))

    async def _metered(self, events: AsyncGenerator[Event | Outcome[Reply], None]) -> Reply:
        try:
            received = await drain_async(events)
        except ModelError as error:
            if error.status == HTTPStatus.TOO_MANY_REQUESTS:
                self.metrics.count("prompty.model.rate_limited")
            raise
        self.metrics.count_tokens(received.usage)
        return received

    async def _fenced(
        self, attempt: Attempt, events: AsyncGenerator[Event | Outcome[T], None]
    ) -> AsyncGenerator[Event | Outcome[T], None]:
        """Fence a call that `pace` delayed."""
        await attempt.fence()
        async for event in events:
            yield event

    async def _call_tool(self, attempt: Attempt, planned: PlannedCall, reference: Json) -> Message | OutcomeUnknown:
        begun = time.monotonic()
        result = await self._run_call(attempt, planned, reference)
        outcome = "is not known" if isinstance(result, OutcomeUnknown) else "is stored"
        logger.info("The call has ended after %.3f s, and its result %s.", time.monotonic() - begun, outcome)
        return result

    async def _run_call(self, attempt: Attempt, planned: PlannedCall, reference: Json) -> Message | OutcomeUnknown:
        """Run a call, unless it must not be repeated and may have been run."""
        if reference["once"] and (reference["interrupted"] or attempt.is_repeated):
            self.metrics.count("prompty.calls.uncertain")
            return OutcomeUnknown()
        await self._find_kinds()
        if planned.call.name not in self._tools.tools:
            error = ToolError(f"this worker has no tool '{planned.call.name}'", "Start it with the tools of its runs.")
            return not_run(planned, NotRun(str(error)))
        if self.deadline.has_passed():
            return not_run(planned, NotRun("The run's deadline has passed."))
        self._calls[planned.key] = attempt
        try:
            [message] = cast(list[Message], await self._run(CallTools(calls=(planned,))))
            return message
        except DeadlineExceeded:  # the next effect ends the run
            return interrupted(planned)
        finally:
            del self._calls[planned.key]

    async def _check_call(self, planned: PlannedCall) -> None:
        """Fence a call that waited for its kind."""
        await self._calls[planned.key].fence()

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

    async def _save(self, effect: SaveMemory) -> None:
        """Append messages to the session, unless an execution that died has: then they follow after `stored`."""
        new = list(effect.messages)
        known = (await self.session.load_async(effect.session_id))[self.stored :]
        if not any(known[at : at + len(new)] == new for at in range(len(known) - len(new) + 1)):
            await self.session.save_async(effect.session_id, effect.messages)


class Follower:
    """Steps of an execution that is decided on in another process, as far as they are stored. The one that is wanted
    has no result yet: when the workflow comes to it, `reached` is set, and the workflow waits."""

    def __init__(self, stored: Mapping[str, object], wanted: str) -> None:
        self.execution: str = uuid4().hex
        self.reached: asyncio.Event = asyncio.Event()
        self._stored, self._wanted = stored, wanted
        self._drains = 0

    async def step(self, name: str, effect: Json, /) -> Json:
        return cast(Json, await self._read(name))

    async def begin(self, name: str, /) -> bool:
        return True

    async def receive(self) -> list[str]:
        self._drains += 1
        return cast(list[str], await self._read(f"received:{self._drains}"))

    async def label(self, outcome: RunOutcome, /) -> None:
        raise RunBroken(f"the run has no step '{self._wanted}'")

    async def _read(self, name: str) -> object:
        if name == self._wanted:
            self.reached.set()
        if name not in self._stored:
            await asyncio.Event().wait()
        return self._stored[name]


def _is_cancelled() -> bool:
    """Return True if the current task was cancelled. What it awaits may turn that into another error."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
