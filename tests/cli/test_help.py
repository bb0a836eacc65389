"""The help of every command at 80 columns, compared with `tests/cli/help/`. Write the files anew, and look at the
difference, with `python -m tests.cli.test_help`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from prompty.cli import app as command_line
from prompty.cli.commands import COMMANDS, GROUPS

FOLDER = Path(__file__).parent / "help"
COLUMNS = 80


def list_commands() -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the command and the parent's context of the command line and everything in it."""
    group: Any = get_command(command_line.app)
    with group.make_context("prompty", ["check"], resilient_parsing=True, terminal_width=COLUMNS) as top:
        yield "prompty", group, None
        for name in COMMANDS:
            command = group.get_command(top, name)
            yield f"prompty {name}", command, top
            context = command.make_context(name, [], parent=top, resilient_parsing=True)
            for inner, subcommand in getattr(command, "commands", {}).items():
                yield f"prompty {name} {inner}", subcommand, context


def read_help(command: Any, name: str, parent: Any) -> str:
    """Return what `--help` prints, in a terminal of 80 columns."""
    name = name.rpartition(" ")[2]
    settings = {"terminal_width": COLUMNS, "resilient_parsing": True}
    with command.make_context(name, [], parent=parent, **settings) as context:
        return str(command.get_help(context)).rstrip() + "\n"


def get_path(name: str) -> Path:
    return FOLDER / f"{name.replace(' ', '-')}.txt"


HELP = {name: read_help(command, name, parent) for name, command, parent in list_commands()}


@pytest.mark.parametrize("name", HELP)
def test_the_help_is_what_a_reader_has_looked_at(name: str) -> None:
    assert HELP[name] == get_path(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", HELP)
def test_the_help_fits_80_columns_and_is_not_cut(name: str) -> None:
    lines = HELP[name].splitlines()
    assert [line for line in lines if len(line) > COLUMNS] == []
    assert [line for line in lines if line.endswith("...") and not line.startswith("Usage: ")] == []


def test_each_snapshot_belongs_to_a_command() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {get_path(name).name for name in HELP}


def test_every_command_has_one_whole_line_in_its_group() -> None:
    shown = HELP["prompty"].split("\n\n")
    for title, group in GROUPS.items():
        section = next(part for part in shown if part.startswith(f"{title}:\n"))
        assert [line.split()[0] for line in section.splitlines()[1:]] == [*group]
        assert [name for name, command in group.items() if f"  {command.summary}" not in section] == []


def test_an_option_has_one_name_and_one_kind_of_value_in_all_commands() -> None:
    values, names = dict[str, set[str]](), dict[str, set[str]]()
    for _, command, _ in list_commands():
        for param in command.params:
            if param.param_type_name == "option":
                long = max(param.opts, key=len)
                values.setdefault(long, set()).add("" if param.is_flag else str(param.metavar))
                for short in set(param.opts) - {long}:
                    names.setdefault(short, set()).add(long)
    assert {name: found for name, found in values.items() if len(found) > 1} == {}
    assert {name: found for name, found in names.items() if len(found) > 1} == {}
    assert values.keys() >= {"--max-cost", "--concurrency"}
    assert values.keys().isdisjoint({"--budget", "--jobs", "--max-concurrency"})


if __name__ == "__main__":
    for file in FOLDER.glob("*.txt"):
        file.unlink()
    for name, text in HELP.items():
        get_path(name).write_text(text, encoding="utf-8")
