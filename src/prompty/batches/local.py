"""Batch in this process: start rows while the provider has capacity, and write each result at once."""

import asyncio
from dataclasses import replace
from functools import partial

from prompty.batches.calls import Call
from prompty.batches.job import Batch, BatchJob
from prompty.batches.ledger import Ledger
from prompty.batches.records import PlannedRow, RowUsage, build_result, describe_error, describe_pause, encode_record
from prompty.batches.row_index import FinishedRow
from prompty.batches.throttle import Throttle
from prompty.errors import ModelError
from prompty.model.paused import Paused

SKIPS_PER_YIELD = 256  # finished rows to skip before the running ones get their turn on the event loop
HOW_TO_APPROVE = "Call `prompty.turn` with the inputs of such a row: it returns the pause, and `resume` continues it."


class LocalBatch(Batch):
    """Rows running on this event loop. `stop` may be called from one of its signal handlers."""

    def __init__(self, job: BatchJob, ledger: Ledger) -> None:
        super().__init__(job, ledger)
        self.throttle: Throttle = Throttle(job.max_concurrency, on_lowered=self._on_lowered)
        self.stopping: bool = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._write_error: OSError | None = None

    async def run(self) -> bool:
        """Run the rows. Return True if none is left."""
        try:
            exhausted = await self._start_rows()
            while self._tasks:
                await self._wait_for_change()
        finally:
            self._cancel()
        if self._write_error is not None:
            raise self._write_error
        return exhausted and not self.progress.left

    def stop(self) -> None:
        """Start no more rows. On the second call, cancel the running ones."""
        if self.stopping:
            self._cancel()
        self.stopping = True
        self._changed.set()

    async def _start_rows(self) -> bool:
        """Start every row. Return False if the batch stopped before the last one."""
        for position, planned in enumerate(self.rows):
            if isinstance(planned, FinishedRow):
                self._skip(planned)
                if position % SKIPS_PER_YIELD == 0:
                    await asyncio.sleep(0)
            elif planned.row.problem is not None:
                self._fail(planned, describe_error(planned.row.problem, self.job.agent, {}), RowUsage(attempts=0))
            elif await self._wait_for_slot():
                self._start(planned)
            else:
                return False
        return True

    async def _wait_for_slot(self) -> bool:
        """Wait until another row may start. Return False if none may start any more."""
        while not (self.stopping or self.is_budget_spent or self._write_error):
            if self.throttle.has_free_slot(len(self._tasks)):
                return True
            await self._wait_for_change(self.throttle.pause_seconds)
        return False

    async def _wait_for_change(self, timeout: float = 0.0) -> None:
        """Wait until a row has ended, or for `timeout` seconds unless it is 0."""
        timer = asyncio.get_running_loop().call_later(timeout, self._changed.set) if timeout > 0 else None
        await self._changed.wait()
        self._changed.clear()
        if timer is not None:
            timer.cancel()

    def _start(self, planned: PlannedRow) -> None:
        self.ledger.begin(planned.id)
        task = asyncio.create_task(self._run_row(planned))
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()
        if not task.cancelled() and isinstance(error := task.exception(), OSError):
            self._write_error = error  # results cannot be written: do not pay for more

    def _on_lowered(self, limit: int, reason: str) -> None:
        rows = "row" if limit == 1 else "rows"
        self.job.notify(f"The provider is overloaded ({reason}): at most {limit} {rows} at once for now.")

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _run_row(self, planned: PlannedRow) -> None:
        job, timer = self.job, self.throttle.start_call()
        call = Call(job, partial(self.throttle.on_retry, timer))
        try:
            result = await call.result(planned.row.inputs)
            line = None if isinstance(result, Paused) else encode_record(build_result(planned, result, call.used))
        except Exception as error:
            self.throttle.on_failure(timer, error)
            # the attempt that failed for good has no event
            used = replace(call.used, attempts=(call.used.attempts or 0) + isinstance(error, ModelError))
            self._fail(planned, describe_error(error, job.agent, planned.row.inputs), used)
            return
        if line is None:
            self._fail(planned, describe_pause(result, HOW_TO_APPROVE), call.used)
        else:
            self._finish(line, call.used)
            self.throttle.on_success(len(self._tasks))
