"""Print what moved since the baselines were stored: `python -m benchmarks.baselines [--write] [PART…]`.

The parts are `coverage`, `house`, `costs` and `mistakes`. Without names, the figures of the house are compared, and
coverage if `make coverage` has measured the sources as they are. Only coverage fails: a room may lose 0.3 points.
`costs` takes minutes and wants a quiet machine. `--write` stores today's figures. `--doors ROOM` lists the doors of a
planned room, and who uses them.
"""

import ast
import json
import os
import subprocess
import sys
import tomllib
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

from benchmarks.baselines import coverage
from benchmarks.baselines.house import Figures, Order, Package, count_code, find_doors, measure_house, sum_rooms
from benchmarks.baselines.rooms import GOING, ORDER, get_folder, read_rooms
from benchmarks.baselines.walk import measure_walk
from benchmarks.compare import BASELINE, compare_commit

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCES = ROOT / "src" / "prompty"
REPORT = ROOT / "build" / "coverage.json"
COVERAGE, HOUSE, COSTS = (HERE / f"{name}.json" for name in ("coverage", "house", "costs"))
OTHERS = {"pydantic-ai-slim": "pydantic_ai", "httpx": "httpx"}


def main() -> int:
    """Compare or store; the exit code."""
    parts = {"coverage": check_coverage, "house": report_house, "costs": report_costs, "mistakes": report_mistakes}
    parser = ArgumentParser(prog="python -m benchmarks.baselines", description="Print what moved since the baselines.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--write", action="store_true", help="store today's figures")
    parser.add_argument("--doors", metavar="ROOM", help="list the doors of a planned room, and who uses them")
    chosen = parser.parse_args()
    if unknown := {*chosen.parts} - parts.keys():
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    if chosen.doors:
        print(*list_doors(chosen.doors), sep="\n")
        return 0
    names = chosen.parts or [*(["coverage"] if is_measured() else []), "house"]
    if "coverage" not in names and not chosen.parts:
        print("coverage: not measured since the sources changed; run `make coverage`\n")
    return max(parts[name](write=chosen.write) for name in names)


def is_measured() -> bool:
    """Return True if coverage's report is newer than the sources."""
    return REPORT.exists() and REPORT.stat().st_mtime > max(file.stat().st_mtime for file in SOURCES.rglob("*.py"))


def check_coverage(*, write: bool) -> int:
    """Print each room whose coverage moved; 1 if one has lost more than the tolerance and that is not stored."""
    if not REPORT.exists():
        raise SystemExit(f"There is no {REPORT.relative_to(ROOT)}. Measure with `make coverage`.")
    measured = coverage.read_report(REPORT)
    rooms = coverage.compare(coverage.read_stored(COVERAGE), measured, read_rooms())
    moved = [one for one in rooms if one.change or not any(one.before)]
    print(f"branch coverage by planned room: {f'{len(moved)} moved' if moved else 'as stored'}")
    for one in moved:
        change = f"{one.before.percent:.2f} → {one.now.percent:.2f} {one.change:+.2f}" if any(one.before) else "new"
        print(f"  {one.room:<24}{change}{'  too low' if one.is_low else ''}")
    if write:
        coverage.write_stored(COVERAGE, measured)
    return int(not write and any(one.is_low for one in rooms))


def report_house(*, write: bool) -> int:
    """Print the figures of the layout that moved."""
    os.environ.pop("PROMPTY_TRACE", None)  # a trace would be part of the turn
    stored = read_json(HOUSE)
    figures = {**measure_package(), "one turn over HTTP": measure_walk()}
    others = measure_others() if write else stored["others"]
    print(*list_moved(stored["figures"], figures), sep="\n")
    totals = ", ".join(f"{name} {one['caches']} and {one['states']}" for name, one in others.items())
    print(f"caches and states: {figures['caches']['total']} and {figures['states']['total']} ({totals})\n")
    if write:
        write_json(HOUSE, {"figures": figures, "others": others})
    return 0


def report_costs(*, write: bool) -> int:
    """Print the costs here and at the commit whose costs are stored, both measured now."""
    rows = compare_commit(BASELINE)
    if write:
        packages = {name: version(name) for name in ("openai", "httpx2", "pydantic")}
        shares = {name: round(row.shares["before"], 3) for name, row in rows.items()}
        write_json(COSTS, {"commit": BASELINE, "packages": packages, "share of the openai SDK": shares})
    stored = read_json(COSTS)["share of the openai SDK"]
    print(
        *(f"{name:<12} stored {stored[name]:.2f}, now {row.shares['after']:.2f}" for name, row in rows.items()),
        sep="\n",
    )
    return 0


def report_mistakes(*, write: bool) -> int:
    """Make people's mistakes again, and print which messages have changed."""
    command = [sys.executable, "-m", "benchmarks.mistakes", *(["--write"] if write else [])]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def read_layouts() -> dict[str, tuple[dict[str, str], Order]]:
    """Return today's folders with the layers that import-linter enforces, and the planned rooms."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = [layer.replace("|", " ").split() for layer in project["tool"]["importlinter"]["contracts"][0]["layers"]]
    rows = read_rooms()
    planned = {path: row.room for path, row in rows.items() if row.room != GOING}
    return {"folder": ({path: get_folder(path) for path in rows}, layers), "planned room": (planned, ORDER)}


def measure_package() -> Figures:
    """Return the figures of the package and of its tests."""
    figures = measure_house(Package(SOURCES), read_layouts())
    tests = [(file, file.read_text(encoding="utf-8")) for file in sorted((ROOT / "tests").rglob("*.py"))]
    lines = sum(len(source.splitlines()) for _, source in tests)
    code = sum_rooms(
        (get_folder(file.relative_to(ROOT / "tests").as_posix()), count_code(source, ast.parse(source)))
        for file, source in tests
    )
    return {**figures, "code lines of tests": code, "tests": {"files": len(tests), "lines": lines}}


def measure_others() -> dict[str, dict[str, object]]:
    """Measure the caches and states of the packages that ours is compared with, from their newest wheels."""
    found: dict[str, dict[str, object]] = {}
    for name, module in OTHERS.items():
        with TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--dest", folder, name]
            subprocess.run(command, check=True)
            [wheel] = Path(folder).glob("*.whl")
            ZipFile(wheel).extractall(folder)
            package = Package(Path(folder, module))
            everything = {file.path: module for file in package.files.values()}
            figures = measure_house(package, {name: (everything, [])})
        counts = {kind: figures[kind]["total"] for kind in ("caches", "states")}
        found[name] = {"version": wheel.name.split("-")[1], **counts}
    return found


def list_moved(stored: Figures, now: Figures) -> Iterator[str]:
    """Yield a line for each figure that is not what is stored."""
    for table in [*now, *(table for table in stored if table not in now)]:
        before, after = stored.get(table, {}), now.get(table, {})
        moved = [name for name in {**before, **after} if before.get(name, 0) != after.get(name, 0)]
        yield f"{table}: {f'{len(moved)} moved' if moved else 'as stored'}"
        for name in moved:
            old, new = before.get(name, 0), after.get(name, 0)
            yield f"  {name:<24}{old:>8,} → {new:<8,}{new - old:+,}"


def list_doors(room: str) -> Iterable[str]:
    """Return a line for each door of a planned room."""
    rooms, _ = read_layouts()["planned room"]
    doors = find_doors(Package(SOURCES), rooms).get(room, {})
    return (f"{door.module}:{door.name} ← {', '.join(sorted(users))}" for door, users in sorted(doors.items()))


def read_json(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
