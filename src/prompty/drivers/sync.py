"""Perform the effects of a run in sync code. `aio` does the same in async code, for the same loop."""

import inspect
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from random import uniform
from typing import Any, TypeVar, cast

from prompty.cancellation import CancelToken
from prompty.concurrency import LoopFuture, cancel_and_wait, in_event_loop, in_thread, run_in_event_loop
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
from prompty.drivers.tool_runner import ToolRunner, due, interrupted, timed_out
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
from prompty.providers import Bytes, has_live_transport
from prompty.tracing.spans import NULL_SPAN
from prompty.wire.json_bytes import MALFORMED, read_reply
from prompty.wire.stream import ReplyReader

T = TypeVar("T")


def drain(events: Generator[Event, None, T]) -> T:
    """Exhaust the event generator and return its result."""
    while True:
        try:
            next(events)
        except StopIteration as end:
            result: T = end.value
            return result


class SyncDriver(Driver):
    """Performs the effects of one run in synchronous code."""

    __slots__ = ()

    def drive(self, loop: Loop[T]) -> Generator[Event, None, T]:
        """Run the loop to its end. Yield its events and return its result."""
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
                            self._begin_call(effect)
                        if (events := self._events_of(effect)) is None:
                            answer = self._perform(effect)
                        else:
                            answer = yield from self._report(events)
                    except PromptyError as error:
                        self.meter.give_up()
                        failure = self.describe_failure(error, effect)
                return effect.value
            finally:
                loop.close()
                self.meter.give_up()
                if self.host.session is not None:
                    self.host.session.release()

    def _begin_call(self, effect: CallModel) -> None:
        """Wait until a call may begin under the budgets of the run and of those above it."""
        if (kind := self.get_kind(effect)) is None:
            return
        ready = threading.Event()
        while not self.meter.begin(kind, ready.set):
            with self.cancel.listening(ready.set) if self.cancel else NULL_SPAN:
                ready.wait(self.clock.left())
            ready.clear()
            self.check()
        self.meter.check()

    def _events_of(self, effect: Effect[object]) -> Generator[Event, None, object] | None:
        """Return the event generator of an effect that emits events before its answer, else None."""
        match effect:
            case CallModel() if self.targets[effect.model].streams(effect.request):
                self.check()
                return self._stream_model(effect)
            case CallTools() if self.tools:
                self.check()
                return run_stage(self.tools, effect, uncancellable=self.cancel is None)
        return None

    def _perform(self, effect: Effect[object]) -> object:
        """Perform an effect without events."""
        if not isinstance(effect, SaveMemory | AbandonAnswer):  # what happened is stored, even after cancellation
            self.check()
        with self.inside(effect):
            match effect:
                case CallModel():
                    return self._call_model(effect)
                case DescribeTools():
                    return self._describe_tools()
                case AskGate() | CheckGuardrail() | Summarise():
                    return self._ask_host(effect)
                case DrainSteering(follow_ups):
                    return self.host.drain_steering(follow_ups=follow_ups)
                case LoadMemory(session_id) if self.host.session is not None:
                    return self._load(self.host.session, session_id)
                case SaveMemory(session_id, messages) if self.host.session is not None:
                    self.host.session.save(session_id, messages)
                case Wait(seconds):
                    self._wait_to_retry(seconds)
                case AbandonAnswer():
                    self._abandon(effect)
                case Checkpoint():
                    pass
                case _:
                    raise TypeError(f"no driver for {type(effect).__name__}")
        return None

    def _report(self, events: Generator[Event, None, T]) -> Generator[Event, None, T]:
        """Pass events on to listeners and, if streaming, to the caller."""
        if not self.host.is_listening and self.streaming:
            return (yield from events)
        with closing(events):
            while True:
                try:
                    event = next(events)
                except StopIteration as end:
                    return cast(T, end.value)
                self.host.emit(event)
                if self.streaming:
                    yield event

    def _call_model(self, effect: CallModel) -> Reply:
        """Return a whole answer. A transport's timeout is per read, the deadline is for the whole exchange."""
        target, request = self.targets[effect.model], effect.request
        if isinstance(target, PairTarget):
            return target.reply(request)
        deadline = self.clock.deadline(effect.call, request.timeout)
        if deadline is None and self.cancel is None:
            return read_reply(target.api_of(request).reply, target.transport.send(request))
        pieces: list[bytes] = []
        try:
            with closing(self._open(target, request, deadline)) as chunks:
                for chunk in chunks:
                    pieces.append(chunk)
                    check_deadline(deadline)
        except BaseException:
            pieces.clear()  # the error's traceback keeps this frame alive
            raise
        return read_reply(target.api_of(request).reply, b"".join(pieces))

    def _stream_model(self, effect: CallModel) -> Generator[Event, None, Reply]:
        target, request = self.targets[effect.model], effect.request
        if isinstance(target, PairTarget) or (decoder := target.api_of(request).decoder) is None:
            with self.inside(effect):
                reply = self._call_model(effect)
            if reply.text:
                yield TextDelta(reply.text)
            return reply
        deadline = self.clock.deadline(effect.call, request.timeout)
        reader = ReplyReader(decoder(), count_streamed(request, target.api_of(request)))
        with self.inside(effect):
            chunks = self._open(target, request, deadline)
        try:
            for chunk in chunks if self.spans is None else self._inside_spans(chunks, effect):
                yield from self.until_cancelled(reader.feed(chunk))
                if deadline is not None:
                    check_deadline(deadline)
            yield from self.until_cancelled(reader.finish())
            return reader.reply()
        except (ModelError, *MALFORMED) as error:
            raise reader.cut(error) from None
        finally:
            chunks.close()

    def _inside_spans(self, chunks: Iterable[bytes], effect: CallModel) -> Iterator[bytes]:
        iterator = iter(chunks)
        while True:
            with self.inside(effect):
                chunk = next(iterator, None)
            if chunk is None:
                return
            yield chunk

    def _open(self, target: HttpTarget, request: WireRequest, deadline: Moment) -> "Bytes | Abandonable":
        limited = limit_timeout(request, deadline)
        if self.cancel is None:
            return cast(Bytes, target.transport.stream(limited))
        return Abandonable(lambda: target.transport.stream(limited), self.cancel)

    def _abandon(self, effect: AbandonAnswer) -> None:
        target = self.targets[effect.model]
        if isinstance(target, HttpTarget):
            with suppress(ModelError):
                target.transport.send(replace(effect.request, timeout=ABANDON_SECONDS))

    def _describe_tools(self) -> tuple[OfferedTool, ...]:
        if self.tools is None:
            return ()
        if self.tools.has_kinds:
            return run_in_event_loop(self.tools.describe_kinds(is_async=False))
        return self.tools.describe()

    def _wait_to_retry(self, seconds: float) -> None:
        if has_live_transport():
            jittered = uniform(seconds, seconds * 1.25)  # noqa: S311  not for secrets
            self._wait(check_deadline(self.clock.current, jittered))

    def _wait(self, seconds: float) -> None:
        if self.cancel:
            self.cancel.wait(seconds)
        else:
            time.sleep(seconds)

    def _ask_host(self, question: Question) -> object:
        try:
            with self.host.inside_session():
                return _resolve(self.host.ask(question))
        except Exception as error:
            return self.host.answer_failure(question, error)

    def _load(self, session: MemorySession, session_id: str) -> list[Json]:
        while not session.lock(session_id):
            session.check_wait(session_id, blocks=True)
            self._wait(LOCK_POLL)
            self.check()
        return session.load(session_id)


class Abandonable:
    """Bytes that another thread receives, so that the wait for them can be abandoned.

    A thread that waits for the headers of a response cannot be interrupted.
    """

    def __init__(self, open_bytes: Callable[[], Bytes], cancel: CancelToken) -> None:
        self._open, self._cancel = open_bytes, cancel
        self._received: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()
        self._bytes: Bytes | None = None
        self._abandoned = False
        in_thread(self._receive)

    def _receive(self) -> None:
        try:
            self._bytes = self._open()
            for chunk in self._bytes:
                self._received.put(chunk)
                if self._abandoned:
                    break
            self._received.put(None)
        except Exception as error:  # raised in the thread that reads
            self._received.put(error)
        finally:
            if self._bytes is not None:
                self._bytes.close()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            with self._cancel.listening(lambda: self._received.put(Cancelled(self._cancel.reason))):
                item = self._received.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                return
            yield item

    def close(self) -> None:
        """Abandon the rest. The receiving thread closes the connection."""
        self._abandoned = True
        if self._bytes is not None:
            self._bytes.abort()


@dataclass(frozen=True, slots=True)
class _Running:
    position: int
    planned: PlannedCall
    due: float


def run_stage(runner: ToolRunner, stage: CallTools, *, uncancellable: bool) -> Generator[Event, None, Results]:
    """Run the calls of a stage in parallel. A single call that cannot be interrupted runs on the caller's thread."""
    if uncancellable and len(stage.calls) == 1 and stage.calls[0].timeout is None:
        planned = stage.calls[0]
        yield ToolStarted(planned.call, planned.key)
        result = _run_here(runner, planned)
        yield runner.finished(planned, result)
        return [result]
    return (yield from _run_in_parallel(runner, stage))


def _run_here(runner: ToolRunner, planned: PlannedCall) -> Message:
    try:
        return runner.succeeded(planned, _resolve(runner.prepare(planned)()))
    except Exception as error:
        return runner.failed(planned, error)


def _run_in_parallel(runner: ToolRunner, stage: CallTools) -> Generator[Event, None, Results]:
    results: Results = [None] * len(stage.calls)
    waiting = deque(enumerate(stage.calls))
    running: dict[Future[object], _Running] = {}
    cancelled: Future[object] = Future()
    try:
        with runner.cancel.listening(lambda: cancelled.set_result(None)):
            while (waiting or running) and not cancelled.done():
                while waiting and len(running) < (stage.max_parallel or len(stage.calls)):
                    position, planned = waiting.popleft()
                    yield ToolStarted(planned.call, planned.key)
                    running[_start_call(runner, planned)] = _Running(position, planned, due(planned))
                for call, result in _next_finished(runner, running, cancelled):
                    results[call.position] = result
                    yield runner.finished(call.planned, result)
        for future, call in running.items():
            results[call.position] = (
                _message_of(runner, future, call.planned) if future.done() else interrupted(call.planned)
            )
    finally:
        cancel_and_wait(running)
    return results


def _start_call(runner: ToolRunner, planned: PlannedCall) -> Future[object]:
    try:
        call = runner.prepare(planned)
    except Exception as error:
        failure: Future[object] = Future()
        failure.set_exception(error)
        return failure
    if runner.is_async(planned):
        return in_event_loop(cast(Coroutine[Any, Any, object], call()))
    return in_thread(call, blocks=True)


def _next_finished(
    runner: ToolRunner, running: dict[Future[object], _Running], cancelled: Future[object]
) -> list[tuple[_Running, Message]]:
    """Wait for the next calls that return, raise or time out, and remove them from `running`."""
    left = min(call.due for call in running.values()) - time.monotonic()
    not_started = [future for future in running if isinstance(future, LoopFuture) and not future.is_started]
    if not_started:
        left = min(left, LoopFuture.START_SECONDS)
    done, _ = wait([*running, cancelled], None if left == float("inf") else max(left, 0), FIRST_COMPLETED)
    now = time.monotonic()
    ended = [future for future, call in running.items() if future in done or call.due <= now]
    if not done and not ended:
        for future in not_started:
            future.start_elsewhere()
    return [(call, _message_of(runner, future, call.planned)) for future in ended for call in [running.pop(future)]]


def _message_of(runner: ToolRunner, future: Future[object], planned: PlannedCall) -> Message:
    if not future.done():
        future.cancel()
        return timed_out(planned)
    try:
        return runner.succeeded(planned, _resolve(future.result()))
    except Exception as error:
        return runner.failed(planned, error)


def _resolve(value: object) -> object:
    """Return a value, or await it on the event loop thread if a sync function returned an awaitable."""
    return run_in_event_loop(_await(value)) if inspect.isawaitable(value) else value


async def _await(awaitable: Any) -> object:
    return await awaitable
