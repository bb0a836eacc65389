"""Calls that run beside each other, in synchronous code."""

import inspect
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, cast

from prompty.concurrency import in_event_loop, in_thread
from prompty.drivers.toolruns import ToolRuns, answered, due, failed, interrupted, timed_out
from prompty.loop.effects import CallTools, PlannedCall
from prompty.model.event import Event, ToolFinished, ToolStarted
from prompty.model.message import Message

Results = list[Message | None]


@dataclass(frozen=True, slots=True)
class _Running:
    position: int
    planned: PlannedCall
    due: float


def run_stage(runs: ToolRuns, stage: CallTools, *, alone: bool) -> Generator[Event, None, Results]:
    """Run calls and tell about each. A single one that nothing can interrupt (`alone`) runs right here, on the thread
    of the caller."""
    if alone and len(stage.calls) == 1 and stage.calls[0].timeout is None:
        planned = stage.calls[0]
        yield ToolStarted(planned.call)
        result = _run_here(runs, planned)
        yield ToolFinished(planned.call, result)
        return [result]
    return (yield from _run_beside(runs, stage))


def _run_here(runs: ToolRuns, planned: PlannedCall) -> Message:
    try:
        value = _started(runs, planned)()
        return answered(planned, _awaited(value.result() if isinstance(value, Future) else value))
    except Exception as error:
        return failed(planned, error)


def _started(runs: ToolRuns, planned: PlannedCall) -> Callable[[], object]:
    """What runs a call: an async function goes to the event loop, and gives a future."""
    call = runs.prepared(planned)
    if runs.is_async(planned):
        return lambda: in_event_loop(cast(Coroutine[Any, Any, object], call()))
    return call


def _run_beside(runs: ToolRuns, stage: CallTools) -> Generator[Event, None, Results]:
    results: Results = [None] * len(stage.calls)
    waiting = deque(enumerate(stage.calls))
    running: dict[Future[object], _Running] = {}
    cancelled: Future[object] = Future()
    with runs.cancel.listening(lambda: cancelled.set_result(None)):
        while (waiting or running) and not cancelled.done():
            while waiting and len(running) < (stage.max_parallel or len(stage.calls)):
                position, planned = waiting.popleft()
                yield ToolStarted(planned.call)
                running[_begun(runs, planned)] = _Running(position, planned, due(planned))
            for one, result in _finished(running, cancelled):
                results[one.position] = result
                yield ToolFinished(one.planned.call, result)
    for future, one in running.items():
        results[one.position] = _message(future, one.planned) if future.done() else interrupted(one.planned)
        future.cancel()
    return results


def _begun(runs: ToolRuns, planned: PlannedCall) -> Future[object]:
    try:
        start = _started(runs, planned)
    except Exception as error:
        broken: Future[object] = Future()
        broken.set_exception(error)
        return broken
    if runs.is_async(planned):
        return cast(Future[object], start())
    return in_thread(start)


def _finished(running: dict[Future[object], _Running], cancelled: Future[object]) -> list[tuple[_Running, Message]]:
    """Wait for the next that end, and take them out: those that returned, that raised, and whose time is up."""
    left = min(one.due for one in running.values()) - time.monotonic()
    done, _ = wait([*running, cancelled], None if left == float("inf") else max(left, 0), FIRST_COMPLETED)
    now = time.monotonic()
    ended = [future for future, one in running.items() if future in done or one.due <= now]
    return [(one, _message(future, one.planned)) for future in ended for one in [running.pop(future)]]


def _message(future: Future[object], planned: PlannedCall) -> Message:
    if not future.done():
        future.cancel()
        return timed_out(planned)
    try:
        return answered(planned, _awaited(future.result()))
    except Exception as error:
        return failed(planned, error)


def _awaited(value: object) -> object:
    """The result of a function that is not async, but returned something to wait for."""
    return in_event_loop(_result(value)).result() if inspect.isawaitable(value) else value


async def _result(awaitable: Any) -> object:
    return await awaitable
