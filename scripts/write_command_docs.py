"""Write the pages of the commands (`docs/reference/commands/`) and their list in `docs/reference/command-line.md`, from
the help that the commands print themselves. What stands below the mark of a page is written by hand, and stays."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from prompty.cli.app import app
from prompty.cli.commands import COMMANDS, GROUPS

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
FOLDER = REFERENCE / "commands"
OVERVIEW = REFERENCE / "command-line.md"
MARK = "<!-- Written by hand from here on. -->"
TABLE = re.compile(
    r"(?<=<!-- Written by `make docs`. -->\n\n).*?(?=\n\n<!-- Written by hand from here on. -->)", re.DOTALL
)

# Options in the text of a help: `--json`, `-i`.
_OPTION = re.compile(r"(?<![\w`-])(--?[a-z][a-z-]*)")


def list_commands() -> dict[str, Any]:
    """Return the commands by name, in the order of the help."""
    group: Any = get_command(app)
    return {name: group.get_command(None, name) for name in COMMANDS}


def list_subcommands(command: Any) -> dict[str, Any]:
    return dict(getattr(command, "commands", {}))


def build_page(name: str, command: Any) -> str:
    """Return the generated part of the page of a command."""
    lines = [f"# prompty {name}", "", *describe(f"prompty {name}", command)]
    for inner, subcommand in list_subcommands(command).items():
        lines += ["", f"## prompty {name} {inner}", "", *describe(f"prompty {name} {inner}", subcommand)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def describe(name: str, command: Any) -> Iterator[str]:
    """Yield the help of one command: what it does, how to call it, its arguments and its options."""
    first, *others = split_paragraphs(command.help)
    yield from [mark_options(first), "", "```text", build_usage(name, command), "```"]
    for paragraph in others:
        yield from ["", mark_options(paragraph)]
    shown = [param for param in command.params if not param.hidden]
    arguments = [param for param in shown if param.param_type_name == "argument"]
    options = [param for param in shown if param.param_type_name == "option"]
    if arguments:
        yield from ["", "| argument | meaning |", "|---|---|", *map(build_argument, arguments)]
    if options:
        yield from ["", "| option | effect |", "|---|---|", *map(build_option, options)]
    if list_subcommands(command):
        yield from ["", "| command | task |", "|---|---|"]
        for inner, subcommand in list_subcommands(command).items():
            task = mark_options(split_paragraphs(subcommand.help)[0])
            yield f"| [`{inner}`](#{name.replace(' ', '-')}-{inner}) | {task} |"


def split_paragraphs(text: str) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def build_usage(name: str, command: Any) -> str:
    inner = ["COMMAND"] if list_subcommands(command) else []
    arguments = [param for param in command.params if param.param_type_name == "argument" and not param.hidden]
    pieces = [piece for param in arguments for piece in param.get_usage_pieces(None)]
    options = ["[OPTIONS]"] if any(param.param_type_name == "option" for param in command.params) else []
    return " ".join([name, *inner, *options, *pieces])


def build_argument(param: Any) -> str:
    default = "" if param.default is None or param.required else f" Default: `{param.default}`."
    return f"| `{param.metavar}` | {mark_options(param.help or '')}{default} |"


def build_option(param: Any) -> str:
    names = sorted([*param.opts, *param.secondary_opts], key=len)
    value = "" if param.is_flag else f" {param.metavar}"
    shown = ", ".join(f"`{each}`" for each in names[:-1]) + (", " if names[:-1] else "") + f"`{names[-1]}{value}`"
    notes = [mark_options(param.help or "")]
    if param.required:
        notes.append("Required.")
    if param.multiple:
        notes.append("You can repeat it.")
    if param.default is not None and not param.is_flag and not param.multiple:
        notes.append(
            f"Default: `{param.default:g}`." if isinstance(param.default, float) else f"Default: `{param.default}`."
        )
    if param.envvar:
        notes.append(f"Also read from `{param.envvar}`.")
    return f"| {shown} | {' '.join(notes)} |"


def mark_options(text: str) -> str:
    """Return text of a help with its options as code, and nothing that Markdown would read as its own."""
    return _OPTION.sub(r"`\1`", text.replace("|", "\\|").replace("<", "&lt;"))


def build_table(commands: dict[str, Any]) -> str:
    """Return the list of the commands for the page about the command line."""
    tasks = {name: mark_options(split_paragraphs(command.help)[0]) for name, command in commands.items()}
    rows = [
        f"| {title if index == 0 else ''} | [`{name}`](commands/{name}.md) | {tasks[name]} |"
        for title, group in GROUPS.items()
        for index, name in enumerate(group)
    ]
    return "\n".join(["| group | command | task |", "|---|---|---|", *rows])


def read_notes(path: Path) -> str:
    """Return what is written by hand on a page, with its mark, or nothing."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return text[text.index(MARK) :] if MARK in text else ""


def pages() -> dict[Path, str]:
    """Return the text of each page."""
    commands = list_commands()
    overview = OVERVIEW.read_text(encoding="utf-8")
    written = {OVERVIEW: TABLE.sub(lambda _: build_table(commands), overview)}
    for name, command in commands.items():
        path = FOLDER / f"{name}.md"
        written[path] = "\n".join(filter(None, [build_page(name, command), read_notes(path)]))
    return written


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
