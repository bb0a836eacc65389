"""Performs the effects of a turn and keeps what comes of them, so that another process can go on where this one ends.

Each effect is a step of the engine. What does it is the ordinary asynchronous driver, inside the step: the loop is the
same, the tools run in the same way, and only answers that left no result are asked for again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from logging import getLogger
from typing import TypeVar, cast
from uuid import uuid4

from prompty.drivers.aio import AsyncDriver
from prompty.drivers.calls_async import last_of
from prompty.drivers.host import Host
from prompty.drivers.sync import LOCK_POLL
from prompty.drivers.toolruns import ToolRuns, failed
from prompty.durable.answers import (
    StepNames,
    answer_from,
    answer_to_json,
    error_from,
    error_to_json,
    result_from,
    result_to_json,
)
from prompty.durable.deltas import Deltas
from prompty.durable.engine import Steps
from prompty.durable.pace import Pace
from prompty.durable.values import opened, sealed
from prompty.errors import Cancelled, PromptyError, RunBroken, RunRefused, ToolError
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
    PlannedCall,
    SaveMemory,
    Unknown,
)
from prompty.model.message import Json, Message
from prompty.safety.redaction import masked_traceback

T = TypeVar("T")
CANCELLED = "the run was cancelled"
LATE = 0.25  # seconds between the beginning of a step and that of what it does; no takeover is that quick
MOST_ASKED = 3
logger = getLogger("prompty")


class WrongWorker(Exception):
    """A run cannot go on here. It breaks, and can be retried where it can; as an error of ours it would end."""

    def __init__(self, run_id: str, wanted: object, found: object) -> None:
        super().__init__(f"the run '{run_id}' was begun by a worker with {wanted}, and this one has {found}")


class DurableDriver:
    """Drives one segment of a run. `nonce` is of this execution alone: by it one knows what another one has begun."""

    def __init__(
        self,
        steps: Steps,
        inner: AsyncDriver,
        run_id: str,
        asked: Json,
        *,
        pace: Pace | None = None,
        cancelled: bool = False,
    ) -> None:
        self.steps, self.inner, self.run_id, self.asked, self.cancelled = steps, inner, run_id, asked, cancelled
        self.pace = pace
        self.nonce = uuid4().hex
        self.names = StepNames()
        self.session = Host(memory=inner.host.memory)
        self.stored = 0
        self.idempotent: frozenset[str] = frozenset()
        self._found_kinds = False
        self._asked: dict[str, float] = {}
        self._runs.check = self._check_call
        self._finding = asyncio.Lock()

    async def run(self, loop: Loop[T]) -> T:
        """Drive a loop to its end. What ends this execution but not the run passes through: the loop does not hear of
        it, and stores nothing."""
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
            self.session.end()

    async def _perform(self, effect: Effect[object]) -> object:
        match effect:
            case Emit():
                return None
            case LoadMemory(session_id):
                return await self._loaded(effect, session_id)
            case SaveMemory():
                return await self._answered(effect, partial(self._saved, effect))
        if self.cancelled:
            raise Cancelled(CANCELLED)
        match effect:
            case Checkpoint():
                return None
            case CallTools():
                return await self._stage(effect)
            case DescribeTools():
                return await self._described(effect)
            case DrainSteering():
                return await self.steps.received()
            case CallModel():
                return await self._replied(effect)
        return await self._answered(effect, partial(self._inner, effect))

    async def _inner(self, effect: Effect[object]) -> object:
        return await last_of(self.inner.run(one_effect(effect)))

    async def _answered(self, effect: Effect[object], answer: Callable[[], Awaitable[object]]) -> object:
        """The answer to an effect, from a step; a failure is an answer too."""
        name = self.names.of(effect)

        async def body() -> Json:
            return {"answer": answer_to_json(effect, await answer())}

        kept = await self._step(name, body)
        return answer_from(effect, kept.get("answer"), self._place(name))

    async def _step(self, name: str, body: Callable[[], Awaitable[object]]) -> dict[str, object]:
        """What a step gave, now or earlier. Failures are made into values inside it: an engine would give them back as
        errors of another class."""
        asked = time.monotonic()

        async def kept() -> Json:
            try:
                await self._check_owner(asked)
                return sealed(await body())
            except PromptyError as error:
                return sealed({"error": error_to_json(error)})
            except Exception as error:
                logger.error("A step of the run %s raised.\n%s", self.run_id, masked_traceback(error))
                return sealed({"error": error_to_json(RunBroken(f"{type(error).__name__}: {error}"))})

        value = opened(await self.steps.step(name, kept), self._place(name))
        if not isinstance(value, dict):
            raise RunRefused(self._place(name), "it is not what a step keeps")
        if "error" in value:
            raise error_from(value["error"], self._place(name))
        return value

    async def _check_owner(self, asked: float) -> None:
        """A process that was stopped can wake up when another worker has gone on with its runs. What did not begin at
        once may be such a case, and then does not begin any more; the engine would not keep what came of it."""
        for _ in range(MOST_ASKED):  # it can be stopped while it asks, too
            if time.monotonic() - asked <= LATE:
                return
            asked = time.monotonic()
            if not await self.steps.owned():
                raise RunBroken(f"another worker has taken the run '{self.run_id}' over")

    async def _check_call(self, planned: PlannedCall) -> None:
        await self._check_owner(self._asked[planned.key])

    def _place(self, name: str) -> str:
        return f"the step '{name}' of the run '{self.run_id}'"

    async def _replied(self, effect: CallModel) -> object:
        """The reply of a model. Words are told while they come, with the attempt that they belong to."""
        name = self.names.of(effect)
        streams = self.inner.models[effect.model].streams(effect.request)

        async def body() -> Json:
            async with Deltas(self.steps.write, name, self.nonce) as deltas:
                events = self.inner.run(one_effect(effect))
                if self.pace is not None:
                    events = self.pace(events)
                reply = await last_of(deltas.heard(events) if streams else events)
            return {"answer": answer_to_json(effect, reply), "attempt": self.nonce}

        kept = await self._step(name, body)
        return answer_from(effect, kept.get("answer"), self._place(name))

    async def _stage(self, stage: CallTools) -> list[Message | Unknown | None]:
        """Each call is a step of its own, begun in order before anything is waited for: that is how an engine tells
        them apart when they are run again."""
        intended = await self._intended(stage)
        room = asyncio.Semaphore(stage.max_parallel or len(stage.calls))
        tasks = [asyncio.create_task(self._call(planned, intended, room)) for planned in stage.calls]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:  # this execution ends, and nothing of it goes on
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _intended(self, stage: CallTools) -> object:
        """The nonce of the execution that first meant to run a stage; only calls that must not run twice need it."""
        if self.idempotent.issuperset(planned.call.name for planned in stage.calls):
            return self.nonce

        async def intent() -> Json:
            return {"nonce": self.nonce}

        return (await self._step(self.names.of_intent(stage), intent)).get("nonce")

    async def _call(self, planned: PlannedCall, intended: object, room: asyncio.Semaphore) -> Message | Unknown:
        name = self.names.of_call(planned)
        self._asked[planned.key] = time.monotonic()

        async def body() -> Json:
            async with room:
                return result_to_json(await self._result(planned, intended))

        return result_from(await self._step(name, body), self._place(name))

    async def _result(self, planned: PlannedCall, intended: object) -> Message | Unknown:
        """Run a call, unless another execution may have run it already."""
        if intended != self.nonce and planned.call.name not in self.idempotent:
            return Unknown()
        await self._find_kinds()
        if planned.call.name not in self._runs.tools:
            missing = ToolError(
                f"this worker has no tool '{planned.call.name}'", "Start it with the tools of its runs."
            )
            return failed(planned, missing)
        [message] = cast(list[Message], await self._inner(CallTools(calls=(planned,))))
        return message

    async def _described(self, effect: DescribeTools) -> object:
        """What tools there are, kept together with which functions of the host are asked in this run."""
        name = self.names.of(effect)

        async def describe() -> Json:
            self._found_kinds = True
            return {"answer": answer_to_json(effect, await self._inner(effect)), "asked": self.asked}

        kept = await self._step(name, describe)
        if kept.get("asked") != self.asked:
            raise WrongWorker(self.run_id, kept.get("asked"), self.asked)
        offered = cast(tuple[OfferedTool, ...], answer_from(effect, kept.get("answer"), self._place(name)))
        self.idempotent = frozenset(tool.function.name for tool in offered if tool.idempotent)
        return offered

    async def _find_kinds(self) -> None:
        """Tools of other kinds were found by the execution that described them, which may not be this one."""
        async with self._finding:
            if self._runs.has_kinds and not self._found_kinds:
                await self._runs.find_kinds(sync=False)
                self._found_kinds = True

    @property
    def _runs(self) -> ToolRuns:
        assert self.inner.tools is not None  # noqa: S101  a turn always has them
        return self.inner.tools

    async def _loaded(self, effect: LoadMemory, session_id: str) -> object:
        """Every execution keeps others from the session; what it held is what the first one found."""
        while not self.session.begin_session(session_id):
            await asyncio.sleep(LOCK_POLL)

        async def load() -> object:
            return self.session.load(session_id)

        stored = cast(list[Json], await self._answered(effect, load))
        self.stored = len(stored)
        return stored

    async def _saved(self, effect: SaveMemory) -> None:
        """Add messages to the session, unless an execution that died has: they would stand there from `stored` on."""
        new = list(effect.messages)
        known = self.session.load(effect.session_id)[self.stored :]
        if not any(known[at : at + len(new)] == new for at in range(len(known) - len(new) + 1)):
            self.session.save(effect.session_id, effect.messages)


def one_effect(effect: Effect[T]) -> Loop[T]:
    """A loop that wants one thing."""
    return (yield from effect)
