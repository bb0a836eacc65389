"""Source files: no hidden imports, and a reason beside each silenced check."""

import ast
import re
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
EVERYTHING = sorted(chain(SOURCES, *((ROOT / folder).rglob("*.py") for folder in ("tests", "benchmarks", "scripts"))))


def hidden_imports(file: Path) -> list[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = [node for function in functions for node in ast.walk(function)]
    lines = [node.lineno for node in inner if isinstance(node, ast.Import | ast.ImportFrom)]
    return [f"{file.relative_to(ROOT)}:{line}" for line in lines]


def test_nothing_is_imported_inside_a_function() -> None:
    assert len(SOURCES) > 100
    assert [place for file in SOURCES for place in hidden_imports(file)] == []


SILENCED = re.compile(r"#\s*(type: ignore|noqa|pragma: no cover)(.*)")
NAMED_WITH_REASON = re.compile(r"[\[:]\s*[\w-]+\]?\s+(#\s*)?(noqa: \w+\s+)?\S+ \w+")


def silenced_without_reason(file: Path) -> list[str]:
    lines = enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
    return [
        f"{file.relative_to(ROOT)}:{number}"
        for number, line in lines
        if (found := SILENCED.search(line)) and not NAMED_WITH_REASON.match(found[2])
    ]


def test_a_silenced_check_names_itself_and_its_reason() -> None:
    files = [file for file in EVERYTHING if file != Path(__file__)]
    assert [place for file in files for place in silenced_without_reason(file)] == []
