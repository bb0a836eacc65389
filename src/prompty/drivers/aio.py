"""Does what a loop asks for, in asynchronous code. The twin of `sync`: what decides is the same generator."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from random import uniform
from typing import Protocol, TypeVar, cast

from prompty.cancellation import CancelToken, interruptible
from prompty.drivers.deadline import Clock, Deadline, within
from prompty.drivers.decoding import Outcome, without_secrets
from prompty.drivers.host import Host, Question
from prompty.drivers.stage_async import StageInterrupted, run_stage_async
from prompty.drivers.sync import LOCK_POLL, check
from prompty.drivers.toolruns import ToolRuns
from prompty.drivers.watch import UNWATCHED, Unwatched, Watch
from prompty.errors import Cancelled, PromptyError
from prompty.loop.effects import (
    AskGate,
    CallModel,
    CallTools,
    CheckGuardrail,
    Checkpoint,
    DescribeTools,
    DrainSteering,
    Effect,
    Emit,
    LoadMemory,
    Loop,
    OfferedTool,
    SaveMemory,
    Summarise,
    Wait,
)
from prompty.model.event import Event
from prompty.model.message import Json
from prompty.model.reply import Reply
from prompty.model.request import WireRequest
from prompty.providers import Api

T = TypeVar("T")


class AsyncModel(Protocol):
    """What answers requests; those that stream, by events."""

    api: Api

    def streams(self, request: WireRequest) -> bool: ...
    async def reply(self, request: WireRequest, deadline: Deadline) -> Reply: ...
    def answer(self, request: WireRequest, deadline: Deadline) -> AsyncGenerator[Event | Outcome[Reply], None]: ...


@dataclass(kw_only=True, slots=True)
class AsyncDriver:
    """Performs effects: models, the tools of one run, and what the host gave with it."""

    models: Sequence[AsyncModel]
    tools: ToolRuns | None = None
    host: Host = field(default_factory=Host)
    cancel: CancelToken | None = None
    clock: Clock = field(default_factory=Clock)
    watch: Watch | Unwatched = UNWATCHED

    def __post_init__(self) -> None:
        self.watch.attach(self.host, self.tools)

    async def run(self, loop: Loop[T]) -> AsyncGenerator[Event | Outcome[T], None]:
        """Drive a loop to its end: yields what happens, and its outcome last."""
        answer: object = None
        failure: PromptyError | None = None
        try:
            while True:
                try:
                    with self.watch.within():
                        effect = loop.throw(failure) if failure else loop.send(answer)
                except StopIteration as end:
                    yield Outcome(cast(T, end.value))
                    return
                answer = failure = None
                try:
                    if isinstance(effect, Emit):
                        self.host.tell(effect.event)
                        yield effect.event
                    elif (items := self._items(effect)) is None:
                        with self.watch.within():
                            answer = await self._perform(effect)
                    else:
                        async with aclosing(items):
                            async for item in items:
                                if isinstance(item, Outcome):
                                    answer = item.value
                                else:
                                    self.host.tell(item)
                                    yield item
                except PromptyError as error:
                    failure = without_secrets(error, self.models)
                except asyncio.CancelledError as error:
                    raise error from self._left(loop, Cancelled())
                except StageInterrupted as error:
                    raise cast(BaseException, error.__cause__) from self._left(loop, error.results)
        finally:
            loop.close()
            self.host.end()
            self.watch.end()

    def _items(self, effect: Effect[object]) -> AsyncGenerator[Event | Outcome[object], None] | None:
        """The events of what tells something on the way to its answer."""
        match effect:
            case CallModel(request, number) if self.models[number].streams(request):
                check(self.cancel, self.clock)
                items = self.models[number].answer(request, self.clock.deadline(request))
                return self.watch.items(effect, self.models[number], items)
            case CallTools() if self.tools:
                check(self.cancel, self.clock)
                return run_stage_async(self.tools, effect, self.cancel)
        return None

    async def _perform(self, effect: Effect[object]) -> object:
        """Do what has an answer and nothing on the way to it."""
        if isinstance(effect, SaveMemory):  # what happened is stored, whatever ends the turn
            self.host.save(effect.session_id, effect.messages)
            return None
        check(self.cancel, self.clock)
        match effect:
            case CallModel(request, number):
                reply = self.models[number].reply(request, self.clock.deadline(request))
                return await self.watch.reply(effect, self.models[number], reply)
            case DescribeTools():
                return await self._described()
            case AskGate() | CheckGuardrail() | Summarise():
                return await self._asked(effect)
            case DrainSteering(follow_ups):
                return self.host.said(follow_ups=follow_ups)
            case LoadMemory(session_id):
                return await self._loaded(session_id)
            case Checkpoint():
                return None
            case Wait(seconds):
                pause = within(self.clock.current, uniform(seconds, seconds * 1.25))  # noqa: S311  not for secrets
                return await interruptible(asyncio.sleep(pause), self.cancel)
        raise TypeError(f"no driver for {type(effect).__name__}")

    async def _described(self) -> tuple[OfferedTool, ...]:
        if self.tools is None:
            return ()
        if self.tools.has_kinds:
            await interruptible(self.tools.find_kinds(sync=False), self.cancel)
        return self.tools.offered()

    async def _asked(self, question: Question) -> object:
        try:
            answer = self.host.ask(question)
            return await interruptible(answer, self.cancel) if inspect.isawaitable(answer) else answer
        except Exception as error:
            return self.host.failed(question, error)

    async def _loaded(self, session_id: str) -> list[Json]:
        while not self.host.begin_session(session_id):
            await interruptible(asyncio.sleep(LOCK_POLL), self.cancel)
            check(self.cancel, self.clock)
        return self.host.load(session_id)

    def _left(self, loop: Loop[T], answer: object) -> Cancelled | None:
        """Let a loop put its messages in order after the task was cancelled. Listeners hear of it; nobody reads the
        events any more. The result is the reason why asyncio's own error is raised."""
        try:
            effect = loop.throw(answer) if isinstance(answer, Cancelled) else loop.send(answer)
            while True:
                match effect:
                    case Emit(event):
                        self.host.tell(event)
                        effect = next(loop)
                    case SaveMemory(session_id, messages):
                        self.host.save(session_id, messages)
                        effect = next(loop)
                    case _:
                        effect = loop.throw(Cancelled())
        except Cancelled as error:
            return error
        except (StopIteration, PromptyError):
            return None
