"""`prompty worker`, `submit` and `db`: execute and queue durable runs, and prepare their database."""

import os
import platform
import random
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from logging import CRITICAL, getLogger
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.text import Text
from typer import BadParameter, Option, Typer

from prompty.cli import options as shared
from prompty.cli.console import err, out
from prompty.cli.functions import ToolFiles
from prompty.cli.inputs import load_prompt_file, read_pairs
from prompty.cli.options import get_state_path, start_tracing
from prompty.cli.provider_tools import ProviderTools, decide_provider_tools
from prompty.safety.redaction import mask_secrets, remember_secrets
from prompty.safety.visible import visible
from prompty.tools.function import load_functions

if TYPE_CHECKING:  # DBOS takes most of the time of a command, so what needs none starts without it
    from prompty.durable import Runs, Worker

getLogger("dbos").setLevel(CRITICAL)  # what it says of a database that is away is in our errors, too
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])", re.ASCII)


def parse_duration(text: str | timedelta) -> timedelta:
    """Parse a number with a unit. An option's default is passed as a duration."""
    if isinstance(text, timedelta):
        return text
    if (match := _DURATION.fullmatch(text)) is None:
        raise BadParameter(f"{text!r} is not a duration. Examples: 90s, 15m, 12h, 7d.")
    number, unit = match.groups()
    return timedelta(seconds=float(number) * _SECONDS[unit])


def format_age(duration: timedelta) -> str:
    """Format a duration in its largest whole unit up to days."""
    seconds = max(int(duration.total_seconds()), 0)
    unit = next((unit for unit in "dhm" if seconds >= _SECONDS[unit]), "s")
    return f"{seconds // _SECONDS[unit]}{unit}"


def make_age_option(help: str) -> Any:
    """Return an option that takes a duration such as 12h."""
    return Option(parser=parse_duration, metavar="AGE", help=help)


DatabaseUrl = Annotated[
    str | None,
    Option(
        "--database",
        envvar="PROMPTY_DATABASE",
        help="The database: sqlite:///runs.db, or postgresql://… for several machines.",
    ),
]

SecretNames = Annotated[
    list[str] | None,
    Option(
        "--secret",
        metavar="NAME=VARIABLE",
        help="Know the value of this environment variable as the secret NAME. Runs store the name alone.",
    ),
]

PRUNE_SECONDS = 600.0
SHORTEST_LEASE = 1.0


def worker(
    tools: ToolFiles = None,
    name: Annotated[str | None, Option(help="A label for `prompty runs list`. Defaults to the host name.")] = None,
    database: DatabaseUrl = None,
    concurrency: Annotated[
        int | None,
        Option("--concurrency", "-j", metavar="N", min=1, help="Execute at most N runs at once in this worker."),
    ] = None,
    total: Annotated[
        int | None, Option(metavar="N", min=1, help="Execute at most N runs at once in all workers.")
    ] = None,
    rate: Annotated[str | None, Option(metavar="N/SECONDS", help="Start at most N runs per SECONDS.")] = None,
    per_tenant: Annotated[
        int | None, Option(metavar="N", min=1, help="Execute at most N runs of each tenant at once, in all workers.")
    ] = None,
    lease: Annotated[
        float,
        Option(
            min=SHORTEST_LEASE,
            help="Seconds without a heartbeat after which other workers take over this worker's runs.",
        ),
    ] = 10.0,
    drain: Annotated[float, Option(min=0, help="Seconds to let runs finish when the worker is stopped.")] = 30.0,
    probes: Annotated[
        str | None,
        Option(metavar="[HOST:]PORT", help="Serve /livez, /readyz and /metrics, on localhost unless HOST is given."),
    ] = None,
    keep: Annotated[
        timedelta | None, make_age_option("Delete runs AGE after they ended, for example 12h or 7d.")
    ] = None,
    notify: Annotated[
        str | None,
        Option(
            metavar="URL",
            help="Send a POST to URL when a run pauses, fails or is quarantined. PROMPTY_WEBHOOK_SECRET signs it.",
        ),
    ] = None,
    secret: SecretNames = None,
    log_format: Annotated[
        Literal["text", "json"] | None, Option(help="Write a log to standard error, as text or as JSON lines.")
    ] = None,
    trace: shared.TraceTo = None,
) -> None:
    """Execute submitted runs until SIGTERM or Ctrl-C. Interrupted runs continue on another worker."""
    limit = _parse_rate(rate)
    if concurrency is not None and total is not None and concurrency > total:
        raise BadParameter("--concurrency, which is for this worker, must not be larger than --total, for all workers.")
    secrets = read_secrets(secret)

    from prompty.durable import Limits, Webhook, Worker  # DBOS is slow to import
    from prompty.durable.logs import write_logs  # the same
    from prompty.durable.probes import parse_address, report_metrics, serve_probes  # the same

    address = None if probes is None else parse_address(probes)
    webhook = None if notify is None else Webhook(notify, os.environ.get("PROMPTY_WEBHOOK_SECRET") or None)
    url, label = get_database_url(database), name or platform.node() or "worker"
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    start_tracing(trace)
    if log_format is not None:
        write_logs(log_format, label)
    limits = Limits(worker_concurrency=concurrency, concurrency=total, rate=limit, tenant_concurrency=per_tenant)
    functions = load_functions(tools or ())
    running = Worker(url, name=label, lease=lease, limits=limits, tools=functions, secrets=secrets, notify=webhook)
    report_metrics(running)
    server = None if address is None else serve_probes(running, address)
    running.open()
    _report_versions(running.runs)
    if keep is not None:
        threading.Thread(target=_prune_regularly, args=(running, keep, stopping), daemon=True).start()
    out.print(visible(f"{label}: working on {mask_secrets(url)}"))
    stopping.wait()
    out.print(visible(f"{label}: stopping"))
    running.close(drain)
    if server is not None:
        server.close()


def _prune_regularly(running: "Worker", keep: timedelta, stopping: threading.Event) -> None:
    """Delete old runs until the worker stops, at random intervals so that workers don't all do it at once."""
    while not stopping.is_set():
        try:
            running.runs.prune(keep)
        except Exception as error:  # the worker continues, and tries again later
            if not stopping.is_set():
                err.print(Text(visible(mask_secrets(f"old runs could not be deleted: {error}")), "yellow"))
        stopping.wait(PRUNE_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311  not for secrets


def _report_versions(runs: "Runs") -> None:
    """Report the runs that wait for a worker of another version: nothing else would."""
    for version, count in count_other_versions(runs).items():
        left = "1 run" if count == 1 else f"{count} runs"
        err.print(Text(visible(f"skipped {left} of {version}. See `prompty runs migrate`."), "yellow"))


def count_other_versions(runs: "Runs") -> dict[str, int]:
    """Return how many unfinished runs wait for workers of other versions, by version, and a thousand at most."""
    from prompty.durable.runs import VERSION, WORKFLOW, get_run_id  # DBOS is slow to import

    counts = {}
    for info in runs.client.list_application_versions():
        version = info["version_name"]
        if version != VERSION:
            unfinished = ["ENQUEUED", "DELAYED", "PENDING"]
            wanted: Any = {"app_version": version, "status": unfinished, "name": WORKFLOW, "limit": 1000}
            found = runs.client.list_workflows(**wanted, load_input=False, load_output=False)
            counts[version] = len({get_run_id(one.workflow_id) for one in found})
    return {version: count for version, count in counts.items() if count}


def _parse_rate(text: str | None) -> tuple[int, float] | None:
    if text is None:
        return None
    runs, _, seconds = text.partition("/")
    try:
        rate = int(runs), float(seconds)
    except ValueError:
        rate = 0, 0.0
    if rate[0] < 1 or not 0 < rate[1] < float("inf"):
        raise BadParameter(f"{text!r} is not a rate. Write for example 100/60.", param_hint="--rate")
    return rate


def read_secrets(pairs: list[str] | None) -> dict[str, str]:
    """Return the values of named secrets. They are in the environment, because other users can read command lines."""
    secrets = {}
    for pair in pairs or []:
        name, equals, variable = pair.partition("=")
        if not name or not equals or not variable:
            raise BadParameter(f"{pair!r} names no variable. Write NAME=VARIABLE.", param_hint="--secret")
        if not (value := os.environ.get(variable)):
            raise BadParameter(f"The environment variable {variable} is not set.", param_hint="--secret")
        secrets[name] = value
    remember_secrets(secrets.values())
    return secrets


def submit(
    file: shared.PromptFile,
    variant: shared.Variant = None,
    inputs: shared.InputPairs = None,
    database: DatabaseUrl = None,
    run_id: Annotated[
        str | None, Option("--id", help="The id of the run. If a run with this id exists, none is started.")
    ] = None,
    priority: Annotated[
        int | None, Option(min=1, help="Lower numbers run first. Runs without a priority come before all.")
    ] = None,
    tenant: Annotated[
        str | None, Option(metavar="NAME", help="Queue the run for this tenant. See `prompty worker --per-tenant`.")
    ] = None,
    max_waiting: Annotated[
        int | None, Option(metavar="N", min=1, help="Fail if N runs already wait for a worker.")
    ] = None,
    deadline: Annotated[
        timedelta | None, make_age_option("Fail the run if it has not ended after AGE, for example 15m or 2h.")
    ] = None,
    pause_timeout: Annotated[
        timedelta | None, make_age_option("Deny calls that have no answer after AGE, for example 12h or 7d.")
    ] = None,
    tool: Annotated[
        list[str] | None, Option(help="Offer a tool that the workers have, in addition to those in the file.")
    ] = None,
    secret: SecretNames = None,
    approve: shared.Approve = False,
    model: shared.ModelId = None,
    provider: shared.ProviderKey = None,
    api: shared.ApiType = None,
    lenient_outputs: shared.LenientOutputs = False,
    provider_tools: ProviderTools = None,
    roots: shared.Roots = None,
    allow_env: shared.AllowEnv = None,
) -> None:
    """Queue a run of FILE for the workers, and print its id."""
    agent = load_prompt_file(file, variant, model, provider=provider, api=api, roots=roots)
    values = read_pairs(agent, inputs or [])
    with open_client(database, secrets=read_secrets(secret), max_waiting=max_waiting) as runs:
        id = runs.submit(
            agent,
            values,
            run_id=run_id,
            priority=priority,
            tenant=tenant,
            deadline=deadline,
            pause_timeout=pause_timeout,
            tools=tool,
            approval="always" if approve else None,
            outputs_mode=shared.get_outputs_mode(lenient=lenient_outputs),
            provider_tools=decide_provider_tools(agent, file, provider_tools),
        )
        out.print(visible(id))


@contextmanager
def open_client(database: str | None, **options: Any) -> Iterator["Runs"]:
    """Yield the runs of a database."""
    url = get_database_url(database)
    from prompty.durable import Runs  # DBOS is slow to import

    with Runs(url, **options) as runs:
        yield runs


def get_database_url(url: str | None) -> str:
    """Return the URL. Defaults to a SQLite file in the user's state directory."""
    return url or f"sqlite:///{get_state_path('runs.db')}"


db: Typer = Typer(name="db", help="Create and update the tables of durable runs.", no_args_is_help=True)


@db.callback()
def describe_db() -> None:
    """Create and update the tables of durable runs."""


@db.command("migrate")
def migrate_tables(
    database: DatabaseUrl = None,
    role: Annotated[str | None, Option(metavar="ROLE", help="Grant this PostgreSQL role access to the tables.")] = None,
) -> None:
    """Create or update the tables. Workers do this themselves if their role has the permission."""
    url = get_database_url(database)
    from prompty.durable.database import migrate  # DBOS is slow to import

    migrate(url, role)
    out.print(visible(f"the tables of {mask_secrets(url)} are up to date"))
