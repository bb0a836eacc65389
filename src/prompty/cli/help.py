"""Command help in the usual notation: `prompty check [OPTIONS] FILES...` and `--limit NUMBER`.

By default typer shows Python types (`{files}...`, `<list[Path]>`, `<bool>`).
"""

from functools import partial
from typing import Any


def name_values(command: Any) -> Any:
    """Set the metavars of a command and its subcommands. Return the command."""
    for param in command.params:
        if param.param_type_name == "argument":
            _name_argument(param)
        elif param.metavar is None and not param.is_flag:
            param.metavar = _get_name(param)
    for inner in getattr(command, "commands", {}).values():
        name_values(inner)
    return command


def _name_argument(param: Any) -> None:
    param.metavar = param.metavar or _get_name(param)  # also shown in errors
    name = param.metavar + ("..." if param.nargs != 1 else "")
    param.get_usage_pieces = partial(_answer, [name if param.required else f"[{name}]"])
    param.get_help_record = partial(_answer, None if param.hidden else (name, param.help or ""))


def _answer(value: Any, _context: Any) -> Any:
    return value


def _get_name(param: Any) -> str:
    return str(param.name).upper()
