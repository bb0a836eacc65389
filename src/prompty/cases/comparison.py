"""Compare two runs of the same cases: which of them flipped, and whether chance alone explains it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prompty.cases.results import Status, TrialResult
from prompty.cases.statistics import compute_mcnemar, compute_wilson, find_smallest_difference

MAX_NAMED = 5
_DECIDED: frozenset[Status] = frozenset({"passed", "failed"})


class Comparison(NamedTuple):
    """Flips between two runs, by the keys of cases. `uncompared` have a verdict in only one of them, `added` are new.

    `failing` are the cases that fail now and did not before, and those that could not run: a gate stops them.
    """

    worse: tuple[str, ...]
    better: tuple[str, ...]
    compared: int
    passed_before: int
    passed_now: int
    uncompared: tuple[str, ...]
    added: tuple[str, ...]
    failing: tuple[str, ...]

    @property
    def p_value(self) -> float:
        return compute_mcnemar(len(self.worse), len(self.better))

    @property
    def smallest_difference(self) -> float | None:
        return find_smallest_difference(self.compared, len(self.worse) + len(self.better))


def compare(before: Mapping[str, Status], now: Sequence[TrialResult]) -> Comparison:
    """Compare results with earlier statuses by key."""
    worse: list[str] = []
    better: list[str] = []
    uncompared: list[str] = []
    added: list[str] = []
    failing: list[str] = []
    compared = passed_before = passed_now = 0
    for result in now:
        earlier = before.get(result.key)
        if result.status == "error" or (result.status == "failed" and earlier != "failed"):
            failing.append(result.key)
        if earlier is None:
            added.append(result.key)
        elif earlier not in _DECIDED or result.status not in _DECIDED:
            if earlier != "skipped" or result.status != "skipped":
                uncompared.append(result.key)
        else:
            compared += 1
            passed_before += earlier == "passed"
            passed_now += result.status == "passed"
            if earlier != result.status:
                (better if result.status == "passed" else worse).append(result.key)
    return Comparison(
        tuple(worse),
        tuple(better),
        compared,
        passed_before,
        passed_now,
        tuple(uncompared),
        tuple(added),
        tuple(failing),
    )


def describe_comparison(comparison: Comparison, name: str) -> list[str]:
    """Return lines about a comparison with `name`, such as the baseline or a git reference."""
    if not comparison.compared:
        return [f"No case can be compared with {name}: none has a verdict in both. Use --live."]
    low, high = compute_wilson(comparison.passed_now, comparison.compared)
    lines = [
        f"Compared with {name}: {len(comparison.worse)} worse, {len(comparison.better)} better, "
        f"of {comparison.compared} cases. Passing: {comparison.passed_before} before, {comparison.passed_now} now "
        f"({comparison.passed_now / comparison.compared:.0%}, 95% interval {low:.0%} to {high:.0%})."
    ]
    if comparison.worse or comparison.better:
        p = comparison.p_value
        verdict = "more than chance explains" if p <= 0.05 else "chance alone can explain this"
        lines.append(f"Exact McNemar: p = {p:.3g}, {verdict}.")
    if comparison.uncompared:
        named = ", ".join(comparison.uncompared[:MAX_NAMED]) + (" …" if len(comparison.uncompared) > MAX_NAMED else "")
        lines.append(f"{len(comparison.uncompared)} cases have no verdict in one of the two, and need --live: {named}.")
    smallest = comparison.smallest_difference
    lines.append(
        "There are too few cases to tell any change from chance."
        if smallest is None
        else f"With these cases, a change of {smallest * 100:.0f} points or more can be told from chance."
    )
    return lines
