"""Print the coverage of each package, and fail below the floors.

    python -m scripts.coverage_figures build/coverage.json

The figures are those of the fast tests alone. pytest imports our plugin before it measures, so
a few definitions that the plugin needs count as missing.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

FLOORS = {"model": 97, "wire": 97, "loop": 96, "parsers": 98, "providers": 86, "pipeline": 96}


class Figure(NamedTuple):
    """Statements that ran, of those that exist."""

    covered: int
    all: int

    @property
    def percent(self) -> float:
        return 100 * self.covered / self.all if self.all else 100.0


def sum_packages(files: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[str, Figure]:
    """Return the figure of each package of `src/prompty`. Modules at the top are a package of their own name."""
    figures: dict[str, Figure] = {}
    for name, measured in files.items():
        package = PurePosixPath(name.replace("\\", "/").partition("src/prompty/")[2]).parts[0].removesuffix(".py")
        summary, before = measured["summary"], figures.get(package, Figure(0, 0))
        figures[package] = Figure(before.covered + summary["covered_lines"], before.all + summary["num_statements"])
    return figures


def find_low(figures: Mapping[str, Figure]) -> list[str]:
    """Return a sentence for each package below its floor, or without a figure."""
    return [
        f"{package} has {figures[package].percent:.1f} % and needs {floor} %"
        if package in figures
        else f"{package} has no figure: was it renamed?"
        for package, floor in FLOORS.items()
        if package not in figures or figures[package].percent < floor
    ]


def main(report: Path) -> None:
    """Print a line for each package, then fail if one is low."""
    figures = sum_packages(json.loads(report.read_text(encoding="utf-8"))["files"])
    for package, figure in sorted(figures.items()):
        floor = f"  floor {FLOORS[package]} %" if package in FLOORS else ""
        print(f"{figure.percent:6.1f} %  {figure.covered:6} of {figure.all:6}  {package}{floor}")
    if low := find_low(figures):
        sys.exit("\n".join(low))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
