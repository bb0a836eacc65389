"""The `prompty` command and its subcommands."""

import gc
import sys
import warnings
from types import SimpleNamespace
from typing import Annotated, Any

from typer import Exit, Option, Typer, echo
from typer.core import TyperGroup
from typer.main import get_command, get_group

from prompty.cli.commands import COMMANDS, GROUPS
from prompty.errors import PromptyError
from prompty.registry import import_object
from prompty.safety.redaction import Redactor
from prompty.version import SITE, __version__

DEBUG = "--debug"


class LazyGroup(TyperGroup):
    """Group that imports a subcommand on first use: `prompty check` starts without the code of durable runs.

    An exception ends any of them with its message and exit code 1. With `--debug`, anywhere on the line, the
    traceback follows.
    """

    commands: dict[str, Any]  # click's classes: some releases of typer use the package, others bundle a copy
    _debug = False
    _completing = False

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update(dict.fromkeys(COMMANDS))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self._completing:
            return SimpleNamespace(hidden=False, get_short_help_str=lambda: "")
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load_command(cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by group, from their static lines."""
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", command.summary) for name, command in group.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the names of commands without importing them, so that completion is fast."""
        self._completing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._completing = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        if DEBUG in args[:end]:
            self._debug = True
            args = [word for index, word in enumerate(args) if word != DEBUG or index > end]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        from prompty.cli.console import fail, print_warning  # help needs no console

        warnings.showwarning = print_warning
        try:
            return super().invoke(ctx)
        except PromptyError as error:
            fail(error, debug=self._debug)

    def main(self, *args: Any, **settings: Any) -> Any:
        with Redactor().inside():  # what a command prints shows no secret of the prompts that it loads
            try:
                return super().main(*args, **settings)
            except Exception as error:
                if settings.get("standalone_mode") is False:
                    raise
                from prompty.cli.console import print_unexpected  # as above

                print_unexpected(error, debug=self._debug)
                sys.exit(1)


def _load_command(name: str) -> Any:
    command = import_object(f"prompty.cli.{COMMANDS[name].target}")
    if not gc.isenabled():  # `main` has disabled it
        gc.freeze()  # modules live as long as the process, so the collector need not look at them
        gc.enable()
    if isinstance(command, Typer):
        command.rich_markup_mode = None
        return name_values(get_group(command))
    single = Typer(add_completion=False, rich_markup_mode=None)
    single.command(name)(command)
    return name_values(get_command(single))


app: Typer = Typer(
    name="prompty",
    cls=LazyGroup,
    no_args_is_help=True,
    epilog=f"Documentation: {SITE}" if SITE else None,
    rich_markup_mode=None,  # plain help: no boxes, and no colors for NO_COLOR to remove
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        echo(f"prompty {__version__}")
        raise Exit


@app.callback()
def prompty(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
    debug: Annotated[bool, Option(DEBUG, help="Print the traceback of an error.")] = False,
) -> None:
    """Prompts and agents kept as text.

    Exit codes: 0 for success, 1 if the command failed, 2 if the command line is wrong.
    """


def name_values(command: Any) -> Any:
    """Set the metavars of a command and its subcommands, and return the command.

    Help then has the usual notation, `prompty check [OPTIONS] FILES...` and `--limit NUMBER`. By default typer shows
    Python types (`{files}...`, `<list[Path]>`, `<bool>`).
    """
    for param in command.params:
        if param.param_type_name == "argument":
            param.metavar = param.metavar or param.name.upper()  # also shown in errors
            name = param.metavar + ("..." if param.nargs != 1 else "")
            usage = [name if param.required else f"[{name}]"]
            record = None if param.hidden else (name, param.help or "")
            param.get_usage_pieces = lambda _, usage=usage: usage
            param.get_help_record = lambda _, record=record: record
        elif param.metavar is None and not param.is_flag:
            param.metavar = param.name.upper()
    for inner in getattr(command, "commands", {}).values():
        inner.short_help = " ".join((inner.help or "").split()).partition(". ")[0].rstrip(".") + "."  # else it is cut
        name_values(inner)
    return command
