"""`prompty runs`: list, show, answer, cancel, retry and delete durable runs."""

import json
from datetime import timedelta
from typing import Annotated

from rich.table import Table
from rich.text import Text
from typer import Argument, BadParameter, Option, Typer

from prompty.cli.console import out
from prompty.cli.durable import DatabaseUrl, open_client
from prompty.cli.options import AsJson
from prompty.durable.runs import RunState
from prompty.durable.runtime import DurableRuntime
from prompty.errors import PromptyError
from prompty.loop.policy import deny, use_result
from prompty.model.event import Event, ModelReply, Retry, ToolFinished
from prompty.model.paused import GatedCall, Paused
from prompty.safety.json import read_json
from prompty.safety.visible import visible

runs = Typer(name="runs", help="List, show, answer, cancel, retry and delete durable runs.", no_args_is_help=True)
RunId = Annotated[str, Argument(help="The id of the run.")]
_VERDICTS = "yes, no, no=REASON, retry, fail, fail=REASON, or use=RESULT"


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
