"""Decides what a run does next, and has each effect performed as a step of a durable engine.

Another process can continue it: effects with a stored answer are not performed again. `durable.performer` acts.
"""

import asyncio
from typing import TypeVar, cast

from prompty.drivers.session import LOCK_POLL
from prompty.durable.codec import StepNames, answer_from, error_from, result_from
from prompty.durable.engine import Steps
from prompty.durable.envelope import unseal
from prompty.durable.performer import Performer
from prompty.errors import PromptyError, RunRefused
from prompty.loop.effects import (
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
from prompty.model.event import Event, ModelFailed, ModelReply, ModelRequested
from prompty.model.message import Json, Message

T = TypeVar("T")
CANCELLED = "the run was cancelled"


class WrongWorker(Exception):
    """This worker calls other functions of the host than the one that began the run.

    It is not a PromptyError, so that the run breaks and can be retried elsewhere, instead of ending.
    """

    def __init__(self, run_id: str, wanted: object, found: object) -> None:
        super().__init__(f"the run '{run_id}' was begun by a worker with {wanted}, and this one has {found}")


class DurableDriver:
    """Drives one segment of a run. If it has `ended`, nothing more is done but what ends it."""

    def __init__(self, steps: Steps, performer: Performer, ended: PromptyError | None = None) -> None:
        self.steps = steps
        self.performer = performer
        self.run_id: str = performer.run_id
        self.ended = ended
        self.names: StepNames = StepNames()
        self.idempotent: frozenset[str] = frozenset()

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
                    answer = await self._answer(effect)
                except RunRefused:
                    raise
                except PromptyError as error:
                    failure = error
        finally:
            loop.close()
            self.performer.session.release()

    async def _answer(self, effect: Effect[object]) -> object:
        match effect:
            case Emit(event):
                self._record(event)
                return None
            case LoadMemory(session_id):
                return await self._load(effect, session_id)
            case SaveMemory():
                return await self._read(effect)
        if self.ended is not None:
            raise self.ended
        match effect:
            case Checkpoint():
                return None
            case CallTools():
                return await self._stage(effect)
            case DescribeTools():
                return await self._describe(effect)
            case DrainSteering():
                return await self.steps.receive()
        return await self._read(effect)

    def _record(self, event: Event) -> None:
        """Pass events to the spans, except those of a model call that an earlier execution made."""
        match event:
            case ModelRequested():
                self.performer.requested = event
            case ModelReply() | ModelFailed():
                if self.performer.requested is None:
                    self.performer.inner.host.emit(event)
            case _:
                self.performer.inner.host.emit(event)

    async def _read(self, effect: Effect[object]) -> object:
        """Return the stored answer to an effect, or have it performed as a step."""
        name = self.names.of(effect)
        kept = await self._step(name, effect, {})
        return answer_from(effect, kept.get("answer"), self._place(name))

    async def _step(self, name: str, effect: Effect[object] | PlannedCall, reference: Json) -> dict[str, object]:
        """Return the value of a step, stored or new."""
        self.performer.expected[name] = effect
        try:
            stored = await self.steps.step(name, reference)
        finally:
            del self.performer.expected[name]
        value = unseal(stored, self._place(name))
        if not isinstance(value, dict):
            raise RunRefused(self._place(name), "it is not what a step keeps")
        if "error" in value:
            raise error_from(value["error"], self._place(name))
        return value

    def _place(self, name: str) -> str:
        return f"the step '{name}' of the run '{self.run_id}'"

    async def _stage(self, stage: CallTools) -> list[Message | OutcomeUnknown | None]:
        """Run each call as a step of its own. Steps start in the order of the calls, in every execution: a semaphore
        is fair, and an engine may tell steps apart by that order."""
        is_interrupted = not await self._begin(stage)
        room = asyncio.Semaphore(stage.max_parallel or len(stage.calls))
        tasks = [asyncio.create_task(self._call(planned, is_interrupted, room)) for planned in stage.calls]
        try:
            return list(await asyncio.gather(*tasks))
        except (Exception, asyncio.CancelledError):  # this execution ends: nothing of it may outlive it
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _begin(self, stage: CallTools) -> bool:
        """Return False if an earlier execution may have run calls of a stage. Idempotent calls need not be marked."""
        if self.idempotent.issuperset(planned.call.name for planned in stage.calls):
            return True
        return await self.steps.begin(self.names.of_intent(stage))

    async def _call(
        self, planned: PlannedCall, is_interrupted: bool, room: asyncio.Semaphore
    ) -> Message | OutcomeUnknown:
        name = self.names.of_call(planned)
        reference: Json = {"once": planned.call.name not in self.idempotent, "interrupted": is_interrupted}
        async with room:
            return result_from(await self._step(name, planned, reference), self._place(name))

    async def _describe(self, effect: DescribeTools) -> object:
        """Return the tools, stored together with the hooks of the host that this run calls."""
        name = self.names.of(effect)
        kept = await self._step(name, effect, {})
        if kept.get("hooks") != self.performer.hooks:
            raise WrongWorker(self.run_id, kept.get("hooks"), self.performer.hooks)
        offered = cast(tuple[OfferedTool, ...], answer_from(effect, kept.get("answer"), self._place(name)))
        self.idempotent = frozenset(tool.function.name for tool in offered if tool.idempotent)
        return offered

    async def _load(self, effect: LoadMemory, session_id: str) -> object:
        """Lock the session, and return the messages that the first execution found."""
        while not self.performer.session.lock(session_id):  # not on a thread: an engine's event loop may have none
            await asyncio.sleep(LOCK_POLL)
        stored = cast(list[Json], await self._read(effect))
        self.performer.stored = len(stored)
        return stored
