"""Tiers: a test that starts something has the mark for it, and every tier can be run alone."""

import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tiers import FIXTURES, FOLDERS, TIERS, fail_if_unmarked

ROOT = Path(__file__).parents[2]


@pytest.mark.process
def test_a_test_without_a_mark_that_starts_a_process_fails(request: pytest.FixtureRequest) -> None:
    unmarked: Any = SimpleNamespace(get_closest_marker=lambda _: None)
    fail_if_unmarked(unmarked)
    subprocess.run([sys.executable, "-c", ""], check=True)
    fail_if_unmarked(request.node)
    with pytest.raises(pytest.fail.Exception, match=r"starts a process .* Mark it with @pytest\.mark\.process"):
        fail_if_unmarked(unmarked)


def test_every_tier_is_a_mark_and_a_target() -> None:
    marks = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    assert {mark.partition(":")[0] for mark in marks if not mark.startswith("spec(")} == TIERS
    [line] = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("TIERS :=")]
    assert set(line.split()[2:]) == TIERS


def test_marks_by_folder_and_by_fixture_name_tiers_and_folders_that_exist() -> None:
    assert {*FOLDERS.values(), *FIXTURES.values()} <= TIERS
    assert all((ROOT / folder).is_dir() for folder in FOLDERS)
