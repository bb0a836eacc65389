"""What is written to a terminal. Text from files and inputs may hold anything, so nothing in it controls the screen."""

import re
from typing import NoReturn

from rich.console import Console
from rich.text import Text
from typer import Exit

from prompty.errors import Problem, PromptyError

out = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
err = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, stderr=True)

# Control characters (but for newline and tab), and the marks that reorder or hide text.
_DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_STYLES = {"error": "bold red", "warning": "yellow"}


def printable(text: str) -> str:
    """Text in which every character that could control a terminal is shown as its escape."""
    return _DANGEROUS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def show_problem(problem: Problem) -> None:
    """A problem as `place: severity: message`, the line it is in, and what to write instead."""
    subject = f"{problem.key}: " if problem.key else ""
    out.print(
        Text.assemble(
            (printable(problem.place), "bold"),
            ": ",
            (problem.severity, _STYLES[problem.severity]),
            f": {printable(subject + problem.message)}",
        )
    )
    if problem.text.strip():
        out.print(Text(f"    {printable(problem.text.strip())}", "dim"))
    out.print(Text(f"    {printable(problem.fix)}", "green"))


def fail(error: PromptyError | str) -> NoReturn:
    """End the command with a message."""
    err.print(Text.assemble(("error", "bold red"), f": {printable(str(error))}"))
    raise Exit(1)
