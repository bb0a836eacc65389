"""`prompty check`: list errors and warnings for prompts and their test files."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from prompty.cases.checking import check_in_project
from prompty.cases.file_names import SUFFIXES, find_test_file
from prompty.cli.console import out, print_json, print_problem
from prompty.cli.list import print_prompts
from prompty.cli.options import Roots
from prompty.cli.search import find_files, find_prompts
from prompty.errors import Problem
from prompty.pipeline.variants import find_base


def check_prompts(
    files: Annotated[list[Path], Argument(help="Prompts and test files, or folders to search for them.")],
    variant: Annotated[
        str | None, Option("--variant", metavar="NAME", help="Check only this variant of FILES instead of all.")
    ] = None,
    portable: Annotated[
        bool, Option("--portable", help="Also warn about anything that other runtimes cannot read.")
    ] = False,
    roots: Roots = None,
    strict: Annotated[bool, Option("--strict", help="Also exit with 1 on warnings.")] = False,
    listing: Annotated[
        bool, Option("--list", help="Print instead the prompts, with their variants, inputs and models.")
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print the problems as JSON, for tools.")] = False,
) -> None:
    """List the errors and warnings in FILES without running them. A prompt is checked with its test file, and a folder
    with all of its test files.

    The exit code is 1 if there is an error, and with --strict if there is a warning.
    """
    if listing:
        print_prompts(files, roots or (), as_json=as_json)
        return
    named = [file for file in files if file.name.endswith(SUFFIXES)]
    prompts = list(find_prompts([file for file in files if file not in named]))
    in_folders = [file for path in files if path.is_dir() for file in find_files(path, *SUFFIXES)]
    beside = filter(None, map(find_test_file, prompts))
    tests = {file.resolve(): file for file in (*in_folders, *beside, *named)}.values()  # as they are written, if named
    problems: list[Problem] = []
    for file in prompts:
        if variant is None and find_base(file) in prompts:
            continue  # a prompt is checked with its variants
        problems += check_in_project(file, variant=variant, portable=portable, roots=roots or ())
    for file in tests:
        from prompty.cases.reading import check_suite  # most prompts have no test file

        problems += check_suite(file)
    if as_json:
        print_json([_describe(problem) for problem in problems])
    else:
        for problem in problems:
            print_problem(problem, out)
        out.print(_summarize(len(prompts) + len(tests), problems))
    if any(problem.severity == "error" or (strict and problem.severity == "warning") for problem in problems):
        raise Exit(1)


def _describe(problem: Problem) -> dict[str, Any]:
    return {**asdict(problem), **({"url": problem.url} if problem.url else {})}


def _summarize(files: int, problems: Sequence[Problem]) -> str:
    severities = [problem.severity for problem in problems]
    errors, warnings = severities.count("error"), severities.count("warning")
    if not errors and not warnings:
        return f"{_count(files, 'file')}: no problems"
    return f"{_count(files, 'file')}: {_count(errors, 'error')}, {_count(warnings, 'warning')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
