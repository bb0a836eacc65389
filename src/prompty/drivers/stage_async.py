"""Calls that run beside each other, in asynchronous code."""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncGenerator

from prompty.cancellation import CancelToken, interruptible
from prompty.concurrency import in_thread
from prompty.drivers.decoding import Outcome
from prompty.drivers.toolruns import ToolRuns, answered, failed, interrupted, timed_out
from prompty.errors import Cancelled
from prompty.loop.effects import CallTools, PlannedCall
from prompty.model.event import Event, ToolFinished, ToolStarted
from prompty.model.message import Message

Results = list[Message | None]
Running = dict[asyncio.Task[Message], tuple[int, PlannedCall]]


class StageInterrupted(Exception):
    """The task was cancelled while tools ran; what they gave by then is in `results`."""

    def __init__(self, results: Results) -> None:
        super().__init__()
        self.results = results


async def run_stage_async(
    runs: ToolRuns, stage: CallTools, cancel: CancelToken | None
) -> AsyncGenerator[Event | Outcome[Results], None]:
    """Run calls and tell about each, their results last."""
    results: Results = [None] * len(stage.calls)
    waiting = deque(enumerate(stage.calls))
    running: Running = {}
    try:
        while waiting or running:
            while waiting and len(running) < (stage.max_parallel or len(stage.calls)):
                position, planned = waiting.popleft()
                yield ToolStarted(planned.call)
                running[asyncio.create_task(_message(runs, planned))] = (position, planned)
            done, _ = await interruptible(asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED), cancel)
            for task in [task for task in running if task in done]:
                position, planned = running.pop(task)
                results[position] = result = _result(task, planned)
                yield ToolFinished(planned.call, result)
    except Cancelled:
        await _stop(running, results)
    except asyncio.CancelledError as error:
        await _stop(running, results)
        raise StageInterrupted(results) from error
    finally:
        for task in running:
            task.cancel()
    yield Outcome(results)


def _result(task: asyncio.Task[Message], planned: PlannedCall) -> Message:
    """What a task gave. One that cancelled itself is a tool that failed, not a turn that ends."""
    return failed(planned, RuntimeError("it was cancelled")) if task.cancelled() else task.result()


async def _stop(running: Running, results: Results) -> None:
    """Cancel what runs and wait for it to end: nothing of a turn goes on after it. What had ended counts."""
    ended = [task for task in running if task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
    for task, (position, planned) in running.items():
        results[position] = _result(task, planned) if task in ended else interrupted(planned)
    running.clear()


async def _message(runs: ToolRuns, planned: PlannedCall) -> Message:
    if planned.timeout is None:
        return await _answered(runs, planned)
    try:
        async with asyncio.timeout(planned.timeout):
            return await _answered(runs, planned)
    except TimeoutError:
        return timed_out(planned)


async def _answered(runs: ToolRuns, planned: PlannedCall) -> Message:
    """The message of a call. What a tool raises stays in here, its own time-outs too."""
    try:
        call = runs.prepared(planned)
        if runs.check is not None:
            await runs.check(planned)
        value = call() if runs.is_async(planned) else await asyncio.wrap_future(in_thread(call))
        return answered(planned, await value if inspect.isawaitable(value) else value)
    except Exception as error:
        return failed(planned, error)
