"""`prompty batch`: run a prompt for each row of a file."""

import asyncio
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from rich.progress import BarColumn, Progress, TextColumn
from typer import Argument, BadParameter, Exit, Option

from prompty.batches.estimate import estimate_batch
from prompty.batches.job import Batch, BatchJob, BatchProgress
from prompty.batches.ledger import Ledger, get_failures_path
from prompty.batches.local import LocalBatch
from prompty.batches.provider.run import ProviderBatch
from prompty.batches.rows import check_columns, count_rows, parse_shard, select_rows
from prompty.batches.table import write_csv
from prompty.batches.throttle import CONCURRENCY
from prompty.cases.project_file import find_project
from prompty.cli import options as shared
from prompty.cli.console import EXIT_INTERRUPTED, STOP_SIGNALS, err, explain_os_error, fail, out, print_json
from prompty.cli.durations import parse_duration
from prompty.cli.estimate import print_estimate
from prompty.cli.functions import ToolFiles
from prompty.cli.inputs import check_argument, load_prompt_file
from prompty.cli.options import get_outputs_mode, start_tracing
from prompty.cli.provider_tools import ProviderTools, decide_provider_tools
from prompty.drivers.span_attributes import describe_version
from prompty.errors import RequestError
from prompty.pricing import get_pricer
from prompty.safety.redaction import mask_secrets
from prompty.safety.visible import visible
from prompty.safety.write_files import check_target
from prompty.tools.function import load_functions

BAR_SECONDS = 0.25
LINE_SECONDS = 10.0


def run_batch(
    file: shared.PromptFile,
    rows: Annotated[Path, Argument(help="A JSONL or CSV file with one call's inputs per row.")],
    output: Annotated[
        Path | None,
        Option(
            "--output", "-o", metavar="PATH", help="Append the results to this JSONL file, or write them to a CSV file."
        ),
    ] = None,
    estimate: Annotated[
        bool, Option("--estimate", help="Run nothing. Show what the rows would cost. With --output, only what is left.")
    ] = False,
    connect: Annotated[
        bool, Option("--connect", help="With --estimate: send 200 rows to the provider, which counts their tokens.")
    ] = False,
    variant: shared.Variant = None,
    retry_failed: Annotated[bool, Option("--retry-failed", help="Run the rows that failed again.")] = False,
    accept_failed: Annotated[
        bool, Option("--accept-failed", help="Exit with 0 although rows failed in an earlier run.")
    ] = False,
    limit: Annotated[int | None, Option(min=1, metavar="N", help="Run only the first N rows.")] = None,
    sample: Annotated[
        int | None, Option(min=1, metavar="N", help="Run only N rows chosen at random, the same rows every time.")
    ] = None,
    shard: Annotated[
        str | None, Option("--shard", metavar="I/N", help="Run only part I of N: every N-th row, starting with row I.")
    ] = None,
    max_cost: Annotated[
        float | None,
        Option("--max-cost", metavar="DOLLARS", help="Start no more rows once those in PATH have cost DOLLARS."),
    ] = None,
    concurrency: Annotated[
        int, Option("--concurrency", "-j", min=1, metavar="N", help="Run at most N rows at once.")
    ] = CONCURRENCY,
    tools: ToolFiles = None,
    provider_batch: Annotated[
        bool,
        Option("--provider-batch", help="Let OpenAI or Anthropic run the rows within a day, at half of the price."),
    ] = False,
    deadline: Annotated[
        timedelta | None,
        Option(
            parser=parse_duration,
            metavar="AGE",
            help="With --provider-batch: after this time, such as 6h, run the rows that are left here.",
        ),
    ] = None,
    cancel: Annotated[
        bool, Option("--cancel", help="With --provider-batch: run no more rows, and write the answers there are.")
    ] = False,
    model: shared.ModelId = None,
    provider: shared.ProviderKey = None,
    api: shared.ApiType = None,
    lenient_outputs: shared.LenientOutputs = False,
    provider_tools: ProviderTools = None,
    as_json: shared.AsJson = False,
    roots: shared.Roots = None,
    allow_env: shared.AllowEnv = None,
    trace: shared.TraceTo = None,
) -> None:
    """Run FILE once for each row of ROWS. Repeat the command to continue after an interruption."""
    live_only = {"max-cost": max_cost}
    _check_options(
        {"cancel": cancel or None, "deadline": deadline} if not provider_batch else live_only, provider_batch
    )
    if connect and not estimate:
        raise RequestError("--connect is for an estimate", "Add --estimate, or remove it.")
    try:
        check_argument(rows)
        start_tracing(trace, find_project(file))
        agent = load_prompt_file(file, variant, model, provider=provider, api=api, roots=roots, allow_env=allow_env)
        table = output if output is not None and output.suffix.lower() == ".csv" else None
        if table is not None:
            check_target(table)
            output = _find_records_of(table)
        part = None if shard is None else parse_shard(shard)
        check_columns(rows, agent)
        numbers = select_rows(count_rows(rows), limit=limit, sample=sample, shard=part)
        if estimate:
            records = _list_records(output, retry_failed)
            print_estimate(estimate_batch(agent, rows, numbers, records, connect=connect), as_json)
            return
        if output is None:
            raise BadParameter("Name a file for the results.", param_hint="--output / -o")
        job = BatchJob(
            agent=agent,
            rows=rows,
            numbers=numbers,
            output=output,
            tools=load_functions(tools or ()),
            price=get_pricer(agent, required=max_cost is not None),
            budget=None if max_cost is None else Decimal(str(max_cost)),
            max_concurrency=concurrency,
            retry_failed=retry_failed,
            outputs_mode=get_outputs_mode(lenient=lenient_outputs),
            provider_tools=decide_provider_tools(agent, file, provider_tools),
            notify=lambda line: err.print(visible(line)),
        )
        if provider_batch:
            complete, progress = _run_provider(job, deadline, cancel=cancel)
        else:
            complete, progress = asyncio.run(_run_local(job))
        if table is not None:
            write_csv(output, table)
    except OSError as error:
        fail(explain_os_error(error))
    _report(job, progress, complete=complete, accept_failed=accept_failed, as_json=as_json)


def _find_records_of(table: Path) -> Path:
    """Return the JSONL file that a CSV file is made from. Refuse to replace a CSV file that was not made from it."""
    records = table.with_suffix(".jsonl")
    if table.exists() and not records.exists():
        raise RequestError(f"'{table}' exists, and no batch has written it", "Name another file, or remove it.")
    return records


def _list_records(output: Path | None, retry_failed: bool) -> list[Path]:
    """Return the files whose rows do not run again."""
    if output is None:
        return []
    return [output] if retry_failed else [output, get_failures_path(output)]


def _report(job: BatchJob, progress: BatchProgress, *, complete: bool, accept_failed: bool, as_json: bool) -> None:
    """Print the counters and how to continue. Exit with 0 only if every row has a result, or has failed in an earlier
    run and is accepted."""
    now = time.monotonic()
    version, share = describe_version(job.agent), progress.usage.cached_share
    if as_json:
        cached = {} if share is None else {"cached_shares": {version: round(share, 4)}}
        print_json({**progress.to_json(now), **cached, "complete": complete})
    else:
        out.print(visible(progress.format_line(now)))
        if share is not None:
            out.print(visible(f"{share:.1%} of the input of {version} came from the provider's cache."))
    if not complete:
        err.print(visible(mask_secrets(f"To continue: {shlex.join(['prompty', *sys.argv[1:]])}")))
        raise Exit(EXIT_INTERRUPTED)
    is_accepted = accept_failed or not progress.failed_earlier
    if progress.failed or not is_accepted:
        accept = "" if is_accepted else " --accept-failed accepts those of earlier runs."
        err.print(visible(f"See {job.output.stem}.failed.jsonl. --retry-failed runs those rows again.{accept}"))
        raise Exit(1)


async def _run_local(job: BatchJob) -> tuple[bool, BatchProgress]:
    with Ledger(job.output, retry_failed=job.retry_failed) as ledger:
        running = LocalBatch(job, ledger)
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, _stop, running)
        with _show_progress(running):
            ledger.complete = await running.run()
    _report_budget(running)
    return ledger.complete, running.progress


def _check_options(useless: Mapping[str, object], provider_batch: bool) -> None:
    """Raise RequestError if an option is given that has no effect with, or without, a provider batch."""
    for option, value in useless.items():
        if value is not None and provider_batch:
            cause = f"--{option} has no effect on rows that a provider runs"
            raise RequestError(cause, f"Remove --{option} or --provider-batch.")
        if value is not None:
            raise RequestError(f"--{option} is for rows that a provider runs", "Add --provider-batch, or remove it.")


def _run_provider(job: BatchJob, deadline: timedelta | None, *, cancel: bool) -> tuple[bool, BatchProgress]:
    """Run the rows in the provider's batches, and those that are left after the deadline here."""
    stopping = threading.Event()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: _stop_collecting(stopping))
    with Ledger(job.output, retry_failed=job.retry_failed) as ledger:
        running = ProviderBatch(job, ledger, deadline=timedelta() if cancel else deadline, stopping=stopping)
        with _show_progress(running):
            ledger.complete = running.run()
    progress = running.progress
    if cancel:
        running.forget()
    if ledger.complete or cancel or stopping.is_set():
        return ledger.complete, progress
    err.print(f"The deadline has passed: running the {progress.left:,} rows that are left here.")
    complete, live = asyncio.run(_run_local(replace(job, retry_failed=False)))
    if complete:
        running.forget()
    return complete, progress.add(live)


def _stop_collecting(stopping: threading.Event) -> None:
    """Stop after the current request. The next signal ends the process at once; no result is lost."""
    stopping.set()
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    err.print("Stopping. The provider goes on with the rows that it has: --cancel ends them.")


def _stop(running: LocalBatch) -> None:
    if not running.stopping:
        _report_stopping()
    running.stop()


def _report_stopping() -> None:
    err.print("Stopping when the running rows have ended. Interrupt again to stop now.")


def _report_budget(running: Batch) -> None:
    if running.is_budget_spent and not running.ledger.complete:
        unknown = " plus tools of the provider whose price is unknown" if running.has_unpriced_calls else ""
        err.print(f"The budget is spent: ${running.ledger.spent:.4f}{unknown}.")


@contextmanager
def _show_progress(running: Batch) -> Iterator[None]:
    """Show the progress from another thread: a bar on a terminal, otherwise a line now and then."""
    ended = threading.Event()
    show = _show_bar if err.is_terminal else _show_lines
    thread = threading.Thread(target=show, args=(lambda: running.progress, ended), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show_bar(read: Callable[[], BatchProgress], ended: threading.Event) -> None:
    columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=None)
        while not ended.wait(BAR_SECONDS):
            progress = read()
            line, completed = progress.format_line(time.monotonic()), progress.total - progress.left
            bar.update(task, description=line, total=max(progress.total, 1), completed=completed)


def _show_lines(read: Callable[[], BatchProgress], ended: threading.Event) -> None:
    while not ended.wait(LINE_SECONDS):
        err.print(read().format_line(time.monotonic()))
