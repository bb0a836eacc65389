"""`prompty runs`: list, show, answer and delete durable runs."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from rich.table import Table
from rich.text import Text
from typer import Argument, BadParameter, Exit, Option, Typer

from prompty.cli.console import err, out, print_error, print_json
from prompty.cli.durable import DatabaseUrl, count_other_versions, format_age, make_age_option, open_client
from prompty.cli.options import AsJson
from prompty.errors import PromptyError
from prompty.loop.policy import deny, use_result
from prompty.model.event import Event, ModelReply, OutputRejected, Retry, ToolFinished, ToolGated, ToolStarted
from prompty.model.paused import GatedCall, Paused
from prompty.safety.json import read_json
from prompty.safety.visible import visible

if TYPE_CHECKING:  # DBOS takes most of the time of a command, so what needs none starts without it
    from prompty.durable import Runs, RunSummary

State = Literal["waiting", "running", "paused", "done", "failed", "cancelled", "quarantined"]
runs: Typer = Typer(
    name="runs", help="List, show, follow, answer, cancel, retry and delete durable runs.", no_args_is_help=True
)
RunId = Annotated[str, Argument(help="The id of the run.")]
OlderThan = Annotated[
    timedelta | None,
    make_age_option("Only runs that have been in their state for AGE, for example 90s, 12h or 7d."),
]
RunIds = Annotated[list[str] | None, Argument(help="The ids of the runs.")]
PromptName = Annotated[str | None, Option(metavar="NAME", help="Only runs of the prompt with this file name.")]
Tenant = Annotated[str | None, Option(metavar="NAME", help="Only runs of this tenant.")]
IdPrefix = Annotated[str | None, Option(metavar="TEXT", help="Only runs whose id begins with this.")]
FOLLOW_SECONDS = 0.5

_VERDICTS = "yes, no, no=REASON, retry, fail, fail=REASON, or use=RESULT"


@runs.command("list")
def list_runs(
    database: DatabaseUrl = None,
    state: Annotated[State | None, Option(help="Only runs in this state.")] = None,
    prompt: PromptName = None,
    tenant: Tenant = None,
    id_prefix: IdPrefix = None,
    older_than: OlderThan = None,
    limit: Annotated[int, Option(min=1, metavar="N", help="List at most N runs.")] = 100,
    after: Annotated[str | None, Option(metavar="ID", help="List the page after this run.")] = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first. The age is the time in the current state."""
    with open_client(database) as client:
        found = client.list(
            state, prompt=prompt, tenant=tenant, prefix=id_prefix, older_than=older_than, limit=limit, after=after
        )
    if as_json:
        print_json([_to_json(run) for run in found])
        return
    table = Table("run", "state", "age", "prompt", "segments", "tokens", "cost", "worker", box=None)
    has_tenants = any(run.tenant is not None for run in found)
    if has_tenants:
        table.add_column("tenant")
    now = datetime.now(UTC)
    for run in found:
        name = [run.tenant or ""] if has_tenants else []
        table.add_row(*map(visible, [*_to_row(run, now), *name]))
    # As wide as its content, whatever the terminal: an id that is cut cannot be copied.
    table.width = out.measure(table, options=out.options.update(width=100_000)).maximum
    out.print(table)
    for run in found:
        if run.reason is not None:
            err.print(Text(visible(f"{run.id}: {run.reason.partition(chr(10))[0]}"), "yellow"))
    if len(found) == limit:
        err.print(visible(f"For the next page, add --after {found[-1].id}"))


def _to_row(run: "RunSummary", now: datetime) -> list[str]:
    tokens = "" if run.tokens is None else str(run.tokens)
    cost = "" if run.cost is None else f"${run.cost:.4f}"
    age = format_age(now - run.since)
    return [run.id, run.state, age, run.prompt or "", str(run.segments), tokens, cost, run.worker or ""]


def _to_json(run: "RunSummary") -> dict[str, object]:
    return {
        "id": run.id,
        "state": run.state,
        "prompt": run.prompt,
        "created": run.created.isoformat(),
        "since": run.since.isoformat(),
        "segments": run.segments,
        "tokens": run.tokens,
        "cost": None if run.cost is None else str(run.cost),
        "worker": run.worker,
        "tenant": run.tenant,
        "reason": run.reason,
    }


@runs.command("show")
def show_run(run_id: RunId, database: DatabaseUrl = None) -> None:
    """Show the events of a run, and the calls that need approval."""
    with open_client(database) as client:
        run = client.get(run_id)
        out.print(visible(f"{run_id}: {run.state}"))
        if run.reason is not None and run.state != "failed":  # whose error follows
            err.print(Text(visible(f"  {run.reason}"), "yellow"))
        if run.state in ("waiting", "running"):
            return
        for event in client.events(run_id):
            _show_event(event.event)
        _show_outcome(client, run_id)


def _show_event(event: Event) -> None:
    if isinstance(event, ToolFinished):
        out.print(Text(visible(f"  {event.call.name}({event.call.arguments}) → {event.result.text}")))
    elif isinstance(event, ToolGated) and not event.allowed:
        reason = f": {event.reason}" if event.reason else ""
        out.print(Text(visible(f"  {event.call.name}({event.call.arguments}) was denied{reason}")))
    elif isinstance(event, ModelReply) and event.reply.text:
        out.print(Text(visible(f"  {event.reply.text}")))
    elif isinstance(event, OutputRejected):
        out.print(Text(visible(f"  {event.cause}; the model was asked to correct it")))
    elif isinstance(event, Retry):
        out.print(Text(visible(f"  the model call was retried: {event.reason}")))


def _show_outcome(client: "Runs", run_id: str) -> None:
    try:
        outcome = client.result(run_id)
    except PromptyError as error:
        out.print(Text(visible(error.for_command_line()), "bold red"))
        return
    if isinstance(outcome, Paused):
        for number, call in enumerate(outcome.pending, 1):
            out.print(Text(visible(f"  {number}. {_describe(call)}"), "yellow"))
        out.print(f"Answer each call in order: prompty runs answer {visible(run_id)} … with {_VERDICTS}.")


def _describe(call: GatedCall) -> str:
    text = f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})"
    return f"{text} was interrupted, and may have taken effect" if call.unknown else f"{text} needs approval"


@runs.command()
def tail(
    run_id: RunId,
    follow: Annotated[bool, Option("--follow", "-f", help="Also wait while the run is paused, until it ends.")] = False,
    database: DatabaseUrl = None,
) -> None:
    """Print the events of a run as they happen, until it ends or needs an answer."""
    with open_client(database) as client:
        position = 0
        while True:
            for event in client.events(run_id, position):
                position = event.position
                if isinstance(event.event, ToolStarted):
                    call = event.event.call
                    out.print(Text(visible(f"  {call.name}({call.arguments}) …"), "dim"))
                _show_event(event.event)
            state = client.get(run_id).state
            if state in ("waiting", "running"):  # somebody has answered in this moment
                time.sleep(FOLLOW_SECONDS)
                continue
            out.print(visible(f"{run_id}: {state}"))
            _show_outcome(client, run_id)
            if state != "paused" or not follow:
                return
            while client.get(run_id).state == "paused":
                time.sleep(FOLLOW_SECONDS)


@runs.command("answer")
def answer_run(
    run_id: Annotated[str | None, Argument(help="The id of the run.")] = None,
    verdicts: Annotated[list[str] | None, Argument(help=f"One verdict for each call, in order: {_VERDICTS}.")] = None,
    each: Annotated[
        str | None, Option(metavar="VERDICT", help="Give this verdict to every pending call of all selected runs.")
    ] = None,
    prompt: PromptName = None,
    tenant: Tenant = None,
    id_prefix: IdPrefix = None,
    older_than: OlderThan = None,
    database: DatabaseUrl = None,
) -> None:
    """Answer a paused run with a verdict for each pending call. Repeating an answer does nothing.

    With `--each`, answer all paused runs, or those that a filter selects.
    """
    if (each is None) == (not verdicts) or (each is not None and run_id is not None):
        raise BadParameter("Give a run id and its verdicts, or --each with one verdict for many runs.")
    filters = Filters("paused", prompt, tenant, id_prefix, older_than)
    if each is None and any(filters[1:]):
        raise BadParameter("Filters need --each.")
    parsed = [_parse_verdict(word) for word in verdicts or [each or ""]]
    with open_client(database) as client:
        if run_id is not None:
            client.answer(run_id, parsed)
            return
        chosen = _choose(client, None, ("paused",), filters)
        _change_each(chosen, lambda paused: _answer_all_calls(client, paused, parsed[0]), "answered")


def _answer_all_calls(client: "Runs", run_id: str, verdict: object) -> None:
    paused = client.result(run_id, timeout=0)
    if isinstance(paused, Paused):  # otherwise it has been answered in the meantime
        client.answer(paused, [verdict] * len(paused.pending))


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
def cancel(
    run_ids: RunIds = None,
    state: Annotated[State | None, Option(help="Cancel all runs in this state.")] = None,
    prompt: PromptName = None,
    tenant: Tenant = None,
    id_prefix: IdPrefix = None,
    older_than: OlderThan = None,
    database: DatabaseUrl = None,
) -> None:
    """Cancel runs: those with these ids, or all that a filter selects."""
    filters = Filters(state, prompt, tenant, id_prefix, older_than)
    filters.check(run_ids, CANCELLABLE)
    with open_client(database) as client:
        _change_each(_choose(client, run_ids, CANCELLABLE, filters), client.cancel, "cancelled")


@runs.command()
def retry(
    run_ids: RunIds = None,
    state: Annotated[
        State | None, Option(help="Retry all runs in this state: failed, cancelled or quarantined.")
    ] = None,
    prompt: PromptName = None,
    tenant: Tenant = None,
    id_prefix: IdPrefix = None,
    older_than: OlderThan = None,
    database: DatabaseUrl = None,
) -> None:
    """Continue failed, cancelled or quarantined runs after their last good step. No finished step is repeated.

    Name them by id, or select them with a filter.
    """
    filters = Filters(state, prompt, tenant, id_prefix, older_than)
    filters.check(run_ids, RETRYABLE)
    with open_client(database) as client:
        _change_each(_choose(client, run_ids, RETRYABLE, filters), client.retry, "continued")


CANCELLABLE: tuple[State, ...] = ("waiting", "running", "paused")
RETRYABLE: tuple[State, ...] = ("failed", "cancelled", "quarantined")


class Filters(NamedTuple):
    """Options that select runs."""

    state: State | None
    prompt: str | None
    tenant: str | None
    prefix: str | None
    older_than: timedelta | None

    def check(self, run_ids: list[str] | None, states: tuple[State, ...]) -> None:
        """Refuse a command that names no runs, or names them twice, or selects those that it cannot change."""
        is_filtered = any(value is not None for value in self)
        if run_ids and is_filtered:
            raise BadParameter("Give either ids or filters.")
        if not run_ids and not is_filtered:
            raise BadParameter(
                "Give run ids, or select runs with --state, --prompt, --tenant, --id-prefix or --older-than."
            )
        if self.state is not None and self.state not in states:
            raise BadParameter(f"The state must be one of {', '.join(states)}.", param_hint="--state")


def _choose(client: "Runs", run_ids: list[str] | None, states: tuple[State, ...], filters: Filters) -> list[str]:
    """Return the ids on the command line, or those of the runs in `states` that the filters select."""
    if run_ids:
        return run_ids
    wanted = states if filters.state is None else (filters.state,)
    _, prompt, tenant, prefix, older_than = filters
    listed = [client.list(one, prompt=prompt, tenant=tenant, prefix=prefix, older_than=older_than) for one in wanted]
    return [run.id for page in listed for run in page if run.state in wanted]


def _change_each(run_ids: list[str], change: Callable[[str], None], done: str) -> None:
    """Change runs one by one. Report each that cannot be changed, and continue with the next."""
    failed = 0
    for run_id in run_ids:
        try:
            change(run_id)
        except PromptyError as error:
            failed += 1
            print_error(error, err)
    if len(run_ids) != 1:
        out.print(f"{len(run_ids) - failed} runs {done}")
    if failed:
        raise Exit(1)


@runs.command()
def prune(
    run_ids: Annotated[list[str] | None, Argument(help="Delete only these runs, regardless of their age.")] = None,
    older_than: Annotated[
        timedelta | None, make_age_option("Delete runs that ended at least AGE ago. The default is 30d.")
    ] = None,
    state: Annotated[State | None, Option(help="Delete only runs in this state.")] = None,
    prompt: PromptName = None,
    tenant: Tenant = None,
    database: DatabaseUrl = None,
) -> None:
    """Delete runs that have ended. Paused runs stay. Workers don't have to stop."""
    if run_ids and any(value is not None for value in (older_than, state, prompt, tenant)):
        raise BadParameter("Give either ids or filters.")
    with open_client(database) as client:
        if run_ids:
            _change_each(run_ids, client.delete, "deleted")
            return
        age = timedelta(days=30) if older_than is None else older_than
        out.print(f"{client.prune(age, state=state, prompt=prompt, tenant=tenant)} runs deleted")


@runs.command("migrate")
def list_versions(database: DatabaseUrl = None) -> None:
    """List unfinished runs that need a worker of another release, by version.

    Exits with 1 if there are any.
    """
    with open_client(database) as client:
        counts = count_other_versions(client)
    for version, count in counts.items():
        out.print(
            visible(f"{version}: {count} unfinished. Start a worker of its release until they end, or cancel them.")
        )
    if counts:
        raise Exit(1)
