"""Baselines: every source file has a room, coverage may not fall, and the layout of a package is measured right."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.baselines import coverage
from benchmarks.baselines.coverage import Covered
from benchmarks.baselines.house import Door, Package, find_doors, measure_house
from benchmarks.baselines.rooms import GOING, ORDER, Row, get_folder, read_rooms
from benchmarks.baselines.walk import measure_walk
from benchmarks.compare import extract_sources

SOURCES = Path(__file__).parents[2] / "src" / "prompty"


def test_every_source_file_has_one_line_in_the_map_of_rooms() -> None:
    files = {file for file in SOURCES.rglob("*.py") if (file.parent / "__init__.py").exists()}
    assert {*read_rooms()} == {file.relative_to(SOURCES).as_posix() for file in files}


def test_the_map_names_only_planned_rooms() -> None:
    planned = {GOING, "__init__", "version", *(room for level in ORDER for room in level)}
    assert {row.room for row in read_rooms().values()} <= planned


def test_a_second_line_for_a_file_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "rooms.tsv"
    file.write_text("# a comment\na.py\tprompt\nb.py\tprompt\told.py older.py\na.py\ttools\n")
    with pytest.raises(ValueError, match=r"rooms\.tsv:4: a second line for a\.py"):
        read_rooms(file)
    file.write_text(file.read_text().replace("a.py\ttools\n", ""))
    assert read_rooms(file) == {"a.py": Row("prompt"), "b.py": Row("prompt", ("old.py", "older.py"))}


def cover(percent: float, statements: int = 1000) -> Covered:
    return Covered(statements, round(statements * percent / 100), 0, 0)


STORED = {"loop/a.py": cover(90), "loop/b.py": cover(50), "wire/c.py": cover(80)}
ROWS = {"loop/a.py": Row("runtime"), "loop/b.py": Row("runtime"), "wire/c.py": Row("providers")}
MEASURED: dict[str, tuple[Mapping[str, Covered], Mapping[str, Row], list[str]]] = {
    "nothing moved": (STORED, ROWS, []),
    "0.3 points of a room are tolerated": ({**STORED, "wire/c.py": cover(79.7)}, ROWS, []),
    "0.4 points are not": ({**STORED, "wire/c.py": cover(79.6)}, ROWS, ["providers"]),
    "one file may fall if another of its room rises": (
        {**STORED, "loop/a.py": cover(80), "loop/b.py": cover(60)},
        ROWS,
        [],
    ),
    "a well covered file that is removed leaves the baseline": (
        {path: STORED[path] for path in ("loop/b.py", "wire/c.py")},
        {path: ROWS[path] for path in ("loop/b.py", "wire/c.py")},
        [],
    ),
    "a badly covered file that is removed does not hide a loss": (
        {"loop/a.py": cover(89), "wire/c.py": cover(80)},
        {path: ROWS[path] for path in ("loop/a.py", "wire/c.py")},
        ["runtime"],
    ),
    "a new file counts in its room": (
        {**STORED, "wire/new.py": cover(70)},
        {**ROWS, "wire/new.py": Row("providers")},
        ["providers"],
    ),
    "a file that moved keeps its baseline": (
        {"runtime/a.py": cover(89), "runtime/b.py": cover(50), "wire/c.py": cover(80)},
        {
            "runtime/a.py": Row("runtime", ("loop/a.py",)),
            "runtime/b.py": Row("runtime", ("loop/b.py",)),
            "wire/c.py": Row("providers"),
        },
        ["runtime"],
    ),
    "two files that were joined keep the baseline of both": (
        {"runtime/ab.py": cover(69.5, statements=2000), "wire/c.py": cover(80)},
        {"runtime/ab.py": Row("runtime", ("loop/a.py", "loop/b.py")), "wire/c.py": Row("providers")},
        ["runtime"],
    ),
    "a room without a baseline is only reported": (
        {**STORED, "dev/page.py": cover(1)},
        {**ROWS, "dev/page.py": Row("dev")},
        [],
    ),
    "a file that will be removed is not held": (
        {**STORED, "wire/c.py": cover(1)},
        {**ROWS, "wire/c.py": Row(GOING)},
        [],
    ),
}


@pytest.mark.parametrize(("measured", "rows", "low"), MEASURED.values(), ids=MEASURED)
def test_a_room_may_not_lose_coverage(measured: Mapping[str, Covered], rows: Mapping[str, Row], low: list[str]) -> None:
    assert [one.room for one in coverage.compare(STORED, measured, rows) if one.is_low] == low


def test_a_file_without_a_line_or_a_figure_stops_the_comparison() -> None:
    with pytest.raises(SystemExit, match=r"rooms\.tsv has no line for new\.py\. Add one"):
        coverage.compare(STORED, {**STORED, "new.py": cover(100)}, ROWS)
    with pytest.raises(SystemExit, match=r"not measured for wire/d\.py\. Run `make coverage`"):
        coverage.compare(STORED, STORED, {**ROWS, "wire/d.py": Row("providers")})


def write_report(file: Path, *, branches: bool) -> Path:
    summary = {"num_statements": 5, "covered_lines": 3, "num_branches": 3, "covered_branches": 1}
    files = {"src/prompty/wire/c.py": {"summary": summary}, "src\\prompty\\errors.py": {"summary": summary}}
    file.write_text(json.dumps({"meta": {"branch_coverage": branches}, "files": files}))
    return file


def test_statements_and_branches_are_read_and_stored_by_file(tmp_path: Path) -> None:
    measured = coverage.read_report(write_report(tmp_path / "report.json", branches=True))
    assert measured == {"wire/c.py": Covered(5, 3, 3, 1), "errors.py": Covered(5, 3, 3, 1)}
    assert measured["errors.py"].percent == 50
    coverage.write_stored(tmp_path / "stored.json", measured)
    assert coverage.read_stored(tmp_path / "stored.json") == measured


def test_a_report_without_branches_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no branches"):
        coverage.read_report(write_report(tmp_path / "report.json", branches=False))


TINY = {
    "__init__.py": '"""The face."""\nfrom tiny.top.run import run as run\n',
    "base.py": '''\
"""A text of
two lines."""
from functools import lru_cache  # code

# A comment.
VALUES: dict[str, int] = {}
LIMIT = {"a": 1}
TEXT = """
# no comment
"""


@lru_cache(maxsize=1)
def parse(text):
    """Parse."""
    return text


class Kind:
    pass
''',
    "mid/__init__.py": "from .store import Store as Store, keep as keep\n",
    "mid/store.py": """\
import threading

from tiny import base
from tiny.base import Kind

LOCK = threading.Lock()


class Store(Kind):
    limit = base.LIMIT


def keep(base: "Kind"):
    return base.hidden


def drop():
    base = keep
    return base.hidden
""",
    "top/__init__.py": "",
    "top/run.py": """\
from __future__ import annotations

from typing import TYPE_CHECKING

import tiny.mid as mid
from .. import base

if TYPE_CHECKING:
    from tiny.mid.store import Store


def run(store: Store) -> "base.Kind":
    from tiny.mid.store import LOCK, drop

    with LOCK:
        return mid.keep(store)
""",
    "top/back.py": "import tiny\nfrom tiny.base import TEXT\n\nAGAIN = tiny.run, [one for one in ()]\n",
    "data/template.py": "not = python\n",
}


@pytest.fixture
def tiny(tmp_path: Path) -> Package:
    for path, source in TINY.items():
        file = tmp_path / "tiny" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    return Package(tmp_path / "tiny")


def test_doors_are_names_that_other_rooms_use_in_any_way(tiny: Package) -> None:
    doors = find_doors(tiny, {file.path: get_folder(file.path) for file in tiny.files.values()})
    assert doors == {
        "base": {
            Door("tiny.base", "LIMIT"): {"mid"},
            Door("tiny.base", "Kind"): {"mid", "top"},
            Door("tiny.base", "TEXT"): {"top"},
        },
        "mid": {
            Door("tiny.mid.store", "Store"): {"top"},
            Door("tiny.mid.store", "LOCK"): {"top"},
            Door("tiny.mid.store", "keep"): {"top"},
            Door("tiny.mid.store", "drop"): {"top"},
        },
    }


def test_a_map_moves_files_to_other_rooms_and_leaves_out_those_that_go(tiny: Package) -> None:
    rooms = {"base.py": "ground", "mid/store.py": "ground", "top/run.py": "top", "top/back.py": "back"}
    assert find_doors(tiny, rooms) == {
        "ground": {
            Door("tiny.base", "Kind"): {"top"},
            Door("tiny.base", "TEXT"): {"back"},
            Door("tiny.mid.store", "Store"): {"top"},
            Door("tiny.mid.store", "LOCK"): {"top"},
            Door("tiny.mid.store", "keep"): {"top"},
            Door("tiny.mid.store", "drop"): {"top"},
        },
        "top": {Door("tiny.top.run", "run"): {"back"}},
    }


def test_code_levels_caches_and_states_are_counted_for_each_room(tiny: Package) -> None:
    rooms = {file.path: get_folder(file.path) for file in tiny.files.values()}
    assert measure_house(tiny, {"folder": (rooms, [["top"], ["free"], ["mid"], ["base"]])}) == {
        "code lines by folder": {"__init__": 1, "base": 11, "mid": 12, "top": 13, "total": 37},
        "doors by folder": {"base": 3, "mid": 4, "total": 7},
        "levels by folder": {
            "in use": 3,
            "longest chain": 3,
            "rooms in circles": 0,
            "arrows up or sideways": 0,
            "rooms without a level": 0,
        },
        "caches": {"base": 1, "total": 1},
        "states": {"base": 1, "mid": 1, "total": 2},
    }


def test_rooms_that_reach_each_other_are_a_circle_and_one_link_of_the_chain(tiny: Package) -> None:
    circle = {"base.py": "a", "mid/store.py": "b", "mid/__init__.py": "b", "top/run.py": "a"}
    rooms = {**circle, "top/back.py": "c", "top/__init__.py": "c", "__init__.py": "__init__"}
    assert measure_house(tiny, {"map": (rooms, [["c"], ["a"]])})["levels by map"] == {
        "in use": 2,
        "longest chain": 2,
        "rooms in circles": 2,
        "arrows up or sideways": 0,
        "rooms without a level": 1,
    }
    for order, against in (([["b", "c"], ["a"]], 1), ([["a", "b"], ["c"]], 3)):
        assert measure_house(tiny, {"map": (rooms, order)})["levels by map"]["arrows up or sideways"] == against


def test_a_turn_over_http_walks_through_the_package() -> None:
    walk = measure_walk()
    assert 2 <= walk["rooms"] <= walk["files"] <= walk["switches of file"]


@pytest.mark.process
def test_a_commit_that_the_clone_lacks_is_named_with_what_to_do() -> None:
    with (
        pytest.raises(SystemExit, match=r"(?s)Cannot read commit 0123456789: .*git fetch --unshallow"),
        extract_sources("0123456789"),
    ):
        pass
