"""The two ways in which a batch runs: in this process, or on the workers of a database."""

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from prompty.batch.books import Books
from prompty.batch.calls import Price
from prompty.batch.local import LocalBatch
from prompty.batch.pace import Pace, PacedCalls
from prompty.batch.plan import rows_to_run
from prompty.batch.shared import SharedBatch, batch_name
from prompty.batch.tally import Tally
from prompty.cli.batch_progress import shown_progress
from prompty.cli.console import err
from prompty.durable.engine import Limits
from prompty.durable.names import NameLock, name_lock
from prompty.durable.runtime import DurableRuntime
from prompty.errors import NameInUse, RequestError
from prompty.model.agent import PromptAgent
from prompty.safety.visible import visible

SIGNALS = (signal.SIGINT, signal.SIGTERM)
DRAIN = 30.0
LOCK_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What a command line asks for."""

    agent: PromptAgent
    rows: Path
    numbers: range | frozenset[int]
    output: Path
    tools: list[object]
    price: Price
    budget: Decimal | None
    most: int
    retry_failed: bool

    @property
    def tally(self) -> Tally:
        return Tally(total=len(self.numbers), began=time.monotonic())


async def run_here(job: Job) -> tuple[bool, Tally]:
    """Run the rows in this process; whether none is left, and how it went."""
    books = Books(job.output, retry_failed=job.retry_failed)
    complete = False
    try:
        running = LocalBatch(
            job.agent,
            rows_to_run(job.rows, job.agent, job.numbers, books.index),
            books,
            tally=job.tally,
            price=job.price,
            tools=job.tools,
            most=job.most,
            budget=job.budget,
        )
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, _stop, running)
        with shown_progress(lambda: running.tally):
            complete = await running.run()
    finally:
        books.close(complete=complete)
    _tell_budget(books, spent=running.spent and not complete)
    return complete, running.tally


def _stop(running: LocalBatch) -> None:
    if not running.stopping:
        err.print("Stopping when the rows under way have ended; once more ends them now.")
    running.stop()


def run_shared(job: Job, url: str, name: str | None) -> tuple[bool, Tally]:
    """Work on the rows under a name, if there is one, and submit and collect them as soon as nobody else does."""
    stopping = threading.Event()
    for number in SIGNALS:
        signal.signal(number, lambda *_: _stop_soon(stopping))
    with _working(job, url, name):
        lock = _collecting(url, batch_name(job.agent, job.output), stopping, waits=name is not None)
        if lock is None:
            return False, job.tally
        client = DurableRuntime(url)
        try:
            return _collected(job, client, stopping)
        finally:
            client.close()
            lock.release()


@contextmanager
def _working(job: Job, url: str, name: str | None) -> Iterator[None]:
    """Take rows from the queue meanwhile. Rows that are cut off go on when a worker of this name starts again."""
    if name is None:
        yield
        return
    pace = PacedCalls(Pace(job.most))
    worker = DurableRuntime(url, name=name, limits=Limits(worker_concurrency=job.most), tools=job.tools, pace=pace)
    worker.open()
    try:
        yield
    finally:
        worker.close(DRAIN)


def _collecting(url: str, batch: str, stopping: threading.Event, *, waits: bool) -> NameLock | None:
    """The right to submit and collect, which one process has at a time. Who works can wait for it."""
    told = False
    while not stopping.is_set():
        try:
            return name_lock(url, f"batch {batch}")
        except NameInUse:
            if not waits:
                raise RequestError(
                    f"another process collects the batch '{batch}'", "Give this one a --name to work on it, too."
                ) from None
        if not told:
            err.print(visible(f"Working on {batch}; another process collects its results."))
            told = True
        stopping.wait(LOCK_SECONDS)
    return None


def _collected(job: Job, client: DurableRuntime, stopping: threading.Event) -> tuple[bool, Tally]:
    books = Books(job.output, retry_failed=job.retry_failed)
    complete = False
    try:
        running = SharedBatch(
            job.agent,
            rows_to_run(job.rows, job.agent, job.numbers, books.index),
            books,
            client.engine,
            tally=job.tally,
            price=job.price,
            tools=job.tools,
            most=job.most,
            budget=job.budget,
            retry_failed=job.retry_failed,
            ended=stopping.is_set,
        )
        with shown_progress(lambda: running.tally):
            complete = running.run()
    finally:
        books.close(complete=complete)
    _tell_budget(books, spent=running.spent and not complete)
    return complete, running.tally


def _stop_soon(stopping: threading.Event) -> None:
    """Stop when runs have ended. The next signal ends the process: what it cuts off is not lost."""
    stopping.set()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    err.print("Stopping when the rows under way have ended; once more ends them now.")


def _tell_budget(books: Books, *, spent: bool) -> None:
    if spent:
        err.print(f"The budget is spent: ${books.spent:.4f}.")
