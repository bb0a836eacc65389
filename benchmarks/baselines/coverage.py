"""Branch coverage of each room, compared with what is stored for its files.

Coverage is stored by file and summed by today's map. The figures of a file that is gone are no longer counted, those of
a file that moved are found by the third column of its line, and a new file counts in its room. pytest imports our
plugin before coverage starts, so a few definitions always count as missing.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.baselines.rooms import GOING, Row

TOLERANCE = 0.3  # points
KEYS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


class Covered(NamedTuple):
    """Statements and branches, and how many of them ran."""

    statements: int
    covered_statements: int
    branches: int
    covered_branches: int

    @property
    def percent(self) -> float:
        every = self.statements + self.branches
        return 100 * (self.covered_statements + self.covered_branches) / every if every else 100.0


class RoomCoverage(NamedTuple):
    """The stored and the measured coverage of one room."""

    room: str
    before: Covered
    now: Covered

    @property
    def change(self) -> float:
        """Points gained. A room that is new cannot lose any."""
        return self.now.percent - self.before.percent if any(self.before) else 0.0

    @property
    def is_low(self) -> bool:
        return self.room != GOING and self.change < -TOLERANCE


def read_report(report: Path) -> dict[str, Covered]:
    """Return the coverage of each file of the package, by its path there, from coverage's JSON report."""
    content = json.loads(report.read_text(encoding="utf-8"))
    if not content["meta"]["branch_coverage"]:
        raise SystemExit(f"{report} has no branches. Measure with `make coverage`, which passes --cov-branch.")
    return {
        name.replace("\\", "/").partition("src/prompty/")[2]: Covered(*(measured["summary"][key] for key in KEYS))
        for name, measured in content["files"].items()
    }


def read_stored(file: Path) -> dict[str, Covered]:
    return {path: Covered(*figures) for path, figures in json.loads(file.read_text(encoding="utf-8")).items()}


def write_stored(file: Path, measured: Mapping[str, Covered]) -> None:
    """Store the coverage of each file, one on a line."""
    lines = [f"  {json.dumps(path)}: {list(figures)}" for path, figures in sorted(measured.items())]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def compare(
    stored: Mapping[str, Covered], measured: Mapping[str, Covered], rows: Mapping[str, Row]
) -> list[RoomCoverage]:
    """Return the coverage of each room before and now. Every file must be measured, and have a line in the map."""
    if unknown := sorted(measured.keys() - rows.keys()):
        raise SystemExit(f"rooms.tsv has no line for {', '.join(unknown)}. Add one with its planned room.")
    if missing := sorted(rows.keys() - measured.keys()):
        raise SystemExit(f"Coverage was not measured for {', '.join(missing)}. Run `make coverage` again.")
    before: dict[str, list[Covered]] = defaultdict(list)
    now: dict[str, list[Covered]] = defaultdict(list)
    for path, row in rows.items():
        before[row.room] += [stored[name] for name in {path, *row.was} if name in stored]
        now[row.room].append(measured[path])
    return [RoomCoverage(room, _add(before[room]), _add(now[room])) for room in sorted(now)]


def _add(figures: Iterable[Covered]) -> Covered:
    return Covered(*(sum(column) for column in zip((0, 0, 0, 0), *figures, strict=True)))
