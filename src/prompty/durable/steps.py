"""The agent loop over the steps of a durable engine: `TurnDriver` decides, `durable.performer` acts.

An engine brings `Steps`. A step has a name and an effect, and its result is stored before the loop goes on. When
another process drives the turn again, stored steps return their results, and nothing is done twice.
"""

import asyncio
from typing import Any, Protocol, TypeVar, cast

from prompty.durable.codec import StepNames, answer_from, error_from, result_from
from prompty.durable.envelope import unseal
from prompty.errors import PromptyError, RunRefused
from prompty.loop.effects import (
    CallTools,
    Checkpoint,
    DescribeTools,
    DrainSteering,
    Effect,
    Emit,
    Loop,
    OfferedTool,
    OutcomeUnknown,
    PlannedCall,
    Wait,
)
from prompty.model.event import Event
from prompty.model.message import Json, Message

T = TypeVar("T")
Wanted = Effect[object] | PlannedCall


class WrongWorker(Exception):
    """This process calls other functions of the host than the one that began the run.

    It is not a PromptyError, so that the run breaks and can be retried elsewhere, instead of ending.
    """

    @classmethod
    def for_hooks(cls, run_id: str, wanted: Any, found: Any) -> "WrongWorker":
        return cls(
            f"the run '{run_id}' was begun with {list_hooks(wanted)}, and this process has {list_hooks(found)}\n"
            "    Give every process that runs it the same functions."
        )


def list_hooks(hooks: Any) -> str:
    """Return the functions of a host for a sentence."""
    guarded = [f"a guardrail for {kind}" for kind in hooks.get("guardrails") or ()]
    return ", ".join([*(f"a {name}" for name in ("gate", "summary") if hooks.get(name)), *guarded]) or "no functions"


class Steps(Protocol):
    """What a turn needs of an engine. Steps start in the same order in every execution."""

    async def keep(self, name: str, wanted: Wanted, /, *, once: bool = False, interrupted: bool = False) -> Json:
        """Return the stored result of a step, or perform it and store its result. A call that must run `once` and was
        `interrupted` is not performed: its result is `UNKNOWN`."""
        ...

    async def begin(self, name: str, /) -> bool:
        """Store that calls begin which must not be repeated. Return False if an earlier execution began them."""
        ...

    async def receive(self) -> list[str]:
        """Return the steering messages since the last call. They are stored like the result of a step."""
        ...

    async def sleep(self, seconds: float, /) -> None:
        """Wait. After a restart, only the rest of the time is left."""
        ...

    def emit(self, event: Event, /) -> None:
        """Tell listeners of this process what happens."""
        ...


class TurnDriver:
    """Drives one turn, from its start or a pause to its end or the next pause. `hooks` are the functions of the host
    that the turn calls."""

    def __init__(self, steps: Steps, run_id: str, hooks: Json) -> None:
        self._steps, self._run_id, self._hooks = steps, run_id, hooks
        self._names = StepNames()
        self._idempotent: frozenset[str] = frozenset()

    async def drive(self, loop: Loop[T]) -> T:
        """Drive the loop to its end. What ends this execution but not the turn passes by the loop, which stores
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

    async def _answer(self, effect: Effect[object]) -> object:
        match effect:
            case Emit(event):
                self._steps.emit(event)
                return None
            case Checkpoint():
                return None
        match effect:
            case CallTools():
                return await self._run_stage(effect)
            case DescribeTools():
                return await self._describe(effect)
            case DrainSteering():
                return await self._steps.receive()
            case Wait(seconds):
                await self._steps.sleep(seconds)
                return None
        name = self._names.of(effect)
        kept = await self._read(name, effect)
        return answer_from(effect, kept.get("answer"), self._place(name))

    async def _describe(self, effect: DescribeTools) -> tuple[OfferedTool, ...]:
        """Return the tools, stored together with the hooks of the host that this turn calls."""
        name = self._names.of(effect)
        kept = await self._read(name, effect)
        if kept.get("hooks") != self._hooks:
            raise WrongWorker.for_hooks(self._run_id, kept.get("hooks") or {}, self._hooks)
        offered = cast(tuple[OfferedTool, ...], answer_from(effect, kept.get("answer"), self._place(name)))
        self._idempotent = frozenset(tool.function.name for tool in offered if tool.idempotent)
        return offered

    async def _run_stage(self, stage: CallTools) -> list[Message | OutcomeUnknown | None]:
        """Run each call as a step of its own. Steps start in the order of the calls, in every execution: a semaphore
        is fair, and an engine may tell steps apart by that order."""
        is_safe = self._idempotent.issuperset(planned.call.name for planned in stage.calls)
        is_interrupted = not is_safe and not await self._steps.begin(self._names.of_intent(stage))
        room = asyncio.Semaphore(stage.max_parallel or len(stage.calls))
        tasks = [asyncio.ensure_future(self._call(planned, is_interrupted, room)) for planned in stage.calls]
        try:
            return list(await asyncio.gather(*tasks))
        except GeneratorExit:
            raise  # its event loop is gone: nothing can be awaited
        except BaseException:  # this execution ends, maybe by the engine's word: nothing of it may outlive it
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _call(
        self, planned: PlannedCall, is_interrupted: bool, room: asyncio.Semaphore
    ) -> Message | OutcomeUnknown:
        name, once = self._names.of_call(planned), planned.call.name not in self._idempotent
        async with room:
            kept = await self._read(name, planned, once=once, interrupted=is_interrupted)
            return result_from(kept, self._place(name))

    async def _read(
        self, name: str, wanted: Wanted, *, once: bool = False, interrupted: bool = False
    ) -> dict[str, object]:
        """Return the value of a step, stored or new."""
        stored = await self._steps.keep(name, wanted, once=once, interrupted=interrupted)
        value = unseal(stored, self._place(name))
        if not isinstance(value, dict):
            raise RunRefused(self._place(name), "it is not what a step keeps")
        if "error" in value:
            raise error_from(value["error"], self._place(name))
        return value

    def _place(self, name: str) -> str:
        return f"the step '{name}' of the run '{self._run_id}'"
