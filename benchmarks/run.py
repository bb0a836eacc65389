"""Measure all costs and compare them with their limits: `python -m benchmarks.run [--quick] [--only KIND]`.

A full run writes a file of `results/` for each kind; a quick one takes fewer rounds and writes nothing. The exit code
is 1 when a limit is exceeded by more than the noise of a shared machine, and is so again in a second, longer look.
"""

import json
import platform
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.calls import call_costs
from benchmarks.command_start import start_costs
from benchmarks.cost import Cost
from benchmarks.crowd import FULL, crowd_cost
from benchmarks.durable import durable_costs
from benchmarks.fresh import fresh_costs
from benchmarks.stages import stage_costs
from benchmarks.tracing import tracing_costs
from benchmarks.turns import turn_costs
from tests.machine import Neighbours

RESULTS = Path(__file__).parent / "results"
NEIGHBOURS = Neighbours()
PACKAGES = (
    *("prompty-runtime", "pydantic", "pydantic_core", "PyYAML", "jinja2", "openai", "httpx2"),
    *("dbos", "temporalio"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; the exit code."""
    parser = ArgumentParser(prog="python -m benchmarks.run", description="Compare what prompty costs with its limits.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and no file of results")
    parser.add_argument("--only", metavar="KIND", action="append", help="measure only costs of this kind")
    chosen = parser.parse_args(arguments)
    quick, effort = chosen.quick, 1 if chosen.quick else 2
    kinds: dict[str, Callable[[], list[Cost]]] = {
        "stages": lambda: [
            *measured(lambda rounds: fresh_costs(5 * rounds), effort),
            *measured(lambda rounds: start_costs(5 * rounds), effort),
            *measured(lambda rounds: stage_costs(30 * rounds), effort),
        ],
        "calls": lambda: [*measured(call_costs, effort), crowd_cost(1000 if quick else FULL)],
        "turns": lambda: measured(turn_costs, effort),
        "tracing": lambda: measured(tracing_costs, effort),
        "durable": lambda: measured(durable_costs, effort),
    }
    is_over = False
    for kind in chosen.only or kinds:
        costs = kinds[kind]()
        print(table(costs), flush=True)
        if not quick:
            write(kind, costs)
        is_over |= exceeded(costs)
    return int(is_over)


def measured(measure: Callable[[int], list[Cost]], effort: int) -> list[Cost]:
    """Costs of one kind; the more effort, the less a busy machine shows in them."""
    NEIGHBOURS.wait_until_quiet()
    costs = measure(effort)
    if exceeded(costs):
        print(table(costs), "\nOver a limit. Once more, with three times the rounds:\n", sep="\n", flush=True)
        NEIGHBOURS.wait_until_quiet()
        costs = measure(3 * effort)
    return costs


def exceeded(costs: Iterable[Cost]) -> bool:
    """Whether any limit is."""
    return any(cost.exceeded for cost in costs)


def table(costs: Iterable[Cost]) -> str:
    """One line for each cost."""
    lines = [f"{'cost':<32}{'measured':>8} {'unit':<22}{'limit':>6}  verdict"]
    lines += [f"{cost.name:<32}{cost.figure:>8.3f} {cost.unit:<22}{cost.limit:>6.3g}  {cost.verdict}" for cost in costs]
    return "\n".join(lines)


def write(name: str, costs: Iterable[Cost]) -> None:
    """Keep the figures, and what they were measured with."""
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "packages": {package: version(package) for package in PACKAGES},
        "costs": [rounded(cost) for cost in costs],
    }
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def rounded(cost: Cost) -> dict[str, object]:
    """A cost with the digits that mean something."""
    figures = {name: float(f"{value:.4g}") for name, value in (("figure", cost.figure), ("limit", cost.limit))}
    seconds = {side: float(f"{value:.4g}") for side, value in cost.seconds.items()}
    return {**asdict(cost), **figures, "seconds": seconds, "verdict": cost.verdict}


if __name__ == "__main__":
    sys.exit(main())
