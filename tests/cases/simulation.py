"""Simulated comparisons of 60 cases with 6 results each, of which some truly got worse.

The results of one case are correlated: with the probability `rho` they all share one draw. `noise` is the probability
that a sound case fails, or that a broken one passes. To print the figures of 2,000 runs for each correlation:

    python -m tests.cases.simulation
"""

import random
import sys
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from prompty.cases.comparison import compare
from prompty.cases.results import Status, TrialResult
from prompty.cases.statistics import compute_flip_chance, compute_wilson

CASES = 60
CELLS = [(variant, model) for variant in (None, "short") for model in ("openai:a", "openai:b", "openai:c")]
RHOS = (0.0, 0.5, 1.0)
NOISE = (0.02, 0.1)
BROKEN = 12


class Alarms(NamedTuple):
    """How many runs have p < 0.05, if each result is an observation, and if each case is one."""

    by_result: int
    by_case: int


def simulate(rho: float, *, noise: float, runs: int, broken: int = 0) -> Alarms:
    """Compare two runs of a suite, `runs` times. In the second, the first `broken` cases fail."""
    chance = random.Random(f"{rho} {noise} {broken}")  # noqa: S311  not for secrets
    by_result = by_case = 0
    for _ in range(runs):
        before = _run(chance, rho, [1 - noise] * CASES)
        now = _run(chance, rho, [noise] * broken + [1 - noise] * (CASES - broken))
        comparison = compare({result.key: result.status for result in before}, now)
        by_result += compute_flip_chance([1] * len(comparison.worse) + [-1] * len(comparison.better)) < 0.05
        by_case += comparison.p < 0.05
    return Alarms(by_result, by_case)


def _run(chance: random.Random, rho: float, rates: list[float]) -> list[TrialResult]:
    """Return the results of all cases, which pass at these rates."""
    results = []
    for number, rate in enumerate(rates):
        shared = chance.random() < rate if chance.random() < rho else None
        for variant, model in CELLS:
            passed = chance.random() < rate if shared is None else shared
            status: Status = "passed" if passed else "failed"
            results.append(TrialResult(suite="s", case=str(number), status=status, variant=variant, model=model))
    return results


def describe_figures(runs: int) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"{runs} runs of {CASES} cases × {len(CELLS)} results: share with p < 0.05 (upper 95 % bound)"
    yield f"{'truly worse':>12}{'noise':>8}{'correlation':>13}{'by result':>18}{'by case':>18}"
    for broken, noise, rho in (*product((0,), NOISE, RHOS), *product((BROKEN,), (NOISE[0], 0.05), RHOS)):
        alarms = simulate(rho, noise=noise, runs=runs, broken=broken)
        shown = [f"{count / runs:.1%} ({compute_wilson(count, runs)[1]:.1%})" for count in alarms]
        yield f"{broken:>12}{noise:>8.0%}{rho:>13}{shown[0]:>18}{shown[1]:>18}"


if __name__ == "__main__":
    for line in describe_figures(int(sys.argv[1]) if len(sys.argv) > 1 else 2000):
        print(line, flush=True)  # noqa: T201  a command
