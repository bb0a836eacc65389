"""`prompty worker`: a process that runs what was submitted, under a name that it keeps."""

import signal
import threading
from typing import Annotated

from typer import BadParameter, Option

from prompty.cli.console import fail, out
from prompty.cli.durable import DatabaseUrl, database_url
from prompty.cli.functions import functions_from
from prompty.cli.options import TraceTo, start_tracing
from prompty.durable.engine import Limits
from prompty.durable.runtime import DurableRuntime
from prompty.errors import NameInUse, PromptyError
from prompty.safety.redaction import mask_secrets
from prompty.safety.visible import visible


def worker(
    name: Annotated[str, Option(help="Its name: the same whenever it starts again, and no other worker's.")],
    tools: Annotated[
        list[str] | None, Option("--tools", "-t", help="A Python file or module with functions marked @tool.")
    ] = None,
    database: DatabaseUrl = None,
    concurrency: Annotated[int | None, Option(help="The most runs that this worker has at once.")] = None,
    total: Annotated[int | None, Option(help="The most runs that all workers have at once.")] = None,
    rate: Annotated[
        str | None, Option(metavar="N/SECONDS", help="The most runs that begin in so many seconds.")
    ] = None,
    adopt: Annotated[
        list[str] | None, Option(metavar="NAME", help="Take over the runs of a worker that will not come back.")
    ] = None,
    force: Annotated[bool, Option("--force", help="Adopt also from a worker that hangs, but is still there.")] = False,
    drain: Annotated[float, Option(help="Seconds that runs have to end when the worker is told to stop.")] = 30.0,
    trace: TraceTo = None,
) -> None:
    """Run what was submitted until SIGTERM or Ctrl-C. Runs that are cut off go on when a worker of this name starts."""
    limits = Limits(worker_concurrency=concurrency, concurrency=total, rate=_rate(rate))
    url = database_url(database)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        start_tracing(trace)
        runtime = DurableRuntime(url, name=name, limits=limits, tools=functions_from(tools))
        runtime.open()
    except PromptyError as error:
        fail(error)
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
        fail(f"the worker '{lost}' is still there\n    Stop it; or, if it hangs and cannot be stopped, add --force.")


def _rate(given: str | None) -> tuple[int, float] | None:
    if given is None:
        return None
    runs, _, seconds = given.partition("/")
    try:
        return int(runs), float(seconds)
    except ValueError:
        raise BadParameter(f"{given!r} is not a rate; write for example 100/60") from None
