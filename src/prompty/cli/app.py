"""The `prompty` command and its subcommands."""

from importlib import import_module
from typing import Annotated, Any

from typer import Exit, Option, Typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from prompty.cli.console import fail, out
from prompty.errors import PromptyError
from prompty.version import __version__

COMMANDS = {
    "check": "check:check",
    "render": "render:render",
    "run": "run:run",
    "explain": "explain:explain",
    "tools": "tools:tools",
    "providers": "providers:providers",
    "models": "providers:models",
    "chat": "chat:chat",
    "batch": "batch:batch",
    "worker": "durable:worker",
    "submit": "durable:submit",
    "trace": "trace:trace_app",
    "runs": "durable:runs",
}


class LazyGroup(TyperGroup):
    """Group that imports a subcommand when it is used: `prompty check` starts without the code of durable runs.

    A `PromptyError` ends any of them with its message and the exit code 1.
    """

    commands: dict[str, Any]  # click's classes: some releases of typer use the package, others a copy of their own

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update(dict.fromkeys(COMMANDS))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load_command(cmd_name)
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PromptyError as error:
            fail(error)


def _load_command(name: str) -> Any:
    module, _, attribute = COMMANDS[name].partition(":")
    command = getattr(import_module(f"prompty.cli.{module}"), attribute)
    if isinstance(command, Typer):
        return get_group(command)
    single = Typer(add_completion=False)
    single.command(name)(command)
    return get_command(single)


app: Typer = Typer(
    name="prompty",
    cls=LazyGroup,
    help="Prompts and agents kept as text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # locals may hold secrets
)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"prompty {__version__}")
        raise Exit


@app.callback()
def prompty(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Prompts and agents kept as text."""
