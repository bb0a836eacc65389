"""Compare two runs of the same cases: which of them flipped, and whether chance alone explains it.

A baseline is the results of an earlier run in a file next to the tests, in a stable order and without times. Instead of
one, the current cases can run with the prompts at a git reference.
"""

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import NamedTuple

from prompty.cases.evaluators import describe_report
from prompty.cases.reading import Suite
from prompty.cases.results import Status, TrialResult
from prompty.cases.runner import report_suite
from prompty.cases.statistics import compute_mcnemar, compute_wilson, find_smallest_difference
from prompty.errors import RequestError

MAX_NAMED = 5
_DECIDED: frozenset[Status] = frozenset({"passed", "failed"})


class Comparison(NamedTuple):
    """Flips between two runs, by case key. `uncompared` cases have a verdict in only one run, `added` are new.

    `failing` are the cases that fail now and did not before, and those that could not run: they fail a build.
    """

    worse: tuple[str, ...]
    better: tuple[str, ...]
    compared: int
    passed_before: int
    passed_now: int
    uncompared: tuple[str, ...]
    added: tuple[str, ...]
    failing: tuple[str, ...]


def compare(before: Mapping[str, Status], now: Sequence[TrialResult]) -> Comparison:
    """Compare results with earlier statuses by key."""
    keys: dict[str, list[str]] = {name: [] for name in ("worse", "better", "uncompared", "added", "failing")}
    compared = passed_before = passed_now = 0
    for result in now:
        earlier = before.get(result.key)
        if result.status == "error" or (result.status == "failed" and earlier != "failed"):
            keys["failing"].append(result.key)
        if earlier is None:
            keys["added"].append(result.key)
        elif earlier not in _DECIDED or result.status not in _DECIDED:
            if earlier != "skipped" or result.status != "skipped":
                keys["uncompared"].append(result.key)
        else:
            compared += 1
            passed_before += earlier == "passed"
            passed_now += result.status == "passed"
            if earlier != result.status:
                keys["better" if result.status == "passed" else "worse"].append(result.key)
    lists = {name: tuple(found) for name, found in keys.items()}
    return Comparison(compared=compared, passed_before=passed_before, passed_now=passed_now, **lists)


def describe_comparison(comparison: Comparison, name: str) -> list[str]:
    """Return lines about a comparison with `name`, such as the baseline or a git reference."""
    if not comparison.compared:
        return [f"No case can be compared with {name}: none has a verdict in both runs. Use --live."]
    low, high = compute_wilson(comparison.passed_now, comparison.compared)
    lines = [
        f"Compared with {name}: {len(comparison.worse)} worse, {len(comparison.better)} better, "
        f"of {comparison.compared} cases. Passing: {comparison.passed_before} before, {comparison.passed_now} now "
        f"({comparison.passed_now / comparison.compared:.0%}, 95% interval {low:.0%} to {high:.0%})."
    ]
    worse, better = len(comparison.worse), len(comparison.better)
    if worse or better:
        p = compute_mcnemar(worse, better)
        verdict = "significant" if p <= 0.05 else "can be explained by chance"
        lines.append(f"Exact McNemar: p = {p:.3g}, {verdict}.")
    if comparison.uncompared:
        named = ", ".join(comparison.uncompared[:MAX_NAMED]) + (" …" if len(comparison.uncompared) > MAX_NAMED else "")
        lines.append(f"{len(comparison.uncompared)} cases have no verdict in one of the runs and need --live: {named}.")
    smallest = find_smallest_difference(comparison.compared, worse + better)
    lines.append(
        "There are too few cases to distinguish a change from chance."
        if smallest is None
        else f"With these cases, a change of {smallest * 100:.0f} points or more can be distinguished from chance."
    )
    return lines


VERSION = 1
_STATUSES: frozenset[str] = frozenset({"passed", "failed", "error", "skipped"})


def get_baseline_path(test_file: Path, name: str) -> Path:
    """Return the path of a test file's baseline: `answer.baseline.json`."""
    return test_file.with_name(f"{name}.baseline.json")


def read_baseline(path: Path) -> dict[str, Status]:
    """Return the statuses in a baseline by case. Raise RequestError if the file is invalid."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            raise ValueError(f"it has version {data['version']}, but this release reads version {VERSION}")
        cases: dict[str, Status] = data["cases"]
        unknown = {str(status) for status in cases.values()} - _STATUSES
        if unknown:
            raise ValueError(f"'{min(unknown)}' is not a status")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RequestError(f"the baseline '{path}' is invalid: {error}", "Write it again with --update.") from None
    return cases


def write_baseline(path: Path, statuses: Mapping[str, Status]) -> None:
    """Write the statuses of cases, sorted by case."""
    text = json.dumps({"version": VERSION, "cases": dict(sorted(statuses.items()))}, indent=2, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8", newline="\n")


def get_case_key(result: TrialResult) -> str:
    """Return the key of a result within its file: `greets by name [openai:gpt-6-luna]`."""
    return result.key.removeprefix(f"{result.suite}::")


class EarlierResults(NamedTuple):
    """Statuses to compare with, by result key, and the results themselves if they are from this run."""

    name: str
    statuses: dict[str, Status]
    results: dict[str, TrialResult]


class SuiteReport(NamedTuple):
    """Results, notes on judges and comparisons, and the keys and judges that make the command fail."""

    results: Sequence[TrialResult]
    notes: list[str]
    failing: list[str]
    comparison: Comparison | None = None
    earlier: EarlierResults | None = None


def read_earlier(suites: Sequence[Suite], baseline: Path | None) -> EarlierResults | None:
    """Return the statuses in the named baseline, or in the baselines next to the test files."""
    if baseline is not None:
        return EarlierResults(baseline.name, read_baseline(baseline), {}) if baseline.exists() else None
    statuses: dict[str, Status] = {}
    for suite in suites:
        path = get_baseline_path(suite.path, suite.name)
        if path.exists():
            statuses |= {f"{suite.label}::{key}": status for key, status in read_baseline(path).items()}
    return EarlierResults("the baseline", statuses, {}) if statuses else None


def update_baselines(
    suites: Sequence[Suite], results: Sequence[TrialResult], baseline: Path | None, *, whole: bool
) -> None:
    """Write the results to the named baseline, or to those next to the test files.

    If the files ran as a `whole`, entries without a result are dropped: the case was deleted or renamed.
    """
    if baseline is not None:
        known = read_baseline(baseline) if baseline.exists() else {}
        ran = tuple(f"{suite.label}::" for suite in suites) if whole else ()
        kept = {key: status for key, status in known.items() if not key.startswith(ran)}
        write_baseline(baseline, {**kept, **{result.key: result.status for result in results}})
        return
    for suite in suites:
        path = get_baseline_path(suite.path, suite.name)
        own = {get_case_key(result): result.status for result in results if result.suite == suite.label}
        kept = read_baseline(path) if path.exists() and not whole else {}
        write_baseline(path, {**kept, **own})


def build_report(
    results: Sequence[TrialResult], suites: Sequence[Suite], earlier: EarlierResults | None
) -> SuiteReport:
    """Compare the results with earlier ones, and compute the agreement of judges."""
    judges = [report_suite(suite, results) for suite in suites if suite.judge]
    notes = [describe_report(judge) for judge in judges]
    untrusted = [judge.judge for judge in judges if not judge.trusted]
    if earlier is None:
        failing = [result.key for result in results if result.status in ("failed", "error")]
        return SuiteReport(results, notes, [*failing, *untrusted])
    comparison = compare(earlier.statuses, results)
    notes += describe_comparison(comparison, earlier.name)
    return SuiteReport(results, notes, [*comparison.failing, *untrusted], comparison, earlier)


_SECONDS = 60


@contextmanager
def open_earlier(suites: Sequence[Suite], reference: str) -> Iterator[list[Suite]]:
    """Yield the suites with the prompts and recordings at a git reference. Suites that did not exist are omitted."""
    if reference.startswith("-"):
        raise RequestError(f"'{reference}' is not a git reference", "Name a branch, a tag or a commit.")
    with TemporaryDirectory(prefix="prompty-test-") as folder:
        found = [
            earlier
            for number, suite in enumerate(suites)
            if (earlier := _extract(suite, reference, Path(folder).resolve() / str(number)))
        ]
        if not found:
            raise RequestError(f"none of these prompts exists at '{reference}'", "Name a reference that has them.")
        yield found


def _extract(suite: Suite, reference: str, target: Path) -> Suite | None:
    """Write a suite's folder at the reference to `target`. Return None if its prompt did not exist."""
    here = suite.folder.resolve()
    root = Path(_run_git(here, "rev-parse", "--show-toplevel").decode().strip()).resolve()
    _run_git(root, "rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}", cause=f"git has no '{reference}'")
    prompt = suite.prompt.resolve()
    if not prompt.is_relative_to(here):
        raise RequestError(
            f"{suite.prompt} is not below {suite.folder}", "To compare a prompt, keep it next to its tests."
        )
    place = here.relative_to(root).as_posix()
    names = _run_git(root, "ls-tree", "-r", "--name-only", "-z", reference, "--", f"{place}/" if place != "." else ".")
    if prompt.relative_to(root).as_posix() not in names.decode().split("\0"):
        return None
    target.mkdir()
    with tarfile.open(fileobj=io.BytesIO(_run_git(root, "archive", reference, "--", place))) as archive:
        archive.extractall(target, filter="data")
    folder = target / place
    return replace(suite, prompt=folder / prompt.relative_to(here), earlier=folder)


def _run_git(folder: Path, *words: str, cause: str = "") -> bytes:
    git = which("git")
    if git is None:
        raise RequestError("git is not installed", "Install it, or compare with --baseline.")
    try:
        done = subprocess.run(  # noqa: S603  the user's reference, after --verify
            [git, "-C", str(folder), *words], capture_output=True, check=True, timeout=_SECONDS
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        message = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().partition("\n")[0]
        raise RequestError(cause or f"git failed: {message or error}", "Run the command in the repository.") from None
    return done.stdout
