"""Watches the turns of a process: one query a second for all of them, however many wait.

A turn ends when its workflow was cancelled, or when another process has continued it. A turn that waits for a person
goes on when an answer was sent: `recv` of DBOS would look for it once a minute for each.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context
from logging import Logger, getLogger

from dbos import DBOS, WorkflowStatus, error as dbos_error

from prompty.durable.performer import read_clock

SECONDS = 1.0
FRESH = 1.0  # seconds for which no other process can have taken over a workflow unseen
POLL = 0.02
logger: Logger = getLogger("prompty")
_watchers: "dict[asyncio.AbstractEventLoop, _Watcher]" = {}  # of the loops that have turns; the last turn removes it


class WatchedTurn:
    """A turn that is under way: its place among those of its workflow, and whether it still owns the workflow.

    DBOS tells steps apart by the order in which they start. If turns ran side by side, it would be another order in
    every execution.
    """

    def __init__(self, workflow_id: str, earlier: "Sequence[WatchedTurn]") -> None:
        self.workflow_id = workflow_id
        self.is_lost: bool = False
        self.has_ended: bool = False
        self._earlier = [turn for turn in earlier if turn.workflow_id == workflow_id]
        self.step: int | None = None  # the number of its first step, once that is stored
        self._task = asyncio.current_task()
        self._execution: object = None
        self._confirmed = -FRESH
        self._topic: str | None = None
        self._answered = asyncio.Event()

    async def wait_for_earlier(self, step: int) -> None:
        """Wait for turns that began before this one. An execution that was cancelled and has not noticed yet may be in
        this very turn, or in a later one."""
        self.step = step
        while any(not one.has_ended and (one.step is None or one.step < step) for one in self._earlier):
            await asyncio.sleep(POLL)

    async def confirm(self) -> None:
        """Return if a call may begin. DBOS refuses what an execution wants to store that has lost its workflow, and
        this keeps it from beginning a call before that, as it could after it was suspended."""
        if read_clock() - self._confirmed >= FRESH:
            await _look([self])
        if self.is_lost:
            raise self.lost()

    async def wait_for_answer(self, topic: str, until: float | None) -> None:
        """Wait for an answer in `topic`, or until the time is up."""
        self._topic, self._answered = topic, asyncio.Event()
        await _look([self])
        with suppress(TimeoutError):
            async with asyncio.timeout(None if until is None else max(until - time.time(), 0.0)):
                await self._answered.wait()

    def compare(self, status: WorkflowStatus | None, begun: float) -> None:
        """Compare with what the database said of the workflow to a question that was `begun` then."""
        if status is None or status.status != "PENDING":
            self.is_lost = True
            return
        found = (status.executor_id, status.recovery_attempts, status.dequeued_at)
        self.is_lost = self._execution not in (None, found)
        self._execution, self._confirmed = self._execution or found, begun
        if self._topic in (status.attributes or {}):
            self._answered.set()

    def end(self) -> None:
        """End a turn that was lost, with what it does at the moment."""
        if self._task is not None and not self.has_ended:
            self._task.cancel()

    def lost(self) -> BaseException:
        """Return the exception by which DBOS ends an execution that has lost its workflow."""
        if self._task is not None and self._task.cancelling():
            self._task.uncancel()
        reason = f"the workflow '{self.workflow_id}' was cancelled, or another process goes on with it"
        return dbos_error.DBOSWorkflowCancelledError(reason)


@contextmanager
def watch_turn(workflow_id: str) -> Iterator[WatchedTurn]:
    """Watch a turn of the current task while it is under way."""
    loop = asyncio.get_running_loop()
    watcher = _watchers.setdefault(loop, _Watcher())
    turn = WatchedTurn(workflow_id, watcher.turns)
    watcher.add(turn)
    try:
        yield turn
    except asyncio.CancelledError:
        if turn.is_lost:
            raise turn.lost() from None
        raise
    finally:
        turn.has_ended = True
        if watcher.remove(turn):
            del _watchers[loop]


class _Watcher:
    """The turns of one event loop, and the task that asks about them."""

    def __init__(self) -> None:
        self.turns: list[WatchedTurn] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, turn: WatchedTurn) -> None:
        self.turns.append(turn)
        if self._task is None:
            # In a new context: in that of a workflow, DBOS would store each question as a step of it.
            self._task = asyncio.create_task(self._run(), context=Context())

    def remove(self, turn: WatchedTurn) -> bool:
        """Return True if it was the last turn."""
        self.turns.remove(turn)
        if not self.turns and self._task is not None:
            self._task.cancel()
        return not self.turns

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            try:
                turns = list(self.turns)
                await _look(turns)
            except Exception as problem:  # whatever the database driver raises
                logger.debug("The workflows of turns cannot be looked up: %s", type(problem).__name__)
                continue
            for turn in turns:
                if turn.is_lost:
                    turn.end()


async def _look(turns: Sequence[WatchedTurn]) -> None:
    """Ask the database about turns."""
    begun = read_clock()
    asking = DBOS.list_workflows_async(
        workflow_ids=list({turn.workflow_id for turn in turns}), load_input=False, load_output=False
    )
    found = await asyncio.create_task(asking, context=Context())
    statuses = {status.workflow_id: status for status in found}
    for turn in turns:
        turn.compare(statuses.get(turn.workflow_id), begun)
