"""Batch on a database's workers: submit rows as durable runs, and collect their results.

An exclusive lock in the database lets one process at a time collect the results of a batch.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from logging import Logger, getLogger
from pathlib import Path
from typing import Any, Protocol

from prompty.batches.calls import MAX_RETRIES
from prompty.batches.job import Batch, BatchJob
from prompty.batches.ledger import Ledger
from prompty.batches.records import PlannedRow, RowUsage, build_result, describe_error, describe_pause, encode_record
from prompty.batches.row_index import FinishedRow, hash_prompt
from prompty.concurrency import FileLock
from prompty.durable.outcome import RunOutcome
from prompty.durable.record import DurableOptions, Record, new_record
from prompty.durable.runs import Runs
from prompty.errors import PromptyError, ResultError, RunRefused
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.event import Done
from prompty.model.message import Reply
from prompty.model.paused import Paused
from prompty.pipeline.validate import validate_run_inputs
from prompty.tools.toolbox import handlers_of

WINDOW = 1000  # rows submitted and not collected: enough for many workers, and few enough to keep in memory
SUBMIT_SIZE = 50  # rows to submit before results are collected again
POLL_SECONDS = 0.1


class SharedBatch(Batch):
    """The side of a batch that submits and collects. Runs stay in the database until they are pruned, so a process
    that takes over collects their results without paying again."""

    def __init__(
        self, job: BatchJob, ledger: Ledger, runs: Runs, *, should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(job, ledger)
        self.runs = runs
        self.should_stop = should_stop
        self.window: int = WINDOW if job.budget is None else job.max_concurrency  # submitted rows can exceed a budget
        self._prefix = get_batch_name(job.agent, ledger.out)
        self._options: DurableOptions = {
            "max_retries": MAX_RETRIES,
            "tools": list(handlers_of(job.tools)) or None,
            "extra_inputs": "ignore",
            "outputs_mode": job.outputs_mode,
            "provider_tools": job.provider_tools,
        }
        self._template: Record | None = None
        self._running: dict[str, PlannedRow] = {}
        self._exhausted = False

    def run(self) -> bool:
        """Submit and collect until no row is left or `should_stop`. Return True if none is left."""
        while not self.should_stop():
            may_submit_more = not self.is_budget_spent and self._submit()
            self._collect()
            if not self._running and (self._exhausted or self.is_budget_spent):
                break
            if not may_submit_more:
                time.sleep(POLL_SECONDS)
        return self._exhausted and not self.progress.left

    def _submit(self) -> bool:
        """Submit the next rows, up to the window. Return True if there were some and more are left."""
        size = min(self.window - len(self._running), SUBMIT_SIZE)
        if size <= 0 or self._exhausted:
            return False
        chunk = list(islice(self.rows, size))
        self._exhausted = len(chunk) < size
        records: list[Record] = []
        for planned in chunk:
            if isinstance(planned, FinishedRow):
                self._skip(planned)
            elif (record := self._build_record(planned)) is not None:
                records.append(record)
        if self.job.retry_failed:
            self._retry([record.run_id for record in records])
        self.runs.submit_records(records)
        return not self._exhausted

    def _retry(self, run_ids: list[str]) -> None:
        """Let failed runs go on. One that cannot be read begins again, and so does one whose answer did not fit, if it
        need not fit any more: a run keeps the options that it began with."""
        begins_again = (RunRefused, ResultError) if self.job.outputs_mode == "lenient" else (RunRefused,)
        for row, outcome in self.runs.find_ended(run_ids):
            if isinstance(outcome, begins_again):
                self.runs.delete(row.id)
            elif isinstance(outcome, PromptyError):
                self.runs.retry(row.id)

    def _build_record(self, planned: PlannedRow) -> Record | None:
        """Return the run of a row, or None if the row is invalid."""
        run_id = f"{self._prefix}-{planned.id}"
        try:
            if planned.row.problem is not None:
                raise planned.row.problem
            record = self._fill_record(run_id, planned.row.inputs)
        except PromptyError as error:
            self._fail(planned, describe_error(error, self.job.agent, planned.row.inputs), RowUsage())
            return None
        self._running[run_id] = planned
        return record

    def _fill_record(self, run_id: str, inputs: dict[str, object]) -> Record:
        """Build a record from the template that all rows share. Sensitive inputs are sealed one by one."""
        agent = self.job.agent
        if any(declared.sensitive for declared in agent.inputs):
            return new_record(run_id, agent, inputs, self._options, {})
        if self._template is None:
            self._template = new_record(run_id, agent, inputs, self._options, {})
        else:
            validate_run_inputs(agent, inputs, extra_inputs="ignore")
        return replace(self._template, run_id=run_id, inputs=inputs)

    def _collect(self) -> None:
        """Write the results of runs that have ended."""
        for row, outcome in self.runs.find_ended(list(self._running)):
            # A run that was taken over may have paid for its last call twice.
            planned = replace(self._running.pop(row.id), interrupted=0 if row.taken_over is None else 1)
            self._write(planned, row.id, outcome)

    def _write(self, planned: PlannedRow, run_id: str, outcome: RunOutcome) -> None:
        match outcome:
            case Done():
                cost = self.job.price(Reply(usage=outcome.usage)) if outcome.cost is None else outcome.cost
                used = RowUsage(
                    usage=outcome.usage,
                    cost=cost,
                    model=self.job.agent.model.id,
                    citations=outcome.citations,
                    provider_calls=outcome.provider_calls,
                )
                self._finish(encode_record(build_result(planned, outcome.result, used)), used)
            case Paused():
                fix = f"Answer it: prompty runs answer {run_id} …; then collect it with --retry-failed."
                self._fail(planned, describe_pause(outcome, fix), RowUsage())
            case PromptyError():
                self._fail(planned, describe_error(outcome, self.job.agent, planned.row.inputs), RowUsage())


def get_batch_name(agent: PromptAgent, out: Path) -> str:
    """Name a batch in a database by its output and its prompt."""
    return f"{out.stem}-{hash_prompt(agent)[:8]}".replace("#", "")


CHECK_SECONDS = 5.0
DEATH_SECONDS = 3.0
logger: Logger = getLogger("prompty")


class DatabaseLock(Protocol):
    """A lock held by this process."""

    def release(self) -> None: ...


def acquire_lock(url: str, name: str) -> DatabaseLock:
    """Lock a name in a database, or raise `BlockingIOError`. The lock ends with the process, even if it is killed."""
    if not url.startswith("sqlite:"):
        return PostgresLock(url, name)
    database = Path(url.partition("///")[2])
    database.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(database.with_name(f"{database.name}.{sha256(name.encode()).hexdigest()[:16]}.lock"))


class PostgresLock:
    """Advisory lock of a database session. A server that restarts loses it, so a thread checks and reacquires it."""

    def __init__(self, url: str, name: str) -> None:
        self._psycopg: Any = require("psycopg", extra="dbos")
        self._url, self._name = url.replace("postgresql+psycopg:", "postgresql:"), name
        self._key = int.from_bytes(sha256(f"prompty:{name}".encode()).digest()[:8], signed=True)
        self._connection = self._acquire()
        self._released = threading.Event()
        self._connection_lock = threading.Lock()
        threading.Thread(target=self._watch, name="prompty lock", daemon=True).start()

    def _acquire(self) -> Any:
        """Return a connection that holds the lock. The server needs a moment to notice that the last holder died."""
        connection = self._psycopg.connect(self._url, autocommit=True)
        until = time.monotonic() + DEATH_SECONDS
        try:
            while not connection.execute("SELECT pg_try_advisory_lock(%s)", (self._key,)).fetchone()[0]:
                if time.monotonic() > until:
                    raise BlockingIOError(f"another process holds the lock '{self._name}'")
                time.sleep(0.05)
        except BaseException:
            connection.close()
            raise
        return connection

    def _watch(self) -> None:
        while not self._released.wait(CHECK_SECONDS):
            with self._connection_lock:
                if not self._released.is_set():  # a released lock must not be reacquired
                    self._check()

    def _check(self) -> None:
        try:
            self._connection.execute("SELECT 1")
        except self._psycopg.Error:
            self._connection.close()
            self._reacquire()

    def _reacquire(self) -> None:
        try:
            self._connection = self._acquire()
        except self._psycopg.Error:
            logger.warning("The database is unreachable. The lock '%s' will be acquired again.", self._name)
        except BlockingIOError:
            logger.error("Another process took the lock '%s' while the database was unreachable.", self._name)

    def release(self) -> None:
        self._released.set()
        with self._connection_lock:
            with suppress(self._psycopg.Error):
                self._connection.execute("SELECT pg_advisory_unlock(%s)", (self._key,))
            self._connection.close()
