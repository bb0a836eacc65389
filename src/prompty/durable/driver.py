"""Performs the effects of a run as steps of a durable engine, so that another process can continue it.

Inside a step, the ordinary async driver performs the effect. Only effects without a stored answer are performed again.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from http import HTTPStatus
from logging import Logger, getLogger
from typing import Protocol, TypeVar, cast
from uuid import uuid4

from prompty.drivers.aio import AsyncDriver, Outcome, drain
from prompty.drivers.host import Host
from prompty.drivers.sync import LOCK_POLL
from prompty.drivers.tool_runner import NotRun, ToolRunner, interrupted, not_run
from prompty.durable.codec import (
    StepNames,
    answer_from,
    answer_to_json,
    error_from,
    error_to_json,
    result_from,
    result_to_json,
)
from prompty.durable.deadline import NO_DEADLINE, RunDeadline
from prompty.durable.delta_stream import DeltaWriter
from prompty.durable.engine import Steps
from prompty.durable.envelope import seal, unseal
from prompty.durable.logs import follow_call
from prompty.durable.metrics import WorkerMetrics
from prompty.errors import DeadlineExceeded, ModelError, PromptyError, RunBroken, RunRefused, ToolError
from prompty.loop.effects import (
    CallModel,
    CallTools,
    Checkpoint,
    DescribeTools,
    DrainSteering,
    Effect,
    Emit,
    LoadMemory,
    Loop,
    OfferedTool,
    OutcomeUnknown,
    PlannedCall,
    SaveMemory,
)
from prompty.loop.options import Settings
from prompty.memory.store import MemoryStore
from prompty.model.event import Event, ModelFailed, ModelReply, ModelRequested
from prompty.model.message import Json, Message
from prompty.model.reply import Reply
from prompty.safety.redaction import masked_traceback

T = TypeVar("T")
CANCELLED = "the run was cancelled"
logger: Logger = getLogger("prompty")


class CallLimiter(Protocol):
    """Wraps a worker's model calls. It receives the events of a call that has not started, and can delay them."""

    def __call__(
        self, events: AsyncGenerator[Event | Outcome[T], None], /
    ) -> AsyncGenerator[Event | Outcome[T], None]: ...


class WrongWorker(Exception):
    """This worker calls other functions of the host than the one that began the run.

    It is not a PromptyError, so that the run breaks and can be retried elsewhere, instead of ending.
    """

    def __init__(self, run_id: str, wanted: object, found: object) -> None:
        super().__init__(f"the run '{run_id}' was begun by a worker with {wanted}, and this one has {found}")


class DurableDriver:
    """Drives one segment of a run. The `nonce` tells the calls of this execution from those of an earlier one."""

    def __init__(
        self,
        steps: Steps,
        inner: AsyncDriver,
        run_id: str,
        hooks: Json,
        memory: MemoryStore | None,
        metrics: WorkerMetrics,
        *,
        pace: CallLimiter | None = None,
        ended: PromptyError | None = None,
        deadline: RunDeadline = NO_DEADLINE,
    ) -> None:
        self.steps = steps
        self.metrics = metrics
        self.inner = inner
        self.run_id = run_id
        self.hooks = hooks
        self.ended = ended
        self.deadline = deadline
        self.pace = pace
        self.nonce: str = uuid4().hex
        self.names: StepNames = StepNames()
        self.session: Host = Host(Settings(memory=memory))
        self.stored: int = 0
        self.idempotent: frozenset[str] = frozenset()
        self._found_kinds = False
        self._requested: ModelRequested | None = None
        self._tools.before_call = self._check_call
        self._finding = asyncio.Lock()

    async def drive(self, loop: Loop[T]) -> T:
        """Drive the loop to its end. What ends this execution but not the run passes by the loop, which stores
        nothing."""
        answer: object = None
        failure: PromptyError | None = None
        try:
            while True:
                try:
                    effect = loop.throw(failure) if failure else loop.send(answer)
                except StopIteration as end:
                    return cast(T, end.value)
                answer = failure = None
                try:
                    answer = await self._perform(effect)
                except RunRefused:
                    raise
                except PromptyError as error:
                    failure = error
        finally:
            loop.close()
            self.session.release()

    async def _perform(self, effect: Effect[object]) -> object:
        match effect:
            case Emit(event):
                self._record(event)
                return None
            case LoadMemory(session_id):
                return await self._loaded(effect, session_id)
            case SaveMemory():
                return await self._answered(effect, partial(self._saved, effect))
        if self.ended is not None:
            raise self.ended
        match effect:
            case Checkpoint():
                return None
            case CallTools():
                return await self._stage(effect)
            case DescribeTools():
                return await self._described(effect)
            case DrainSteering():
                return await self.steps.receive()
            case CallModel():
                return await self._replied(effect)
        return await self._answered(effect, partial(self.deadline.limit, partial(self._inner, effect)))

    def _record(self, event: Event) -> None:
        """Pass events to the spans, except those of a model call that an earlier execution made."""
        match event:
            case ModelRequested():
                self._requested = event
            case ModelReply() | ModelFailed():
                if self._requested is None:
                    self.inner.host.emit(event)
            case _:
                self.inner.host.emit(event)

    async def _inner(self, effect: Effect[object]) -> object:
        return await drain(self.inner.perform(effect))

    async def _answered(self, effect: Effect[object], answer: Callable[[], Awaitable[object]]) -> object:
        """Return the stored answer to an effect, or perform it as a step."""
        name = self.names.of(effect)

        async def body() -> Json:
            return {"answer": answer_to_json(effect, await answer())}

        kept = await self._step(name, body)
        return answer_from(effect, kept.get("answer"), self._place(name))

    async def _step(self, name: str, body: Callable[[], Awaitable[object]]) -> dict[str, object]:
        """Return the value of a step, stored or new. Errors are stored as values: the engine would return them as
        errors of another class."""

        async def kept() -> Json:
            try:
                await self.steps.fence()
                begun = time.monotonic()
                result = await body()
                self.metrics.record_step(name.partition(":")[0], time.monotonic() - begun)
                return seal(result)
            except Exception as error:
                if _is_cancelled():  # this execution ends, so the step has no result
                    raise asyncio.CancelledError from error
                return seal({"error": error_to_json(self._failure(error))})

        value = unseal(await self.steps.step(name, kept), self._place(name))
        if not isinstance(value, dict):
            raise RunRefused(self._place(name), "it is not what a step keeps")
        if "error" in value:
            raise error_from(value["error"], self._place(name))
        return value

    def _failure(self, error: Exception) -> PromptyError:
        if isinstance(error, PromptyError):
            return error
        logger.error("A step of the run %s raised.\n%s", self.run_id, masked_traceback(error))
        return RunBroken(f"{type(error).__name__}: {error}")

    async def _check_call(self, _: PlannedCall) -> None:
        """Fence a call that waited for a free slot or for its kind."""
        await self.steps.fence()

    def _place(self, name: str) -> str:
        return f"the step '{name}' of the run '{self.run_id}'"

    async def _replied(self, effect: CallModel) -> object:
        """Return the reply of a model. Deltas are written while they arrive, with the execution they belong to."""
        name = self.names.of(effect)
        streams = self.inner.targets[effect.model].streams(effect.request)

        async def body() -> Json:
            if self._requested is not None:  # this execution makes the call, so it has a span
                self.inner.host.emit(self._requested)
                self._requested = None
            async with DeltaWriter(self.steps.write, name, self.nonce) as deltas:
                events = self._fenced(self.inner.perform(effect))
                if self.pace is not None:
                    events = self.pace(events)
                events = deltas.record(events) if streams else events
                reply = await self.deadline.limit(partial(self._metered, events))
            return {"answer": answer_to_json(effect, reply), "attempt": self.nonce}

        kept = await self._step(name, body)
        return answer_from(effect, kept.get("answer"), self._place(name))

    async def _metered(self, events: AsyncGenerator[Event | Outcome[Reply], None]) -> Reply:
        try:
            received = await drain(events)
        except ModelError as error:
            if error.status == HTTPStatus.TOO_MANY_REQUESTS:
                self.metrics.count("prompty.model.rate_limited")
            raise
        self.metrics.count_tokens(received.usage)
        return received

    async def _fenced(
        self, events: AsyncGenerator[Event | Outcome[T], None]
    ) -> AsyncGenerator[Event | Outcome[T], None]:
        """Fence a call that `pace` delayed."""
        await self.steps.fence()
        async for event in events:
            yield event

    async def _stage(self, stage: CallTools) -> list[Message | OutcomeUnknown | None]:
        """Run each call as a step of its own. All steps start in order before any is awaited: the engine tells them
        apart by that order."""
        intended = await self._intended(stage)
        room = asyncio.Semaphore(stage.max_parallel or len(stage.calls))
        tasks = [asyncio.create_task(self._call(planned, intended, room)) for planned in stage.calls]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:  # this execution ends: nothing of it may outlive it
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _intended(self, stage: CallTools) -> object:
        """Return the nonce of the execution that first started a stage. Idempotent calls do not need it."""
        if self.idempotent.issuperset(planned.call.name for planned in stage.calls):
            return self.nonce

        async def intent() -> Json:
            return {"nonce": self.nonce}

        return (await self._step(self.names.of_intent(stage), intent)).get("nonce")

    async def _call(self, planned: PlannedCall, intended: object, room: asyncio.Semaphore) -> Message | OutcomeUnknown:
        name = self.names.of_call(planned)

        async def body() -> Json:
            async with room:
                with follow_call(planned.key, planned.call.name):
                    return result_to_json(await self._logged(self._result(planned, intended)))

        return result_from(await self._step(name, body), self._place(name))

    @staticmethod
    async def _logged(call: Awaitable[Message | OutcomeUnknown]) -> Message | OutcomeUnknown:
        begun = time.monotonic()
        result = await call
        outcome = "is not known" if isinstance(result, OutcomeUnknown) else "is stored"
        logger.info("The call has ended after %.3f s, and its result %s.", time.monotonic() - begun, outcome)
        return result

    async def _result(self, planned: PlannedCall, intended: object) -> Message | OutcomeUnknown:
        """Run a call, unless an earlier execution may have run it already."""
        if intended != self.nonce and planned.call.name not in self.idempotent:
            self.metrics.count("prompty.calls.uncertain")
            return OutcomeUnknown()
        await self._find_kinds()
        if planned.call.name not in self._tools.tools:
            error = ToolError(f"this worker has no tool '{planned.call.name}'", "Start it with the tools of its runs.")
            return not_run(planned, NotRun(str(error)))
        if self.deadline.has_passed():
            return not_run(planned, NotRun("The run's deadline has passed."))
        try:
            results = await self.deadline.limit(partial(self._inner, CallTools(calls=(planned,))))
        except DeadlineExceeded:  # the next effect ends the run
            return interrupted(planned)
        [message] = cast(list[Message], results)
        return message

    async def _described(self, effect: DescribeTools) -> object:
        """Return the tools, stored together with the hooks of the host that this run calls."""
        name = self.names.of(effect)

        async def describe() -> Json:
            self._found_kinds = True
            offered = await self.deadline.limit(partial(self._inner, effect))
            return {"answer": answer_to_json(effect, offered), "asked": self.hooks}

        kept = await self._step(name, describe)
        if kept.get("asked") != self.hooks:
            raise WrongWorker(self.run_id, kept.get("asked"), self.hooks)
        offered = cast(tuple[OfferedTool, ...], answer_from(effect, kept.get("answer"), self._place(name)))
        self.idempotent = frozenset(tool.function.name for tool in offered if tool.idempotent)
        return offered

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

    async def _loaded(self, effect: LoadMemory, session_id: str) -> object:
        """Lock the session, and return the messages that the first execution found."""
        while not self.session.lock_session(session_id):
            await asyncio.sleep(LOCK_POLL)

        async def load() -> object:
            return self.session.load(session_id)

        stored = cast(list[Json], await self._answered(effect, load))
        self.stored = len(stored)
        return stored

    async def _saved(self, effect: SaveMemory) -> None:
        """Append messages to the session, unless an execution that died has: then they follow after `stored`."""
        new = list(effect.messages)
        known = self.session.load(effect.session_id)[self.stored :]
        if not any(known[at : at + len(new)] == new for at in range(len(known) - len(new) + 1)):
            self.session.save(effect.session_id, effect.messages)


def _is_cancelled() -> bool:
    """Return True if the current task was cancelled. What it awaits may turn that into another error."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
