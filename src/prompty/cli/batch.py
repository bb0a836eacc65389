"""`prompty batch`: the rows of a file through a prompt, each once, however often the command is interrupted."""

import asyncio
import shlex
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from prompty.api import load
from prompty.batch.rows import chosen_numbers, count_rows
from prompty.batch.tally import Tally, in_words
from prompty.cli.batch_modes import Job, run_here, run_shared
from prompty.cli.console import err, fail, out, show_json
from prompty.cli.functions import functions_from
from prompty.cli.inputs import load_dotenv
from prompty.cli.options import ApiType, AsJson, File, ModelId, ProviderKey, TraceTo, start_tracing, with_model
from prompty.errors import PromptyError, RequestError
from prompty.pricing import price_of
from prompty.redaction import masked_text
from prompty.safety.visible import visible

STOPPED = 130


Rows = Annotated[Path, Argument(help="The rows: a JSONL or CSV file of inputs.")]
Output = Annotated[Path, Option("--output", "-o", help="The JSONL file that results are appended to.")]
RetryFailed = Annotated[bool, Option("--retry-failed", help="Run rows that have failed once more.")]
Limit = Annotated[int | None, Option(min=1, help="Only the first so many rows.")]
Sample = Annotated[int | None, Option(min=1, help="Only so many rows, chosen at random, the same each time.")]
Dollars = Annotated[float | None, Option(help="Start no more rows when OUTPUT has cost so many dollars.")]
AtOnce = Annotated[int, Option(min=1, help="The most rows under way at once.")]
Functions = Annotated[
    list[str] | None, Option("--tools", "-t", help="A Python file or module with functions marked @tool.")
]
Database = Annotated[
    str | None, Option(help="Share the rows with the workers of this database: postgresql://…, sqlite:///runs.db.")
]
Name = Annotated[
    str | None, Option(help="With a database: work on the rows, too, under this name that no other worker has.")
]


def batch(
    file: File,
    rows: Rows,
    output: Output,
    retry_failed: RetryFailed = False,
    limit: Limit = None,
    sample: Sample = None,
    budget: Dollars = None,
    max_concurrency: AtOnce = 64,
    tools: Functions = None,
    database: Database = None,
    name: Name = None,
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
        complete, tally = _run(job, database, name)
    except (PromptyError, OSError) as error:
        fail(str(error))
    _report(job, tally, complete=complete, as_json=as_json)


def _run(job: Job, database: str | None, name: str | None) -> tuple[bool, Tally]:
    if database:
        return run_shared(job, database, name)
    if name:
        raise RequestError("--name is for workers of a database", "Add --database postgresql://…, or leave it out.")
    return asyncio.run(run_here(job))


def _report(job: Job, tally: Tally, *, complete: bool, as_json: bool) -> None:
    """Say how it went and how to go on. The exit code is 0 when every row has a result."""
    now = time.monotonic()
    if as_json:
        show_json({**tally.to_json(now), "complete": complete})
    else:
        out.print(visible(in_words(tally, now)))
    if not complete:
        err.print(visible(masked_text(f"To go on: {shlex.join(['prompty', *sys.argv[1:]])}")))
        raise Exit(STOPPED)
    if tally.failed:
        err.print(visible(f"See {job.output.stem}.failed.jsonl; --retry-failed runs those rows once more."))
        raise Exit(1)
