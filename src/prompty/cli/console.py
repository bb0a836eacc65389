"""What is written to a terminal. Text from files and inputs may hold anything, so nothing in it controls the screen."""

from typing import NoReturn

from rich.console import Console
from rich.text import Text
from typer import Exit

from prompty.errors import Problem, PromptyError
from prompty.safety.visible import visible

out = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
err = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, stderr=True)

_STYLES = {"error": "bold red", "warning": "yellow"}


def show_json(value: object) -> None:
    """JSON for tools and for people. What could control a terminal is written as its escape: JSON reads it back."""
    out.print_json(data=value, ensure_ascii=True, highlight=out.is_terminal)


def show_problem(problem: Problem) -> None:
    """A problem as `place: severity: message`, the line it is in, and what to write instead."""
    subject = f"{problem.key}: " if problem.key else ""
    out.print(
        Text.assemble(
            (visible(problem.place), "bold"),
            ": ",
            (problem.severity, _STYLES[problem.severity]),
            f": {visible(subject + problem.message)}",
        )
    )
    if problem.text.strip():
        out.print(Text(f"    {visible(problem.text.strip())}", "dim"))
    out.print(Text(f"    {visible(problem.fix)}", "green"))


def fail(error: PromptyError | str) -> NoReturn:
    """End the command with a message."""
    err.print(Text.assemble(("error", "bold red"), f": {visible(str(error))}"))
    raise Exit(1)
