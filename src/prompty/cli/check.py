"""`prompty check`: list the mistakes and the doubtful parts of prompt files."""

import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from prompty.analysis.check import check as check_file
from prompty.cli.console import err, fail, out, print_json, print_problem
from prompty.cli.inputs import load_dotenv
from prompty.drivers.model_override import find_default_model
from prompty.errors import Problem, PromptyError, PromptyWarning
from prompty.loop.policy import describe_policy
from prompty.pipeline.load import load
from prompty.registry import DEFAULT
from prompty.safety.visible import visible


def check(
    files: Annotated[list[Path], Argument(help="Files, or folders to search for .prompty files.")],
    portable: Annotated[bool, Option("--portable", help="Also warn of what other runtimes do not read.")] = False,
    strict: Annotated[bool, Option("--strict", help="Exit with 1 on warnings, too.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print the problems as JSON, for tools.")] = False,
) -> None:
    """List the errors and warnings of FILES without running them.

    The exit code is 1 if there is an error, and with --strict if there is a warning.
    """
    prompts = list(find_prompts(files))
    problems: list[Problem] = []
    for file in prompts:
        load_dotenv(file)
        problems += check_file(file, portable=portable)
    if as_json:
        print_json([asdict(problem) for problem in problems])
    else:
        for problem in problems:
            print_problem(problem, out)
        for file in prompts:
            _print_policies(file)
        out.print(_summarize(len(prompts), problems))
    if any(problem.severity == "error" or strict for problem in problems):
        raise Exit(1)


# Problems of the model that the file names. Those of another one, from the command line, are not in the file.
_MODEL_PROBLEMS = frozenset({"missing-model", "unknown-provider", "unknown-api-type", "wrong-connection-kind"})


def report_problems(found: Sequence[Problem], *, overridden: bool) -> None:
    """Print the problems of a prompt that is about to run, and exit with 1 if it cannot."""
    settled: Collection[str] = ()
    if overridden:
        settled = _MODEL_PROBLEMS
    elif find_default_model(DEFAULT)[0]:
        settled = ("missing-model",)
    problems = [problem for problem in found if problem.code not in settled]
    for problem in problems:
        print_problem(problem, err)
    if any(problem.code == "version-1" for problem in problems):  # loading the file must not say it again
        warnings.filterwarnings("ignore", message=r"(?s).*this is a Prompty v1 file", category=PromptyWarning)
    if any(problem.severity == "error" for problem in problems):
        raise Exit(1)


def find_prompts(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that a command names, and those in the folders that it names."""
    for path in paths:
        found = sorted(path.rglob("*.prompty")) if path.is_dir() else [path]
        if not found:
            fail(f"the folder '{path}' has no .prompty files\n    Pass a file, or a folder that has some.")
        yield from found


def _print_policies(file: Path) -> None:
    """Print the approval policy of each tool, as far as the file decides it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PromptyWarning)
            tools = load(file).tools
    except PromptyError:
        return  # its problems are printed above
    for tool in tools:
        out.print(visible(f"{file.name}: {tool.name}: {describe_policy(tool.approval_mode)} before it runs"))


def _summarize(files: int, problems: Sequence[Problem]) -> str:
    errors = sum(problem.severity == "error" for problem in problems)
    if not problems:
        return f"{_count(files, 'file')}: no problems"
    return f"{_count(files, 'file')}: {_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
