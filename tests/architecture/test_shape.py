"""The shape of the code: short functions, whole files, no hidden imports, reasons beside silenced checks."""

import ast
import re
from itertools import chain
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
EVERYTHING = sorted(chain(SOURCES, *((ROOT / folder).rglob("*.py") for folder in ("tests", "benchmarks", "scripts"))))
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions_in(file: Path) -> list[Function]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def test_the_median_function_has_fewer_than_12_lines() -> None:
    assert median(length(function) for file in SOURCES for function in functions_in(file)) < 12


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_is_read_in_one_sitting_and_a_function_fits_half_a_screen(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 400
    assert all(length(function) <= 40 for function in functions_in(file))


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_is_imported_inside_a_function(file: Path) -> None:
    inner = [node for function in functions_in(file) for node in ast.walk(function)]
    assert not [node for node in inner if isinstance(node, ast.Import | ast.ImportFrom)]


SILENCED = re.compile(r"#\s*(type: ignore|noqa|pragma: no cover)(.*)")


@pytest.mark.parametrize("file", EVERYTHING, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_silenced_check_names_itself_and_its_reason(file: Path) -> None:
    if file == Path(__file__):
        return
    for line in file.read_text(encoding="utf-8").splitlines():
        if found := SILENCED.search(line):
            assert re.match(r"[\[:]\s*[\w-]+\]?\s+(#\s*)?(noqa: \w+\s+)?\S+ \w+", found[2]), line
