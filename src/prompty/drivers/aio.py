"""Perform the effects of a run in async code. `sync` does the same in sync code, for the same loop."""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from random import uniform
from typing import Any, TypeVar, cast

from prompty.cancellation import CancelToken, interruptible
from prompty.concurrency import in_thread
from prompty.drivers.driver import (
    ABANDON_SECONDS,
    Driver,
    Moment,
    Outcome,
    Question,
    Results,
    check_deadline,
    count_streamed,
    limit_timeout,
)
from prompty.drivers.session import LOCK_POLL, MemorySession
from prompty.drivers.target import HttpTarget, PairTarget
from prompty.drivers.tool_runner import NotRun, ToolRunner, interrupted, timed_out
from prompty.errors import Cancelled, ModelError, PromptyError
from prompty.loop.effects import (
    AbandonAnswer,
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
    PlannedCall,
    SaveMemory,
    Summarise,
    Wait,
)
from prompty.model.event import Event, TextDelta, ToolStarted
from prompty.model.message import Json, Message, Reply
from prompty.model.request import WireRequest
from prompty.providers import AsyncBytes, has_live_transport
from prompty.tools.calls import ReportedFailure
from prompty.tracing.spans import NULL_SPAN, aiterate_inside
from prompty.wire.json_bytes import MALFORMED, read_reply
from prompty.wire.stream import ReplyReader

T = TypeVar("T")
Running = dict[asyncio.Task[Message], tuple[int, PlannedCall]]


async def drain_async(events: AsyncGenerator[Event | Outcome[T], None]) -> T:
    """Exhaust the event generator and return its result.

    It is read to its end, because closing a suspended async generator costs the event loop a task.
    """
    outcome = None
    async for event in events:
        if isinstance(event, Outcome):
            outcome = event
    if outcome is None:
        raise ModelError("the call ended without a reply")
    return outcome.value


class StageInterrupted(Exception):
    """The task was cancelled while tools ran. `results` are those that had arrived."""

    def __init__(self, results: Results) -> None:
        super().__init__()
        self.results = results


class AsyncDriver(Driver):
    """Performs the effects of one run in async code."""

    __slots__ = ()

    async def drive(self, loop: Loop[T]) -> AsyncGenerator[Event | Outcome[T], None]:
        """Run the loop to its end. Yield its events, and its result as the `Outcome`."""
        answer: object = None
        failure: PromptyError | None = None
        with self.spans or NULL_SPAN:
            try:
                while not isinstance(effect := self.advance(loop, answer, failure), Outcome):
                    answer = failure = None
                    if type(effect) is Emit:
                        if self.host.is_listening:
                            self.host.emit(effect.event)
                        if self.streaming:
                            yield effect.event
                        continue
                    try:
                        if type(effect) is CallModel:
                            await self._begin_call(effect)
                        if (items := self._items(effect)) is None:
                            answer = await self._perform(effect)
                        else:
                            async with aclosing(items):
                                async for item in items:
                                    if isinstance(item, Outcome):
                                        answer = item.value
                                        continue
                                    if self.host.is_listening:
                                        self.host.emit(item)
                                    if self.streaming:
                                        yield item
                    except PromptyError as error:
                        self.meter.give_up()
                        failure = self.describe_failure(error, effect)
                    except asyncio.CancelledError as error:
                        raise error from await self._cancel_loop(loop, Cancelled())
                    except StageInterrupted as error:
                        raise cast(BaseException, error.__cause__) from await self._cancel_loop(loop, error.results)
                yield effect
            finally:
                loop.close()
                self.meter.give_up()
                if self.host.session is not None:
                    await self.host.session.release_async()

    async def perform(self, effect: Effect[T]) -> AsyncGenerator[Event | Outcome[T], None]:
        """Perform one effect. Yield its events, and its answer as the `Outcome`."""
        try:
            if type(effect) is CallModel:
                await self._begin_call(effect)
            if (items := self._items(effect)) is None:
                yield Outcome(cast(T, await self._perform(effect)))
                return
            async with aclosing(items):
                async for item in items:
                    if not isinstance(item, Outcome):
                        self.host.emit(item)
                    yield cast(Event | Outcome[T], item)
        except PromptyError as error:
            raise self.describe_failure(error, effect) from error.__cause__
        finally:
            self.meter.give_up()

    async def _begin_call(self, effect: CallModel) -> None:
        """Wait until a call may begin under the budgets of the run and of those above it."""
        if (kind := self.get_kind(effect)) is None:
            return
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        while not self.meter.begin(kind, partial(loop.call_soon_threadsafe, ready.set)):
            with suppress(TimeoutError):  # `check` says so
                async with asyncio.timeout(self.clock.left()):
                    await interruptible(ready.wait(), self.cancel)
            ready.clear()
            self.check()
        self.meter.check()

    def _items(self, effect: Effect[object]) -> AsyncGenerator[Event | Outcome[object], None] | None:
        """Return the event stream of an effect that emits events before its answer, else None."""
        match effect:
            case CallModel() if self.targets[effect.model].streams(effect.request):
                self.check()
                return self._stream_model(effect)
            case CallTools() if self.tools:
                self.check()
                return run_stage_async(self.tools, effect, self.cancel)
        return None

    async def _perform(self, effect: Effect[object]) -> object:
        """Perform an effect without events."""
        if not isinstance(effect, SaveMemory | AbandonAnswer):  # what happened is stored, even after cancellation
            self.check()
        with self.inside(effect):
            match effect:
                case CallModel():
                    return await self._call_model(effect)
                case DescribeTools():
                    return await self._describe_tools()
                case AskGate() | CheckGuardrail() | Summarise():
                    return await self._ask_host(effect)
                case DrainSteering(follow_ups):
                    return self.host.drain_steering(follow_ups=follow_ups)
                case LoadMemory(session_id) if self.host.session is not None:
                    return await self._load(self.host.session, session_id)
                case SaveMemory(session_id, messages) if self.host.session is not None:
                    await self.host.session.save_async(session_id, messages)
                case Wait(seconds):
                    await self._wait_to_retry(seconds)
                case AbandonAnswer():
                    await self._abandon(effect)
                case Checkpoint():
                    pass
                case _:
                    raise TypeError(f"no driver for {type(effect).__name__}")
        return None

    async def _call_model(self, effect: CallModel) -> Reply:
        """Return a whole answer. A transport's timeout is per read, the deadline is for the whole exchange."""
        target, request = self.targets[effect.model], effect.request
        if isinstance(target, PairTarget):
            return await target.reply_async(request)
        deadline = self.clock.deadline(effect.call, request.timeout)
        if deadline is None:
            sending = target.transport.send(request)
            return read_reply(
                target.api_of(request).reply, await (interruptible(sending, self.cancel) if self.cancel else sending)
            )
        pieces: list[bytes] = []
        chunks = await self._open(target, request, deadline)
        try:
            async for chunk in self._interruptible(chunks):
                pieces.append(chunk)
                check_deadline(deadline)
        except BaseException:
            pieces.clear()  # the error's traceback keeps this frame alive
            raise
        finally:
            await chunks.aclose()
        return read_reply(target.api_of(request).reply, b"".join(pieces))

    async def _stream_model(self, effect: CallModel) -> AsyncGenerator[Event | Outcome[Reply], None]:
        target, request = self.targets[effect.model], effect.request
        if isinstance(target, PairTarget) or (decoder := target.api_of(request).decoder) is None:
            with self.inside(effect):
                reply = await self._call_model(effect)
            if reply.text:
                yield TextDelta(reply.text)
            yield Outcome(reply)
            return
        deadline = self.clock.deadline(effect.call, request.timeout)
        reader = ReplyReader(decoder(), count_streamed(request, target.api_of(request)))
        with self.inside(effect):
            chunks = await self._open(target, request, deadline)
        try:
            iterator = self._interruptible(chunks)
            async for chunk in aiterate_inside(self.spans.call_span, iterator) if self.spans else iterator:
                for delta in self.until_cancelled(reader.feed(chunk)):
                    yield delta
                check_deadline(deadline)
            for delta in self.until_cancelled(reader.finish()):
                yield delta
            yield Outcome(reader.reply())
        except (ModelError, *MALFORMED) as error:
            raise reader.cut(error) from None
        finally:
            await chunks.aclose()

    async def _open(self, target: HttpTarget, request: WireRequest, deadline: Moment) -> AsyncBytes:
        stream = target.transport.stream(limit_timeout(request, deadline))
        return cast(AsyncBytes, await interruptible(stream, self.cancel))

    def _interruptible(self, chunks: AsyncBytes) -> AsyncIterator[bytes]:
        return aiter(chunks) if self.cancel is None else _interruptible_chunks(aiter(chunks), self.cancel)

    async def _abandon(self, effect: AbandonAnswer) -> None:
        target = self.targets[effect.model]
        if isinstance(target, HttpTarget):
            with suppress(ModelError):
                await target.transport.send(replace(effect.request, timeout=ABANDON_SECONDS))

    async def _describe_tools(self) -> tuple[OfferedTool, ...]:
        if self.tools is None:
            return ()
        if self.tools.has_kinds:
            return await interruptible(self.tools.describe_kinds(is_async=True), self.cancel)
        return self.tools.describe()

    async def _wait_to_retry(self, seconds: float) -> None:
        if has_live_transport():
            jittered = uniform(seconds, seconds * 1.25)  # noqa: S311  not for secrets
            await interruptible(asyncio.sleep(check_deadline(self.clock.current, jittered)), self.cancel)

    async def _ask_host(self, question: Question) -> object:
        try:
            with self.host.inside_session():
                answer = self.host.ask(question)
                return await interruptible(answer, self.cancel) if inspect.isawaitable(answer) else answer
        except Exception as error:
            return self.host.answer_failure(question, error)

    async def _load(self, session: MemorySession, session_id: str) -> list[Json]:
        while not await session.lock_async(session_id):
            session.check_wait(session_id, blocks=False)
            await interruptible(asyncio.sleep(LOCK_POLL), self.cancel)
            self.check()
        return await interruptible(session.load_async(session_id), self.cancel)

    async def _cancel_loop(self, loop: Loop[T], answer: object) -> Cancelled | None:
        """Let the loop settle its messages after the task was cancelled, and return its `Cancelled`.

        Only listeners get the events: a stream has no reader any more.
        """
        try:
            effect = loop.throw(answer) if isinstance(answer, Cancelled) else loop.send(answer)
            while True:
                match effect:
                    case Emit(event):
                        self.host.emit(event)
                        effect = next(loop)
                    case SaveMemory(session_id, messages) if self.host.session is not None:
                        await self.host.session.save_async(session_id, messages)
                        effect = next(loop)
                    case AbandonAnswer():
                        await self._abandon(effect)
                        effect = next(loop)
                    case _:
                        effect = loop.throw(Cancelled())
        except Cancelled as error:
            return error
        except (StopIteration, PromptyError):
            return None


async def _interruptible_chunks(chunks: AsyncIterator[bytes], cancel: CancelToken) -> AsyncIterator[bytes]:
    while True:
        try:
            chunk = await interruptible(anext(chunks), cancel)
        except StopAsyncIteration:
            return
        yield chunk


async def run_stage_async(
    runner: ToolRunner, stage: CallTools, cancel: CancelToken | None
) -> AsyncGenerator[Event | Outcome[Results], None]:
    """Run the calls of a stage in parallel. Yield their events, and their results as the `Outcome`."""
    results: Results = [None] * len(stage.calls)
    waiting = deque(enumerate(stage.calls))
    running: Running = {}
    try:
        while waiting or running:
            while waiting and len(running) < (stage.max_parallel or len(stage.calls)):
                position, planned = waiting.popleft()
                yield ToolStarted(planned.call, planned.key)
                running[asyncio.create_task(_run_call(runner, planned))] = (position, planned)
            done, _ = await interruptible(asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED), cancel)
            for task in [task for task in running if task in done]:
                position, planned = running.pop(task)
                results[position] = result = _result_of(runner, task, planned)
                yield runner.finished(planned, result)
    except Cancelled:
        await _stop(runner, running, results)
    except asyncio.CancelledError as error:
        await _stop(runner, running, results)
        raise StageInterrupted(results) from error
    finally:
        await _cancel(running)
    yield Outcome(results)


def _result_of(runner: ToolRunner, task: asyncio.Task[Message], planned: PlannedCall) -> Message:
    """Return the result of a task. A tool that cancelled itself has failed, and the run continues."""
    return runner.failed(planned, ReportedFailure("it was cancelled")) if task.cancelled() else task.result()


async def _stop(runner: ToolRunner, running: Running, results: Results) -> None:
    """Cancel the running calls and wait for them, so that nothing outlives the run. Keep finished results."""
    ended = [task for task in running if task.done()]
    await _cancel(running)
    for task, (position, planned) in running.items():
        results[position] = _result_of(runner, task, planned) if task in ended else interrupted(planned)
    running.clear()


async def _cancel(running: Running) -> None:
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


async def _run_call(runner: ToolRunner, planned: PlannedCall) -> Message:
    if planned.timeout is None:
        return await _call(runner, planned)
    try:
        async with asyncio.timeout(planned.timeout):
            return await _call(runner, planned)
    except TimeoutError:
        return timed_out(planned)


async def _call(runner: ToolRunner, planned: PlannedCall) -> Message:
    """Return the message of a call. Every exception of the tool becomes a message, including its own timeouts."""
    try:
        call = runner.prepare(planned)
        if runner.before_call is not None:
            await _check_before(runner.before_call(planned))
        value = call() if runner.is_async(planned) else await asyncio.wrap_future(in_thread(call))
        return runner.succeeded(planned, await value if inspect.isawaitable(value) else value)
    except Exception as error:
        return runner.failed(planned, error)


async def _check_before(check: Any) -> None:
    try:
        await check
    except PromptyError as error:
        raise NotRun(str(error)) from error
