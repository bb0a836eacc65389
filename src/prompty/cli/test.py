"""`prompty test`: run the test cases of prompts, offline from recordings or against models, and report the results."""

import hashlib
import os
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from rich.progress import BarColumn, Progress, TextColumn
from typer import Argument, Exit, Option

from prompty.cases.case_file import Level
from prompty.cases.comparison import EarlierResults, build_report, open_earlier, read_earlier, update_baselines
from prompty.cases.evaluators import load_checks
from prompty.cases.file_names import SUFFIXES, find_test_file
from prompty.cases.first_case import write_first_tests
from prompty.cases.from_trace import add_case
from prompty.cases.plan import Trial, parse_selection, plan_trials
from prompty.cases.project_file import NO_PROJECT, find_project
from prompty.cases.reading import Suite, read_suite
from prompty.cases.results import TrialResult
from prompty.cases.runner import JOBS, Runner, RunnerOptions
from prompty.cases.trial import Mode
from prompty.cli.console import EXIT_INTERRUPTED, STOP_SIGNALS, err, print_problem, show
from prompty.cli.functions import ToolFiles
from prompty.cli.last_failures import select_failed, store_failures
from prompty.cli.options import AllowEnv, AsJson, Roots, TraceTo, complete_model, get_state_path, start_tracing
from prompty.cli.search import find_files
from prompty.cli.test_output import print_report, write_reports
from prompty.cli.trace import open_trace
from prompty.errors import LoadError, RequestError
from prompty.pipeline.dotenv import load_env
from prompty.pipeline.variants import find_base
from prompty.safety.redaction import mask_secrets
from prompty.tools.function import load_functions

Record = Annotated[
    bool, Option("--record", help="Record the answers that are missing or changed. With --live, record all of them.")
]


def run_tests(
    paths: Annotated[
        list[Path] | None, Argument(help="Prompts, test files, or folders to search. Defaults to the current folder.")
    ] = None,
    select: Annotated[
        str | None, Option("-k", metavar="EXPR", help='Run cases that match, for example "ada and not slow".')
    ] = None,
    failed: Annotated[bool, Option("--failed", help="Run only what failed or could not run in the last run.")] = False,
    level: Annotated[
        Literal["render", "wire", "replay", "live"] | None, Option("--level", help="Stop after this level.")
    ] = None,
    live: Annotated[bool, Option("--live", help="Call the models instead of reading recordings.")] = False,
    record: Record = False,
    models: Annotated[
        list[str] | None,
        Option(
            "--model",
            "-m",
            metavar="[PROVIDER:]ID",
            autocompletion=complete_model,
            help="Use these models instead of the files'.",
        ),
    ] = None,
    variants: Annotated[
        list[str] | None, Option("--variant", metavar="NAME", help="Use these variants instead of the files'.")
    ] = None,
    repeat: Annotated[int | None, Option("--repeat", min=1, metavar="N", help="Run each case N times.")] = None,
    tools: ToolFiles = None,
    checks: Annotated[
        list[str] | None, Option("--checks", metavar="FILE", help="Allow the functions in this Python file as checks.")
    ] = None,
    concurrency: Annotated[
        int | None,
        Option("--concurrency", "-j", min=1, metavar="N", help="Run at most N live cases at once. The default is 8."),
    ] = None,
    max_cost: Annotated[
        float | None, Option("--max-cost", metavar="DOLLARS", help="Start no more calls once DOLLARS are spent.")
    ] = None,
    against: Annotated[
        str | None, Option("--against", metavar="REF", help="Compare with the prompts at a git branch, tag or commit.")
    ] = None,
    baseline: Annotated[
        Path | None, Option("--baseline", metavar="FILE", help="Compare with FILE instead of NAME.baseline.json.")
    ] = None,
    update: Annotated[bool, Option("--update", help="Write the results to the baseline.")] = False,
    junit: Annotated[Path | None, Option("--junit", metavar="FILE", help="Write the results as JUnit XML.")] = None,
    html: Annotated[Path | None, Option("--html", metavar="FILE", help="Write the results as one HTML page.")] = None,
    github: Annotated[bool, Option("--github", help="Add the results to the GitHub job summary.")] = False,
    roots: Roots = None,
    allow_env: AllowEnv = None,
    trace: TraceTo = None,
    init: Annotated[
        bool, Option("--init", help="Write a first test file for each prompt without one, and run nothing.")
    ] = False,
    from_trace: Annotated[
        Path | None, Option("--from-trace", metavar="FILE", help="Add the run in this trace to the prompt's tests.")
    ] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print only what failed or flipped, and totals.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the cases in .test.yaml files next to prompts, offline unless you pass --live or --record.

    The exit code is 0 if all cases passed, 1 if any failed, and 130 if the run was interrupted. In a comparison with
    a baseline or a git reference, cases that failed before do not count.
    """
    if from_trace is not None:
        _add_case(from_trace, paths or [])
        return
    if init:
        _write_first_tests(paths or [Path()], roots or ())
        return
    suites = read_suites(paths or [Path()])
    project = find_project(suites[0].path) if suites else NO_PROJECT
    start_tracing(trace, project)
    max_cost = project.max_cost if max_cost is None else max_cost
    planned = list(plan_trials(suites, models=models or (), variants=variants or (), repeat=repeat))
    trials = chosen = planned if select is None else list(filter(parse_selection(select), planned))
    if select is not None and not chosen:
        raise RequestError(f"-k '{select}' matches none of the {len(planned)} cases", "Change the expression.")
    if failed and not (trials := select_failed(trials)):
        err.print("No failures of these cases are known from an earlier run, so all of them run.")
        trials = chosen
    options = RunnerOptions(
        mode=_get_mode(level, live=live, record=record),
        jobs=concurrency or project.concurrency or JOBS,
        max_cost=None if max_cost is None else Decimal(str(max_cost)),
        ledger=get_ledger_path(suites),
        tools=load_functions(tools or ()),
        checks=load_checks(checks or ()),
        keep_messages=html is not None,
        roots=roots or (),
        env_allowed=allow_env or (),
    )
    runner = Runner(options)
    results = _run(runner, trials)
    if not runner.complete:
        print_report(build_report(results, (), None), as_json=as_json, quiet=quiet)
        err.print(show(mask_secrets(f"To continue: {shlex.join(['prompty', *sys.argv[1:]])}")))
        raise Exit(EXIT_INTERRUPTED)
    earlier = _run_earlier(against, suites, trials, options) if against else read_earlier(suites, baseline)
    whole = not (select or failed or models or variants)
    report = build_report(results, suites, earlier, whole=whole and not against)
    print_report(report, as_json=as_json, quiet=quiet)
    write_reports(report, junit=junit, html=html, github=github)
    if update:
        update_baselines(suites, results, baseline, whole=whole)
        store_failures(trials, [result.key for result in results if result.status == "error"])
        return
    store_failures(trials, frozenset(report.failing))
    if report.failing:
        raise Exit(1)


def _write_first_tests(paths: Sequence[Path], roots: Sequence[Path]) -> None:
    """Write a test file for each prompt that is named, and for those without one in the folders that are named."""
    named = [path for path in paths if not path.is_dir()]
    found = [file for folder in paths if folder.is_dir() for file in find_files(folder, ".prompty")]
    prompts = [*named, *(file for file in found if find_base(file) is None and find_test_file(file) is None)]
    if not prompts:
        raise RequestError("there is no prompt without tests here", "Name one: prompty test --init FILE.prompty.")
    for prompt in prompts:
        load_env(prompt=prompt)
        path = write_first_tests(prompt, roots)
        err.print(show(f"Wrote {path}. To run it: prompty test {shlex.quote(str(prompt))}"))


def _add_case(trace: Path, paths: Sequence[Path]) -> None:
    """Add the trace as a case to the test file of the prompt that the command names."""
    if len(paths) != 1 or paths[0].suffix != ".prompty":
        raise RequestError(
            "--from-trace adds a case to one prompt", "Name it: prompty test FILE.prompty --from-trace …"
        )
    load_env(prompt=paths[0])
    added = add_case(open_trace(trace), paths[0])
    for tool in added.changing:
        err.print(show(f"'{tool}' returned different results. The case uses the first for all of its calls."))
    err.print(show(f"Added the case '{added.name}' to {added.path}. Edit its `expect` to check what matters."))


def _run_earlier(
    reference: str, suites: Sequence[Suite], trials: Sequence[Trial], options: RunnerOptions
) -> EarlierResults:
    """Run the same cases with the prompts at a git reference."""
    if options.mode.record:
        raise RequestError("--against cannot be combined with --record", "Run one after the other.")
    with open_earlier(suites, reference, options.roots) as earlier:
        by_path = {suite.path: suite for suite in earlier.suites}
        same = [replace(trial, suite=by_path[trial.suite.path]) for trial in trials if trial.suite.path in by_path]
        ledger = options.ledger and options.ledger.with_stem(f"{options.ledger.stem}-against")
        return earlier.build(_run(Runner(replace(options, ledger=ledger, roots=earlier.roots)), same))


def read_suites(paths: Sequence[Path]) -> list[Suite]:
    """Read the test files that a command names. If any has problems, print them all and exit."""
    suites: list[Suite] = []
    broken = False
    for file in find_test_files(paths):
        try:
            suites.append(read_suite(file))
            load_env(prompt=suites[-1].prompt)
        except LoadError as error:
            broken = True
            for problem in error.problems:
                print_problem(problem, err)
    if broken:
        raise Exit(1)
    return suites


def find_test_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield each test file that the paths name: directly, by its prompt, or in a folder."""
    seen: set[Path] = set()
    for path in paths:
        for file in _find(path):
            if file.resolve() not in seen:
                seen.add(file.resolve())
                yield file


def _find(path: Path) -> list[Path]:
    if path.is_dir():
        found = find_files(path, *SUFFIXES)
        if not found:
            raise RequestError(
                f"the folder '{path}' has no tests",
                "Write a first one with --init, or create answer.test.yaml next to answer.prompty.",
            )
        return found
    if path.name.endswith(SUFFIXES):
        return [path]
    if path.suffix == ".prompty" and (beside := find_test_file(path)):
        return [beside]
    if path.suffix == ".prompty":
        raise RequestError(f"'{path}' has no tests", f"Write {path.stem}{SUFFIXES[0]} with --init.")
    raise RequestError(f"'{path}' is not a test file", "Name a .prompty file, a .test.yaml file, or a folder.")


def _get_mode(level: Level | None, *, live: bool, record: bool) -> Mode:
    if level == "live" and not live:
        raise RequestError("--level live calls models", "Add --live.")
    asks = level not in ("render", "wire")
    return Mode(level=level or ("live" if live else "replay"), live=live and asks, record=record and asks)


def get_ledger_path(suites: Sequence[Suite]) -> Path:
    """Return the ledger's path for these files, so that an interrupted live run of the same files continues."""
    names = b"\0".join(sorted(os.fsencode(suite.path.resolve()) for suite in suites))
    return get_state_path("tests") / f"{hashlib.sha256(names).hexdigest()[:16]}.jsonl"


def _run(runner: Runner, trials: Sequence[Trial]) -> list[TrialResult]:
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: _stop(runner))
    try:
        with _show_progress(len(trials)) as advance:
            results = runner.run(trials, advance, _print_interrupted)
    finally:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
    resumed = sum(result.resumed for result in results)
    if resumed:
        err.print(f"{resumed} results are from the interrupted run.")
    return results


def _print_interrupted(names: Sequence[str]) -> None:
    for name, times in Counter(names).items():
        often = (", and may be paid for twice", f" {times} times, and may be paid for {times + 1} times")
        err.print(show(f"{name} was interrupted{often[times > 1]}."))


def _stop(runner: Runner) -> None:
    """Stop when the running cases have ended. The next signal ends the process at once; no result is lost."""
    runner.stop()
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    err.print("Stopping when the running cases have ended. Interrupt again to stop now.")


@contextmanager
def _show_progress(total: int) -> Iterator[Callable[[TrialResult], None]]:
    if not err.is_terminal:
        yield lambda _: None
        return
    columns = (BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f} cases{task.description}"))
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=total)
        failed = 0

        def advance(result: TrialResult) -> None:
            nonlocal failed
            failed += result.status in ("failed", "error")
            bar.update(task, advance=1, description=f" · {failed} failed" if failed else "")

        yield advance
