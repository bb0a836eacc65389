"""`prompty batch`: the rows of a file through a prompt, each once, however often the command is interrupted."""

import asyncio
import shlex
import signal
import sys
import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from prompty.api import load
from prompty.batch.books import Books
from prompty.batch.calls import Price
from prompty.batch.local import LocalBatch
from prompty.batch.plan import rows_to_run
from prompty.batch.rows import chosen_numbers, count_rows
from prompty.batch.tally import Tally, in_words
from prompty.cli.batch_progress import shown_progress
from prompty.cli.console import err, fail, out, printable, show_json
from prompty.cli.functions import functions_from
from prompty.cli.inputs import load_dotenv
from prompty.cli.options import ApiType, AsJson, File, ModelId, ProviderKey, TraceTo, start_tracing, with_model
from prompty.errors import PromptyError
from prompty.model.agent import PromptAgent
from prompty.pipeline.prices import price_of

STOPPED = 130


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


def batch(
    file: File,
    rows: Annotated[Path, Argument(help="The rows: a JSONL or CSV file of inputs.")],
    output: Annotated[Path, Option("--output", "-o", help="The JSONL file that results are appended to.")],
    retry_failed: Annotated[bool, Option("--retry-failed", help="Run rows that have failed once more.")] = False,
    limit: Annotated[int | None, Option(min=1, help="Only the first so many rows.")] = None,
    sample: Annotated[
        int | None, Option(min=1, help="Only so many rows, chosen at random, the same each time.")
    ] = None,
    budget: Annotated[float | None, Option(help="Start no more rows when OUTPUT has cost so many dollars.")] = None,
    max_concurrency: Annotated[int, Option(min=1, help="The most rows under way at once.")] = 64,
    tools: Annotated[
        list[str] | None, Option("--tools", "-t", help="A Python file or module with functions marked @tool.")
    ] = None,
    model: ModelId = None,
    provider: ProviderKey = None,
    api: ApiType = None,
    as_json: AsJson = False,
    trace: TraceTo = None,
) -> None:
    """Run FILE once for each of ROWS. When it is interrupted, the same command goes on where it was."""
    load_dotenv(file)
    try:
        start_tracing(trace)
        agent = with_model(load(file), model, provider, api)
        job = Job(
            agent=agent,
            rows=rows,
            numbers=chosen_numbers(count_rows(rows), limit=limit, sample=sample),
            output=output,
            tools=functions_from(tools),
            price=price_of(agent, required=budget is not None),
            budget=None if budget is None else Decimal(str(budget)),
            most=max_concurrency,
            retry_failed=retry_failed,
        )
        complete, tally = asyncio.run(_here(job))
    except (PromptyError, OSError) as error:
        fail(str(error))
    _report(job, tally, complete=complete, as_json=as_json)


async def _here(job: Job) -> tuple[bool, Tally]:
    """Run the rows in this process; whether none is left, and how it went."""
    books = Books(job.output, retry_failed=job.retry_failed)
    complete = False
    try:
        running = LocalBatch(
            job.agent,
            rows_to_run(job.rows, job.agent, job.numbers, books.index),
            books,
            tally=Tally(total=len(job.numbers), began=time.monotonic()),
            price=job.price,
            tools=job.tools,
            most=job.most,
            budget=job.budget,
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, _stop, running)
        with shown_progress(lambda: running.tally):
            complete = await running.run()
    finally:
        books.close(complete=complete)
    if running.spent and not complete:
        err.print(f"The budget is spent: ${books.spent:.4f}.")
    return complete, running.tally


def _stop(running: LocalBatch) -> None:
    if not running.stopping:
        err.print("Stopping when the rows under way have ended; once more ends them now.")
    running.stop()


def _report(job: Job, tally: Tally, *, complete: bool, as_json: bool) -> None:
    """Say how it went and how to go on. The exit code is 0 when every row has a result."""
    now = time.monotonic()
    if as_json:
        show_json({**tally.to_json(now), "complete": complete})
    else:
        out.print(printable(in_words(tally, now)))
    if not complete:
        err.print(printable(f"To go on: {shlex.join(['prompty', *sys.argv[1:]])}"))
        raise Exit(STOPPED)
    if tally.failed:
        err.print(printable(f"See {job.output.stem}.failed.jsonl; --retry-failed runs those rows once more."))
        raise Exit(1)
