"""Batch on a database's workers: submit rows as durable runs, and collect their results."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

from prompty.batches.calls import MAX_RETRIES
from prompty.batches.job import Batch, BatchJob
from prompty.batches.ledger import Ledger
from prompty.batches.records import PlannedRow, RowUsage, build_result, describe_error, describe_pause, encode_record
from prompty.batches.row_index import hash_prompt
from prompty.durable.engine import Batches, Status
from prompty.durable.outcome import RunOutcome, get_outcome
from prompty.durable.record import DurableOptions, Record, new_record
from prompty.durable.runs import get_run_id, get_segment_ids
from prompty.errors import PromptyError
from prompty.model.agent import PromptAgent
from prompty.model.event import Done
from prompty.model.message import Json
from prompty.model.paused import Paused
from prompty.model.reply import Reply
from prompty.pipeline.validate import validate_run_inputs
from prompty.tools.toolbox import handlers_of

WINDOW = 1000  # rows submitted and not collected: enough for many workers, and few enough to keep in memory
SUBMIT_SIZE = 50  # rows to submit before results are collected again
POLL_SECONDS = 0.1


class SharedBatch(Batch):
    """The side of a batch that submits and collects. Runs stay in the database until they are pruned, so a process
    that takes over collects their results without paying again."""

    def __init__(
        self, job: BatchJob, ledger: Ledger, engine: Batches, *, should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(job, ledger)
        self.engine = engine
        self.should_stop = should_stop
        self.window: int = WINDOW if job.budget is None else job.max_concurrency  # submitted rows can exceed a budget
        self._prefix = get_batch_name(job.agent, ledger.out)
        self._options: DurableOptions = {
            "max_retries": MAX_RETRIES,
            "tools": list(handlers_of(job.tools)) or None,
            "extra_inputs": "ignore",
        }
        self._template: Record | None = None
        self._running: dict[str, PlannedRow] = {}
        self._exhausted = False

    def run(self) -> bool:
        """Submit and collect until no row is left or `should_stop`. Return True if none is left."""
        while not self.should_stop():
            if not self.is_budget_spent:
                self._submit()
            collected = self._collect()
            if not self._running and (self._exhausted or self.is_budget_spent):
                break
            if not collected:
                time.sleep(POLL_SECONDS)
        return self._exhausted and not self.progress.left

    def _submit(self) -> None:
        size = min(self.window - len(self._running), SUBMIT_SIZE)
        if size <= 0 or self._exhausted:
            return
        chunk = list(islice(self.rows, size))
        self._exhausted = len(chunk) < size
        records: dict[str, Json] = {}
        for planned in chunk:
            if planned is None:
                self._skip()
            else:
                records |= self._build_record(planned)
        if self.job.retry_failed:
            ended = self.engine.find_ended(list(records))
            self.engine.delete([status.id for status in ended if isinstance(_read_outcome(status), PromptyError)])
        self.engine.submit(records, prompt=self._template.prompt if self._template else "")

    def _build_record(self, planned: PlannedRow) -> dict[str, Json]:
        """Return the run of a row by its id, or an empty dict if the row is invalid."""
        run_id = f"{self._prefix}-{planned.id}"
        try:
            if planned.row.problem is not None:
                raise planned.row.problem
            record = self._fill_record(run_id, planned.row.inputs).to_json()
        except PromptyError as error:
            self._fail(planned, describe_error(error, self.job.agent, planned.row.inputs), RowUsage())
            return {}
        self._running[run_id] = planned
        return {run_id: record}

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

    def _collect(self) -> int:
        """Write the results of runs that have ended. Return their number."""
        ended = self.engine.find_ended(list(self._running))
        for status in ended:
            planned = replace(self._running.pop(status.id), interrupted=status.recovered)
            self._write(planned, status, _read_outcome(status))
        return len(ended)

    def _write(self, planned: PlannedRow, status: Status, outcome: RunOutcome | None) -> None:
        match outcome:
            case Done():
                cost = self.job.price(Reply(usage=outcome.usage)) if outcome.cost is None else outcome.cost
                used = RowUsage(usage=outcome.usage, cost=cost, model=self.job.agent.model.id)
                self._finish(encode_record(build_result(planned, outcome.result, used)), used)
            case Paused():
                self._handle_pause(planned, status, outcome)
            case PromptyError():
                self._fail(planned, describe_error(outcome, self.job.agent, planned.row.inputs), RowUsage())
            case None:
                raise AssertionError("a run that has ended has an outcome")

    def _handle_pause(self, planned: PlannedRow, status: Status, paused: Paused) -> None:
        """Follow an answered run, which continues in another workflow. Otherwise the row has failed."""
        run_id = get_run_id(status.id)
        last = get_segment_ids(self.engine, run_id)[-1]
        if last != status.id:
            self._running[last] = planned
            return
        fix = f"Answer it: prompty runs answer {run_id} …; then collect it with --retry-failed."
        self._fail(planned, describe_pause(paused, fix), RowUsage())


def get_batch_name(agent: PromptAgent, out: Path) -> str:
    """Name a batch in a database by its output and its prompt."""
    return f"{out.stem}-{hash_prompt(agent)[:8]}".replace("#", "")


def _read_outcome(status: Status) -> RunOutcome | None:
    """Return the outcome of a run. A stored outcome that cannot be read counts as an error."""
    try:
        return get_outcome(status)
    except PromptyError as error:
        return error
