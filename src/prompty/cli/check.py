"""`prompty check`: what is wrong with a file, and what is probably not meant."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from prompty.analysis.check import check as check_file
from prompty.cli.console import out, show_json, show_problem
from prompty.cli.inputs import load_dotenv
from prompty.errors import Problem, PromptyError, PromptyWarning
from prompty.loop.approval import policy_in_words
from prompty.pipeline.load import load
from prompty.safety.visible import visible


def check(
    files: Annotated[list[Path], Argument(help="Files, or folders to search for .prompty files.")],
    portable: Annotated[bool, Option("--portable", help="Warn of what other runtimes do not read, too.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print the problems as JSON, for tools.")] = False,
) -> None:
    """List the problems and warnings of FILES without running them; exit with 1 if there is an error."""
    found = list(_prompts(files))
    problems = [problem for file in found for problem in _check(file, portable=portable)]
    if as_json:
        show_json([asdict(problem) for problem in problems])
    else:
        for problem in problems:
            show_problem(problem)
        for file in found:
            show_policies(file)
        out.print(_summary(len(found), problems))
    if any(problem.severity == "error" for problem in problems):
        raise Exit(1)


def _prompts(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.prompty")) if path.is_dir() else [path]


def _check(file: Path, *, portable: bool) -> list[Problem]:
    load_dotenv(file)
    return check_file(file, portable=portable)


def show_policies(file: Path) -> None:
    """Say of every tool whether a person is asked before it runs, as far as the file decides that."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PromptyWarning)
            tools = load(file).tools
    except PromptyError:
        return  # what is wrong with it stands above
    for tool in tools:
        out.print(visible(f"{file.name}: {tool.name}: {policy_in_words(tool.approval_mode)} before it runs"))


def _summary(files: int, problems: Sequence[Problem]) -> str:
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    if not problems:
        return f"{_counted(files, 'file')}: no problems"
    return f"{_counted(files, 'file')}: {_counted(errors, 'error')}, {_counted(warnings, 'warning')}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
