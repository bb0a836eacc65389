"""Batch job: the request, its progress, and the bookkeeping that batches in this process and on workers share."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Literal

from prompty.batches.ledger import Ledger
from prompty.batches.records import PlannedRow, RowFailure, RowUsage, build_failure, encode_record
from prompty.batches.row_index import FinishedRow, plan_rows
from prompty.loop.stop import Price, tokens_of
from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchProgress:
    """Counters. `total`: rows selected; `earlier`: rows finished by a previous run; `failed_earlier`: those that had
    failed then; `cost`: sum of the known costs, a lower bound unless `priced`. Immutable, so that another thread can
    display it."""

    total: int
    earlier: int = 0
    failed_earlier: int = 0
    done: int = 0
    failed: int = 0
    tokens: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: Decimal | None = None
    priced: bool = True
    started: float = 0.0

    @property
    def left(self) -> int:
        return max(self.total - self.earlier - self.done - self.failed, 0)

    def count_earlier(self, *, failed: bool) -> "BatchProgress":
        return replace(self, earlier=self.earlier + 1, failed_earlier=self.failed_earlier + failed)

    def count_row(self, used: RowUsage, *, failed: bool = False) -> "BatchProgress":
        was_called = used.attempts != 0
        return replace(
            self,
            done=self.done + (not failed),
            failed=self.failed + failed,
            tokens=self.tokens + tokens_of(used.usage),
            usage=self.usage + used.usage,
            cost=self.cost if used.cost is None else (self.cost or Decimal()) + used.cost,
            priced=self.priced and (used.cost is not None or not was_called),
        )

    def add(self, later: "BatchProgress") -> "BatchProgress":
        """Return the sum of this progress and that of a batch that continued it."""
        known = [cost for cost in (self.cost, later.cost) if cost is not None]
        return replace(
            self,
            done=self.done + later.done,
            failed=self.failed + later.failed,
            tokens=self.tokens + later.tokens,
            cost=sum(known, Decimal()) if known else None,
            priced=self.priced and later.priced,
        )

    def rate(self, now: float) -> float:
        """Return rows per second."""
        seconds = now - self.started
        return (self.done + self.failed) / seconds if seconds > 0 else 0.0

    def to_json(self, now: float) -> Json:
        names = ("total", "earlier", "failed_earlier", "done", "failed", "left", "tokens")
        counts: Json = {name: getattr(self, name) for name in names}
        cost = None if self.cost is None else float(self.cost)
        return {**counts, "cost": cost, "rate": round(self.rate(now), 3), "seconds": round(now - self.started, 3)}

    def format_line(self, now: float) -> str:
        rate = self.rate(now)
        parts = [f"{self.total - self.left:,} of {self.total:,} rows", f"{rate:,.1f} rows/s", f"{self.tokens:,} tokens"]
        if self.cost is not None:
            parts.append(f"{'' if self.priced else '≥ '}${self.cost:,.4f}")
        parts.append(f"{self.failed:,} failed")
        if self.failed_earlier:
            parts.append(f"{self.failed_earlier:,} failed earlier")
        if rate and self.left:
            minutes, seconds = divmod(round(self.left / rate), 60)
            parts.append(f"{minutes // 60}:{minutes % 60:02}:{seconds:02} left")
        return " · ".join(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchJob:
    """A batch as requested. `numbers` selects rows; no row starts after `budget` dollars. `notify` is told, in a line
    for a person, when the limit of rows at once is lowered and why the first row failed."""

    agent: PromptAgent
    rows: Path
    numbers: range | frozenset[int]
    output: Path
    tools: list[object]
    price: Price
    budget: Decimal | None = None
    max_concurrency: int
    retry_failed: bool = False
    outputs_mode: Literal["strict", "lenient"] = "strict"
    provider_tools: bool = True
    notify: Callable[[str], object] = lambda line: None


class Batch:
    """The rows of a job, the ledger they are written to, and the progress."""

    def __init__(self, job: BatchJob, ledger: Ledger) -> None:
        self.job = job
        self.ledger = ledger
        self.rows: Iterator[PlannedRow | FinishedRow] = plan_rows(job.rows, job.agent, job.numbers, ledger.index)
        self.progress: BatchProgress = BatchProgress(total=len(job.numbers), started=time.monotonic())
        self.has_unpriced_calls: bool = False

    @property
    def is_budget_spent(self) -> bool:
        """True if the budget is spent, or if a provider ran a tool whose price is unknown, so that it may be."""
        return self.job.budget is not None and (self.has_unpriced_calls or self.ledger.spent >= self.job.budget)

    def _skip(self, row: FinishedRow) -> None:
        """Count a row that an earlier run finished."""
        self.progress = self.progress.count_earlier(failed=row.failed)

    def _count(self, used: RowUsage, *, failed: bool = False) -> None:
        self.progress = self.progress.count_row(used, failed=failed)
        self.has_unpriced_calls |= used.cost is None and bool(used.usage.requests)

    def _finish(self, line: bytes, used: RowUsage) -> None:
        self.ledger.finish(line, used.cost)
        self._count(used)

    def _fail(self, planned: PlannedRow, failure: RowFailure, used: RowUsage) -> None:
        if not self.progress.failed:
            self.job.notify(f"Row {planned.row.number} failed: {failure.message}")
        self.ledger.fail(encode_record(build_failure(planned, failure, used)), used.cost)
        self._count(used, failed=True)
