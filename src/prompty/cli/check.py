"""`prompty check`: list errors and warnings for prompts and their test files."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from prompty.analysis.check import check as check_file
from prompty.cases.project_file import find_project
from prompty.cases.reading import SUFFIXES, check_suite, find_test_file
from prompty.cli.console import fail, out, print_json, print_problem
from prompty.cli.options import Roots
from prompty.cli.search import find_files
from prompty.errors import Problem, PromptyError, PromptyWarning
from prompty.loop.policy import describe_policy
from prompty.pipeline.dotenv import load_env
from prompty.pipeline.load import load
from prompty.pipeline.packages import locate_prompt
from prompty.pipeline.variants import find_base
from prompty.safety.visible import visible


def check_prompts(
    files: Annotated[list[Path], Argument(help="Prompts and test files, or folders to search for them.")],
    variant: Annotated[
        str | None, Option("--variant", metavar="NAME", help="Check only this variant of FILES instead of all.")
    ] = None,
    portable: Annotated[
        bool, Option("--portable", help="Also warn about anything that other runtimes cannot read.")
    ] = False,
    cache: Annotated[
        bool, Option("--cache", help="Also warn if moving lines would let the provider cache the prompt.")
    ] = False,
    roots: Roots = None,
    strict: Annotated[bool, Option("--strict", help="Also exit with 1 on warnings.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print the problems as JSON, for tools.")] = False,
) -> None:
    """List the errors and warnings in FILES without running them. A prompt's test file is checked with it.

    The exit code is 1 if there is an error, and with --strict if there is a warning.
    """
    named = [file for file in files if file.name.endswith(SUFFIXES)]
    prompts = list(find_prompts([file for file in files if file not in named]))
    tests = dict.fromkeys([*named, *filter(None, map(find_test_file, prompts))])
    problems: list[Problem] = []
    for file in prompts:
        if variant is None and find_base(file) in prompts:
            continue  # a prompt is checked with its variants
        load_env(prompt=file)
        project = find_project(file)
        allowed = (*(roots or ()), *project.roots)
        found = check_file(file, variant=variant, portable=portable, cache=cache, allowed_roots=allowed)
        problems += [problem for problem in found if not (project.model and problem.code == "missing-model")]
    for file in tests:
        problems += check_suite(file)
    if as_json:
        print_json([asdict(problem) for problem in problems])
    else:
        for problem in problems:
            print_problem(problem, out)
        for file in prompts:
            _print_policies(file, roots or ())
        out.print(_summarize(len(prompts) + len(tests), problems))
    if any(problem.severity == "error" or (strict and problem.severity == "warning") for problem in problems):
        raise Exit(1)


def find_prompts(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the given files, and the prompts in the given folders."""
    for path in paths:
        path = Path(locate_prompt(path))
        found = find_files(path, ".prompty") if path.is_dir() else [path]
        if not found:
            fail(f"the folder '{path}' has no .prompty files\n    Pass a .prompty file, or a folder with such files.")
        yield from found


def _print_policies(file: Path, roots: Sequence[Path]) -> None:
    """Print each tool's approval policy, as far as the file decides it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PromptyWarning)
            tools = load(file, variant="", allowed_roots=(*roots, *find_project(file).roots)).tools
    except PromptyError:
        return  # its problems are printed above
    for tool in tools:
        out.print(visible(f"{file.name}: {tool.name}: {describe_policy(tool.approval_mode)} before it runs"))


def _summarize(files: int, problems: Sequence[Problem]) -> str:
    severities = [problem.severity for problem in problems]
    errors, warnings = severities.count("error"), severities.count("warning")
    if not errors and not warnings:
        return f"{_count(files, 'file')}: no problems"
    return f"{_count(files, 'file')}: {_count(errors, 'error')}, {_count(warnings, 'warning')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
