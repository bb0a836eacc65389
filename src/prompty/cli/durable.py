"""`prompty worker`, `submit` and `runs`: commands for durable runs."""

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated

from rich.table import Table
from rich.text import Text
from typer import Argument, BadParameter, Option, Typer

from prompty.cli.console import fail, out
from prompty.cli.functions import ToolFiles, load_functions
from prompty.cli.inputs import load_dotenv, read_pairs
from prompty.cli.options import (
    ApiType,
    AsJson,
    File,
    InputPairs,
    ModelId,
    ProviderKey,
    TraceTo,
    get_state_path,
    start_tracing,
)
from prompty.drivers.model_override import override_model
from prompty.durable.engine import Limits
from prompty.durable.runs import RunState
from prompty.durable.runtime import DurableRuntime
from prompty.errors import NameInUse, PromptyError
from prompty.loop.policy import deny, use_result
from prompty.model.event import Event, ModelReply, Retry, ToolFinished
from prompty.model.paused import GatedCall, Paused
from prompty.pipeline.load import load
from prompty.safety.json import read_json
from prompty.safety.redaction import mask_secrets
from prompty.safety.visible import visible

DatabaseUrl = Annotated[
    str | None,
    Option(
        "--database",
        envvar="PROMPTY_DATABASE",
        help="The database: sqlite:///runs.db, or postgresql://… for several machines.",
    ),
]
runs: Typer = Typer(
    name="runs", help="List, show, answer, cancel, retry and delete durable runs.", no_args_is_help=True
)
RunId = Annotated[str, Argument(help="The id of the run.")]
_VERDICTS = "yes, no, no=REASON, retry, fail, fail=REASON, or use=RESULT"


def worker(
    name: Annotated[str, Option(help="A unique name. Use it again to continue the runs of this worker.")],
    tools: ToolFiles = None,
    database: DatabaseUrl = None,
    concurrency: Annotated[
        int | None, Option(metavar="N", help="Execute at most N runs at once in this worker.")
    ] = None,
    total: Annotated[int | None, Option(metavar="N", help="Execute at most N runs at once in all workers.")] = None,
    rate: Annotated[str | None, Option(metavar="N/SECONDS", help="Start at most N runs in so many seconds.")] = None,
    adopt: Annotated[
        list[str] | None, Option(metavar="NAME", help="Take over the runs of a worker that is gone for good.")
    ] = None,
    force: Annotated[bool, Option("--force", help="Adopt from a worker whose process hangs.")] = False,
    drain: Annotated[float, Option(help="Seconds to let runs finish when the worker is stopped.")] = 30.0,
    trace: TraceTo = None,
) -> None:
    """Execute submitted runs until SIGTERM or Ctrl-C. Interrupted runs continue when a worker of this name starts."""
    limits = Limits(worker_concurrency=concurrency, concurrency=total, rate=_parse_rate(rate))
    url = get_database_url(database)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    start_tracing(trace)
    runtime = DurableRuntime(url, name=name, limits=limits, tools=load_functions(tools))
    runtime.open()
    for lost in adopt or []:
        _adopt(runtime, lost, force=force)
    out.print(visible(f"{name}: working on {mask_secrets(url)}"))
    stopping.wait()
    out.print(visible(f"{name}: stopping"))
    runtime.close(drain)


def _adopt(runtime: DurableRuntime, lost: str, *, force: bool) -> None:
    try:
        out.print(visible(f"took over {runtime.engine.adopt(lost, force=force)} runs of {lost}"))
    except NameInUse:
        runtime.close()
        fail(
            f"the worker '{lost}' is still running\n    Stop it first. If it hangs and cannot be stopped, add --force."
        )


def _parse_rate(text: str | None) -> tuple[int, float] | None:
    if text is None:
        return None
    runs, _, seconds = text.partition("/")
    try:
        return int(runs), float(seconds)
    except ValueError:
        raise BadParameter(f"{text!r} is not a rate. Write for example 100/60.") from None


def submit(
    file: File,
    inputs: InputPairs = None,
    database: DatabaseUrl = None,
    run_id: Annotated[
        str | None, Option("--id", help="The id of the run. An existing run is not started again.")
    ] = None,
    priority: Annotated[int | None, Option(help="Run lower numbers first.")] = None,
    tool: Annotated[
        list[str] | None, Option(help="Offer a tool of the workers in addition to those in the file.")
    ] = None,
    approve: Annotated[bool, Option("--approve", help="Ask before every tool call, whatever the file says.")] = False,
    model: ModelId = None,
    provider: ProviderKey = None,
    api: ApiType = None,
) -> None:
    """Queue a run of FILE for the workers, and print its id."""
    load_dotenv(file)
    with open_client(database) as runtime:
        agent = override_model(load(file), model, provider=provider, api_type=api)
        run = runtime.start(
            agent,
            read_pairs(agent, inputs or []),
            run_id=run_id,
            priority=priority,
            tools=tool,
            approval="always" if approve else None,
        )
        out.print(visible(run.id))


@runs.command("list")
def list_runs(
    database: DatabaseUrl = None,
    state: Annotated[RunState | None, Option(help="List only runs in this state.")] = None,
    as_json: AsJson = False,
) -> None:
    """List runs, oldest first."""
    with open_client(database) as runtime:
        summaries = runtime.list(state)
    if as_json:
        entries = [
            {"id": run.id, "state": run.state, "worker": run.worker, "segments": run.segments} for run in summaries
        ]
        out.print_json(json.dumps(entries, ensure_ascii=True))
        return
    table = Table("run", "state", "worker", "started", "segments", box=None)
    for run in summaries:
        started = f"{run.created:%Y-%m-%d %H:%M:%S}"
        table.add_row(*map(visible, (run.id, run.state, run.worker or "", started, str(run.segments))))
    out.print(table)


@runs.command()
def show(run_id: RunId, database: DatabaseUrl = None) -> None:
    """Show the events of a run, and the calls that need approval."""
    with open_client(database) as runtime:
        runtime.attach(run_id)
        [state] = [run.state for run in runtime.list() if run.id == run_id]
        out.print(visible(f"{run_id}: {state}"))
        if state in ("waiting", "running"):
            return
        for event in runtime.events(run_id):
            _show_event(event.event)
        _show_outcome(runtime, run_id)


def _show_event(event: Event) -> None:
    if isinstance(event, ToolFinished):
        out.print(Text(visible(f"  {event.call.name}({event.call.arguments}) → {event.result.text}")))
    elif isinstance(event, ModelReply) and event.reply.text:
        out.print(Text(visible(f"  {event.reply.text}")))
    elif isinstance(event, Retry):
        out.print(Text(visible(f"  the model call was retried: {event.reason}")))


def _show_outcome(runtime: DurableRuntime, run_id: str) -> None:
    try:
        outcome = runtime.result(run_id)
    except PromptyError as error:
        out.print(Text(visible(str(error)), "bold red"))
        return
    if isinstance(outcome, Paused):
        for number, call in enumerate(outcome.pending, 1):
            out.print(Text(visible(f"  {number}. {_describe(call)}"), "yellow"))
        out.print(f"Answer each call in order: prompty runs answer {visible(run_id)} … with {_VERDICTS}.")


def _describe(call: GatedCall) -> str:
    text = f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})"
    return f"{text} was interrupted, and may have happened" if call.unknown else f"{text} needs approval"


@runs.command()
def answer(
    run_id: RunId,
    verdicts: Annotated[list[str], Argument(help=f"One verdict for each call, in order: {_VERDICTS}.")],
    database: DatabaseUrl = None,
) -> None:
    """Answer a paused run with a verdict for each pending call. Repeating an answer does nothing."""
    parsed = [_parse_verdict(word) for word in verdicts]
    with open_client(database) as runtime:
        runtime.answer(run_id, parsed)


def _parse_verdict(word: str) -> object:
    kind, separator, text = word.partition("=")
    match kind:
        case "yes" | "retry" if not separator:
            return True
        case "no" | "fail":
            return deny(text)
        case "use" if separator:
            try:
                return use_result(read_json(text))
            except ValueError:
                return use_result(text)
    raise BadParameter(f"{word!r} is not a verdict. Write {_VERDICTS}.")


@runs.command()
def cancel(run_id: RunId, database: DatabaseUrl = None) -> None:
    """Cancel a run."""
    with open_client(database) as runtime:
        runtime.cancel(run_id)


@runs.command()
def retry(run_id: RunId, database: DatabaseUrl = None) -> None:
    """Continue a run that was cancelled or broke, after its last finished step."""
    with open_client(database) as runtime:
        runtime.retry(run_id)


@runs.command()
def prune(
    days: Annotated[float, Option(help="Delete runs that ended at least this many days ago.")] = 30.0,
    database: DatabaseUrl = None,
) -> None:
    """Delete runs that have ended. Paused runs stay."""
    with open_client(database) as runtime:
        out.print(f"{runtime.prune(timedelta(days=days))} runs deleted")


@contextmanager
def open_client(database: str | None) -> Iterator[DurableRuntime]:
    """Yield a runtime without a worker."""
    runtime = DurableRuntime(get_database_url(database))
    try:
        yield runtime
    finally:
        runtime.close()


def get_database_url(url: str | None) -> str:
    """Return the URL, or that of a file in the user's state directory."""
    return url or f"sqlite:///{get_state_path('runs.db')}"
