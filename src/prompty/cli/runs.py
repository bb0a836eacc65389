"""`prompty runs`: what has become of runs, and what they wait for."""

import json
from datetime import timedelta
from typing import Annotated

from rich.table import Table
from rich.text import Text
from typer import Argument, BadParameter, Option, Typer

from prompty.cli.console import out
from prompty.cli.durable import DatabaseUrl, reading
from prompty.cli.options import AsJson
from prompty.durable.runs import RunState
from prompty.durable.runtime import DurableRuntime
from prompty.errors import PromptyError
from prompty.loop.policy import deny, use_result
from prompty.model.event import Event, ModelReply, Retry, ToolFinished
from prompty.model.paused import GatedCall, Paused
from prompty.safety.json import read_json
from prompty.safety.visible import visible

runs = Typer(name="runs", help="See, answer, cancel, retry and forget durable runs.", no_args_is_help=True)
RunId = Annotated[str, Argument(help="The id of the run.")]
_WORDS = "yes, no, no=REASON, retry, fail, fail=REASON, or use=RESULT"


@runs.command("list")
def list_runs(
    database: DatabaseUrl = None,
    state: Annotated[RunState | None, Option(help="Only runs of this state.")] = None,
    as_json: AsJson = False,
) -> None:
    """List runs, the oldest first."""
    with reading(database) as runtime:
        found = runtime.list(state)
    if as_json:
        entries = [{"id": run.id, "state": run.state, "worker": run.worker, "segments": run.segments} for run in found]
        out.print_json(json.dumps(entries, ensure_ascii=True))
        return
    table = Table("run", "state", "worker", "started", "segments", box=None)
    for run in found:
        started = f"{run.created:%Y-%m-%d %H:%M:%S}"
        table.add_row(*map(visible, (run.id, run.state, run.worker or "", started, str(run.segments))))
    out.print(table)


@runs.command()
def show(run_id: RunId, database: DatabaseUrl = None) -> None:
    """Show what has happened in a run, and what it waits for."""
    with reading(database) as runtime:
        runtime.attach(run_id)
        [state] = [run.state for run in runtime.list() if run.id == run_id]
        out.print(visible(f"{run_id}: {state}"))
        if state in ("waiting", "running"):
            return
        for event in runtime.events(run_id):
            _show_event(event.event)
        _show_end(runtime, run_id)


def _show_event(event: Event) -> None:
    if isinstance(event, ToolFinished):
        out.print(Text(visible(f"  {event.call.name}({event.call.arguments}) → {event.result.text}")))
    elif isinstance(event, ModelReply) and event.reply.text:
        out.print(Text(visible(f"  {event.reply.text}")))
    elif isinstance(event, Retry):
        out.print(Text(visible(f"  the model was asked again: {event.reason}")))


def _show_end(runtime: DurableRuntime, run_id: str) -> None:
    try:
        end = runtime.result(run_id)
    except PromptyError as error:
        out.print(Text(visible(str(error)), "bold red"))
        return
    if isinstance(end, Paused):
        for number, call in enumerate(end.pending, 1):
            out.print(Text(visible(f"  {number}. {_asked(call)}"), "yellow"))
        out.print(f"Answer each in order: prompty runs answer {visible(run_id)} … with {_WORDS}.")


def _asked(call: GatedCall) -> str:
    shown = f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})"
    return f"{shown} was interrupted, and may have happened" if call.unknown else f"{shown} needs approval"


@runs.command()
def answer(
    run_id: RunId,
    verdicts: Annotated[list[str], Argument(help=f"One for each call, in order: {_WORDS}.")],
    database: DatabaseUrl = None,
) -> None:
    """Answer a run that waits: a verdict for each of its calls. The same answer twice does nothing."""
    said = [_verdict(word) for word in verdicts]
    with reading(database) as runtime:
        runtime.answer(run_id, said)


def _verdict(word: str) -> object:
    kind, given, text = word.partition("=")
    match kind:
        case "yes" | "retry" if not given:
            return True
        case "no" | "fail":
            return deny(text)
        case "use" if given:
            return use_result(_value(text))
    raise BadParameter(f"{word!r} is no verdict; write {_WORDS}")


def _value(text: str) -> object:
    try:
        return read_json(text)
    except ValueError:
        return text


@runs.command()
def cancel(run_id: RunId, database: DatabaseUrl = None) -> None:
    """End a run where it stands."""
    with reading(database) as runtime:
        runtime.cancel(run_id)


@runs.command()
def retry(run_id: RunId, database: DatabaseUrl = None) -> None:
    """Let a run that was cancelled or broke go on from its last step."""
    with reading(database) as runtime:
        runtime.retry(run_id)


@runs.command()
def prune(
    days: Annotated[float, Option(help="Forget runs that ended so many days ago.")] = 30.0, database: DatabaseUrl = None
) -> None:
    """Forget runs that have ended. Runs that wait for an answer stay."""
    with reading(database) as runtime:
        out.print(f"{runtime.prune(timedelta(days=days))} runs forgotten")
