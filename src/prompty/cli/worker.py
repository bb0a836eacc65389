"""`prompty worker`: execute submitted runs."""

import signal
import threading
from typing import Annotated

from typer import BadParameter, Option

from prompty.cli.console import fail, out
from prompty.cli.durable import DatabaseUrl, get_database_url
from prompty.cli.functions import ToolFiles, load_functions
from prompty.cli.options import TraceTo, start_tracing
from prompty.durable.engine import Limits
from prompty.durable.runtime import DurableRuntime
from prompty.errors import NameInUse, PromptyError
from prompty.safety.redaction import mask_secrets
from prompty.safety.visible import visible


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
    try:
        start_tracing(trace)
        runtime = DurableRuntime(url, name=name, limits=limits, tools=load_functions(tools))
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
