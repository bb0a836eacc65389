"""The commands, put together."""

from typing import Annotated

from typer import Exit, Option, Typer

from prompty.cli.batch import batch
from prompty.cli.chat import chat
from prompty.cli.check import check
from prompty.cli.console import out
from prompty.cli.explain import explain
from prompty.cli.render import render
from prompty.cli.run import run
from prompty.cli.runs import runs
from prompty.cli.submit import submit
from prompty.cli.tools import tools
from prompty.cli.trace import trace_app
from prompty.cli.worker import worker
from prompty.version import __version__

app = Typer(
    name="prompty",
    help="Prompts and agents kept as text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # locals may hold secrets
)
app.command()(check)
app.command()(render)
app.command()(run)
app.command()(explain)
app.command()(tools)
app.command()(chat)
app.command()(batch)
app.add_typer(trace_app)
app.command()(worker)
app.command()(submit)
app.add_typer(runs, name="runs")


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"prompty {__version__}")
        raise Exit


@app.callback()
def prompty(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Prompts and agents kept as text."""
