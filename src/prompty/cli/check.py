"""`prompty check`: what is wrong with a file, and what is probably not meant."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from prompty.cli.console import out, show_problem
from prompty.cli.inputs import load_dotenv
from prompty.errors import Problem
from prompty.pipeline.check import check as check_file


def check(
    files: Annotated[list[Path], Argument(help="Files, or folders to search for .prompty files.")],
    as_json: Annotated[bool, Option("--json", help="Print the problems as JSON, for tools.")] = False,
) -> None:
    """List the problems and warnings of FILES without running them; exit with 1 if there is an error."""
    found = list(_prompts(files))
    problems = [problem for file in found for problem in _check(file)]
    if as_json:
        out.print_json(json.dumps([asdict(problem) for problem in problems], ensure_ascii=True))
    else:
        for problem in problems:
            show_problem(problem)
        out.print(_summary(len(found), problems))
    if any(problem.severity == "error" for problem in problems):
        raise Exit(1)


def _prompts(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.prompty")) if path.is_dir() else [path]


def _check(file: Path) -> list[Problem]:
    load_dotenv(file)
    return check_file(file)


def _summary(files: int, problems: Sequence[Problem]) -> str:
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    if not problems:
        return f"{_counted(files, 'file')}: no problems"
    return f"{_counted(files, 'file')}: {_counted(errors, 'error')}, {_counted(warnings, 'warning')}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
