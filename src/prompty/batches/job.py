"""Batch job: the request, and the bookkeeping that batches in this process and on workers share."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from prompty.batches.ledger import Ledger
from prompty.batches.progress import BatchProgress
from prompty.batches.records import PlannedRow, RowFailure, RowUsage, build_failure, encode_record
from prompty.batches.row_index import plan_rows
from prompty.loop.budget import Price
from prompty.model.agent import PromptAgent


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchJob:
    """A batch as requested. `numbers` selects rows; no row starts after `budget` dollars."""

    agent: PromptAgent
    rows: Path
    numbers: range | frozenset[int]
    output: Path
    tools: list[object]
    price: Price
    budget: Decimal | None = None
    max_concurrency: int
    retry_failed: bool = False


class Batch:
    """The rows of a job, the ledger they are written to, and the progress."""

    def __init__(self, job: BatchJob, ledger: Ledger) -> None:
        self.job = job
        self.ledger = ledger
        self.rows: Iterator[PlannedRow | None] = plan_rows(job.rows, job.agent, job.numbers, ledger.index)
        self.progress: BatchProgress = BatchProgress(total=len(job.numbers), started=time.monotonic())

    @property
    def is_budget_spent(self) -> bool:
        return self.job.budget is not None and self.ledger.spent >= self.job.budget

    def _skip(self) -> None:
        """Count a row that an earlier run finished."""
        self.progress = self.progress.count_earlier()

    def _finish(self, line: bytes, used: RowUsage) -> None:
        self.ledger.finish(line, used.cost)
        self.progress = self.progress.count_row(used)

    def _fail(self, planned: PlannedRow, failure: RowFailure, used: RowUsage) -> None:
        self.ledger.fail(encode_record(build_failure(planned, failure, used)), used.cost)
        self.progress = self.progress.count_row(used, failed=True)
