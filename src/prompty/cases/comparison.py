"""Compare two runs of the same cases: which of them flipped, and whether chance alone explains it.

A baseline is the results of an earlier run in a file next to the tests, in a stable order and without times. Instead of
one, the current cases can run with the prompts at a git reference.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import fsum, lcm
from pathlib import Path
from typing import Any, NamedTuple

from prompty.cases.evaluators import describe_report
from prompty.cases.reading import Suite
from prompty.cases.results import Status, TrialResult
from prompty.cases.revision import Revision, find_repository, open_revision
from prompty.cases.runner import report_suite
from prompty.cases.statistics import compute_flip_chance, compute_wilson, find_smallest_difference
from prompty.errors import RequestError
from prompty.pipeline.files import read_bytes
from prompty.safety.json import read_json
from prompty.safety.write_files import replace_file

MAX_NAMED = 5
_DECIDED: frozenset[Status] = frozenset({"passed", "failed"})


class Totals(NamedTuple):
    """The results of one model and variant, and how they differ from before. Each case counts once.

    A model and variant that only the earlier run had are a pair of their own, with only `gone`. `own_model` is the
    model of the prompts, if they have the same.
    """

    variant: str | None
    model: str | None
    own_model: str = ""
    passed: int = 0
    failed: int = 0
    error: int = 0
    skipped: int = 0
    worse: int = 0
    better: int = 0
    added: int = 0
    gone: int = 0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share that passes, of the cases with a verdict."""
        return compute_wilson(self.passed, self.passed + self.failed)


class Comparison(NamedTuple):
    """What differs between two runs. A case that ran with several models and variants has one result for each.

    Results are named by key: `worse` and `better` flipped, `uncompared` have a verdict in only one run, `added` are
    new, and `gone` were in the earlier run of these files. `failing` are the results that fail now and did not before,
    and those that could not run: they fail a build.

    Results of one case are not independent, so statistics are by case. A case is worse if more of its results got worse
    than better. `p` is the probability of changes this uneven if nothing changed. It weighs a case by the share of its
    results that changed. `before` and `now` are the share that passes, as the mean over cases.
    """

    worse: tuple[str, ...]
    better: tuple[str, ...]
    uncompared: tuple[str, ...]
    added: tuple[str, ...]
    gone: tuple[str, ...]
    failing: tuple[str, ...]
    compared: int
    cases: int
    worse_cases: tuple[str, ...]
    better_cases: tuple[str, ...]
    before: float
    now: float
    p: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share that passes now. Each case counts once, however many results it has."""
        return compute_wilson(self.now * self.cases, self.cases)


def compare(before: Mapping[str, Status], now: Sequence[TrialResult], *, whole: bool = False) -> Comparison:
    """Compare results with earlier statuses by key. `gone` is known only if the files ran as a `whole`."""
    keys: dict[str, list[str]] = {name: [] for name in ("worse", "better", "uncompared", "added", "failing")}
    pairs: dict[str, list[tuple[bool, bool]]] = {}
    for result in now:
        key, earlier = result.key, before.get(result.key)
        if result.status == "error" or (result.status == "failed" and earlier != "failed"):
            keys["failing"].append(key)
        if earlier is None:
            keys["added"].append(key)
        elif earlier not in _DECIDED or result.status not in _DECIDED:
            if earlier != "skipped" or result.status != "skipped":
                keys["uncompared"].append(key)
        else:
            pairs.setdefault(f"{result.suite}::{result.case}", []).append(
                (earlier == "passed", result.status == "passed")
            )
            if earlier != result.status:
                keys["better" if result.status == "passed" else "worse"].append(key)
    lists: dict[str, Any] = {name: tuple(found) for name, found in keys.items()}
    gone = tuple(_find_gone(before, now)) if whole else ()
    return Comparison(gone=gone, compared=sum(map(len, pairs.values())), **lists, **_compare_cases(pairs))


def _compare_cases(pairs: Mapping[str, Sequence[tuple[bool, bool]]]) -> dict[str, Any]:
    """Return the statistics by case. `pairs` has a case's verdicts before and now, for each model and variant."""
    unit = lcm(*map(len, pairs.values()))
    changes = {
        case: sum(earlier - later for earlier, later in found) * unit // len(found) for case, found in pairs.items()
    }
    return {
        "cases": len(pairs),
        "worse_cases": tuple(case for case, change in changes.items() if change > 0),
        "better_cases": tuple(case for case, change in changes.items() if change < 0),
        "before": _average(sum(earlier for earlier, _ in found) / len(found) for found in pairs.values()),
        "now": _average(sum(later for _, later in found) / len(found) for found in pairs.values()),
        "p": compute_flip_chance(changes.values()),
    }


def _average(shares: Iterable[float]) -> float:
    found = list(shares)
    return fsum(found) / len(found) if found else 0.0


def _find_gone(before: Mapping[str, Status], now: Sequence[TrialResult]) -> Iterator[str]:
    """Yield the earlier keys that the files of these results no longer have."""
    known, files = {result.key for result in now}, {result.suite for result in now}
    return (key for key in before if key not in known and key.partition("::")[0] in files)


def compute_totals(results: Sequence[TrialResult], comparison: Comparison | None = None) -> list[Totals]:
    """Return the totals of each model and variant, in the order of the results."""
    columns: dict[str, Counter[str]] = {}
    names: dict[str, tuple[str | None, str | None]] = {}
    flips = {
        key: name for name in ("worse", "better", "added") for key in (getattr(comparison, name) if comparison else ())
    }
    for result in results:
        column = result.key.removeprefix(f"{result.suite}::{result.case}")
        names[column] = (result.variant, result.model)
        columns.setdefault(column, Counter()).update(filter(None, (result.status, flips.get(result.key))))
    for key in comparison.gone if comparison else ():
        ends = [column for column in columns if column and key.endswith(column)]
        column = ends[0] if ends else key[key.rfind(" [") :] if key.endswith("]") and " [" in key else ""
        variant, _, model = column.strip(" []").rpartition(", ")
        names.setdefault(column, (variant or None, model or None))
        columns.setdefault(column, Counter()).update(["gone"])
    fields = Totals._fields[3:]
    return [
        Totals(*names[column], _find_own_model(results, *names[column]), *(counts[name] for name in fields))
        for column, counts in columns.items()
    ]


def _find_own_model(results: Iterable[TrialResult], variant: str | None, model: str | None) -> str:
    found = {result.own_model for result in results if (result.variant, result.model) == (variant, model)}
    return found.pop() if len(found) == 1 else ""


def describe_comparison(comparison: Comparison, name: str) -> list[str]:
    """Return lines about a comparison with `name`, such as the baseline or a git reference."""
    if not comparison.compared:
        cause = "all of them are new" if not comparison.uncompared else "none has a verdict in both runs"
        missing = "Record answers with --record. For a version without recordings, add --live."
        fix = missing if comparison.uncompared else "Add them with --update."
        return [f"No result can be compared with {name}: {cause}. {fix}"]
    (low, high), worse, better = comparison.interval, len(comparison.worse_cases), len(comparison.better_cases)
    flips = ""
    if comparison.compared > comparison.cases:
        flips = f" ({len(comparison.worse)} worse, {len(comparison.better)} better, of {comparison.compared} results)"
    lines = [
        f"Compared with {name}: {worse} worse, {better} better, of {_count(comparison.cases, 'case')}{flips}. Passing: "
        f"{comparison.before:.0%} before, {comparison.now:.0%} now (95% interval {low:.0%} to {high:.0%})."
    ]
    if comparison.worse or comparison.better:
        verdict = "significant" if comparison.p <= 0.05 else "can be explained by chance"
        lines.append(f"Exact sign-flip test of the cases: p = {comparison.p:.3g}, {verdict}.")
        if comparison.worse and comparison.p > 0.05:
            lines[-1] += " A result that passed before and fails now fails the command anyway."
    if comparison.uncompared:
        named = ", ".join(comparison.uncompared[:MAX_NAMED]) + (" …" if len(comparison.uncompared) > MAX_NAMED else "")
        lines.append(f"{_count(len(comparison.uncompared), 'result')} without a verdict in one of the runs: {named}.")
    smallest = find_smallest_difference(comparison.cases, worse + better)
    lines.append(
        "There are too few cases to distinguish a change from chance."
        if smallest is None
        else f"With these cases, a change of {smallest * 100:.0f} points or more can be distinguished from chance."
    )
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


VERSION = 1
_STATUSES: frozenset[str] = frozenset({"passed", "failed", "error", "skipped"})


def get_baseline_path(test_file: Path, name: str) -> Path:
    """Return the path of a test file's baseline: `answer.baseline.json`."""
    return test_file.with_name(f"{name}.baseline.json")


def read_baseline(path: Path) -> dict[str, Status]:
    """Return the statuses in a baseline by case. Raise RequestError if the file is invalid."""
    try:
        data: Any = read_json(read_bytes(path), strict=False)
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
    try:
        replace_file(path, f"{text}\n".encode())
    except OSError as error:
        fix = "Name another file with --baseline."
        raise RequestError(f"the baseline '{path}' cannot be written: {error.strerror}", fix) from None


def get_case_key(result: TrialResult) -> str:
    """Return the key of a result within its file: `greets by name [openai:gpt-6-luna]`."""
    return result.key.removeprefix(f"{result.suite}::")


class EarlierResults(NamedTuple):
    """Statuses to compare with, by result key, and the results themselves if they are from this run. Results at a
    git reference have its commit, and a note about those that could not run."""

    name: str
    statuses: dict[str, Status]
    results: dict[str, TrialResult]
    commit: str = ""
    note: str = ""


class SuiteReport(NamedTuple):
    """Results, notes on judges and comparisons, the keys that make the command fail, and the totals."""

    results: Sequence[TrialResult]
    notes: list[str]
    failing: list[str]
    totals: list[Totals]
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
    results: Sequence[TrialResult], suites: Sequence[Suite], earlier: EarlierResults | None, *, whole: bool = False
) -> SuiteReport:
    """Compare the results with earlier ones, and compute totals and the agreement of judges."""
    notes = [describe_report(report_suite(suite, results)) for suite in suites if suite.judge]
    if earlier is None:
        failing = [result.key for result in results if result.status in ("failed", "error")]
        return SuiteReport(results, notes, failing, compute_totals(results))
    comparison = compare(earlier.statuses, results, whole=whole)
    notes += filter(None, [*describe_comparison(comparison, earlier.name), earlier.note])
    totals = compute_totals(results, comparison)
    return SuiteReport(results, notes, list(comparison.failing), totals, comparison, earlier)


class EarlierSuites(NamedTuple):
    """Suites with the prompts and recordings of a commit, and the folders that these may also read."""

    reference: str
    suites: list[Suite]
    roots: list[Path]
    trees: list[Revision]

    def build(self, results: Sequence[TrialResult]) -> EarlierResults:
        """Return the results of the suites, to compare with."""
        by_key = {result.key: result for result in results}
        statuses = {key: result.status for key, result in by_key.items()}
        return EarlierResults(self.reference, statuses, by_key, self.trees[0].commit, self._describe_errors(results))

    def _describe_errors(self, results: Sequence[TrialResult]) -> str:
        """Return why the first result that could not run has no verdict, which is often a file that is not there."""
        failed = [result for result in results if result.status == "error"]
        if not failed:
            return ""
        reason = "; ".join(failed[0].reasons)
        for tree in self.trees:
            reason = reason.replace(f"{tree.folder}{os.sep}", "")
        skipped = [f"{path}: {why}" for tree in self.trees for path, why in tree.skipped.items()]
        left_out = f"\nNot read from {self.reference}: {'; '.join(skipped[:MAX_NAMED])}." if skipped else ""
        return f"{_count(len(failed), 'result')} could not run at {self.reference}. {failed[0].key}: {reason}{left_out}"


@contextmanager
def open_earlier(suites: Sequence[Suite], reference: str, roots: Sequence[Path] = ()) -> Iterator[EarlierSuites]:
    """Yield the suites at a git reference. Suites whose prompt did not exist are omitted.

    Their prompts have the partials and the project file of the reference. `roots` are folders of today. The prompts
    may read the same folders at the reference.
    """
    with ExitStack() as trees:
        at: dict[Path, Revision] = {}
        for suite in suites:
            root = find_repository(suite.folder)
            if root not in at:
                at[root] = trees.enter_context(open_revision(root, reference))
        found = [earlier for suite in suites if (earlier := _find_earlier(suite, at))]
        if not found:
            raise RequestError(f"none of these prompts exists at '{reference}'", "Name a reference that has them.")
        moved = filter(None, [_move(root.resolve(), at) for root in roots])
        yield EarlierSuites(reference, found, [*roots, *moved], [*at.values()])


def _find_earlier(suite: Suite, at: Mapping[Path, Revision]) -> Suite | None:
    prompt, folder = _move(suite.prompt.resolve(), at), _move(suite.folder.resolve(), at)
    if prompt is None:
        raise RequestError(f"{suite.prompt} is not in the repository of its tests", "Move it, or use --baseline.")
    return replace(suite, prompt=prompt, earlier=folder) if prompt.is_file() else None


def _move(path: Path, at: Mapping[Path, Revision]) -> Path | None:
    """Return the path at the reference of a file or a folder of today, or None if it is in no repository."""
    found = [tree.folder / path.relative_to(root) for root, tree in at.items() if path.is_relative_to(root)]
    return found[-1] if found else None
