"""Measure all costs and compare them with their limits: `python -m benchmarks.run [--quick]`.

A full run writes `results/stages.json`; a quick one takes fewer rounds and writes nothing. The exit code is 1 when
a limit is exceeded by more than the noise of a shared machine, and is so again in a second, longer look.
"""

import json
import platform
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.cost import Cost
from benchmarks.fresh import fresh_costs
from benchmarks.stages import stage_costs

RESULTS = Path(__file__).parent / "results" / "stages.json"
PACKAGES = ("prompty-runtime", "pydantic", "pydantic_core", "PyYAML", "jinja2", "openai")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; the exit code."""
    parser = ArgumentParser(prog="python -m benchmarks.run", description="Compare what prompty costs with its limits.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and no file of results")
    quick = parser.parse_args(arguments).quick
    costs = measured(1 if quick else 2)
    if exceeded(costs):
        print(table(costs), "\nOver a limit. Once more, with three times the rounds:\n", sep="\n")
        costs = measured(3 if quick else 6)
    print(table(costs))
    if not quick:
        RESULTS.write_text(report(costs), encoding="utf-8")
    return int(exceeded(costs))


def measured(effort: int) -> list[Cost]:
    """All costs; the more effort, the less a busy machine shows in them."""
    return fresh_costs(5 * effort) + stage_costs(30 * effort)


def exceeded(costs: Iterable[Cost]) -> bool:
    """Whether any limit is."""
    return any(cost.exceeded for cost in costs)


def table(costs: Iterable[Cost]) -> str:
    """One line for each cost."""
    lines = [f"{'cost':<32}{'measured':>8} {'unit':<22}{'limit':>6}  verdict"]
    lines += [f"{cost.name:<32}{cost.figure:>8.3f} {cost.unit:<22}{cost.limit:>6g}  {cost.verdict}" for cost in costs]
    return "\n".join(lines)


def report(costs: Iterable[Cost]) -> str:
    """The figures and what they were measured with, as JSON."""
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "packages": {package: version(package) for package in PACKAGES},
        "costs": [rounded(cost) for cost in costs],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def rounded(cost: Cost) -> dict[str, object]:
    """A cost with the digits that mean something."""
    seconds = {side: float(f"{value:.4g}") for side, value in cost.seconds.items()}
    return {**asdict(cost), "figure": round(cost.figure, 3), "seconds": seconds, "verdict": cost.verdict}


if __name__ == "__main__":
    sys.exit(main())
