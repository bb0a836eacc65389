"""Source files: imports that a reader sees, and a reason beside each late import and each silenced check."""

import ast
import re
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
EVERYTHING = sorted(chain(SOURCES, *((ROOT / folder).rglob("*.py") for folder in ("tests", "benchmarks", "scripts"))))


# They import what is registered or public by name; a tool's module, an extra or a module of the platform is not ours.
IMPORT_BY_NAME = {
    "src/prompty/__init__.py",
    "src/prompty/concurrency.py",
    "src/prompty/extras.py",
    "src/prompty/registry.py",
    "src/prompty/testing/__init__.py",
    "src/prompty/tools/function.py",
}


def find_in_functions(file: Path) -> list[ast.stmt]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [
        node for function in functions for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def test_an_import_inside_a_function_says_why_it_is_there() -> None:
    unexplained = []
    for file in SOURCES:
        lines = file.read_text(encoding="utf-8").splitlines()
        for node in find_in_functions(file):
            if "  # " not in lines[node.lineno - 1] and not lines[node.lineno - 2].lstrip().startswith("# "):
                unexplained.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert len(SOURCES) > 100
    assert unexplained == []


def imports_by_name(file: Path) -> bool:
    """Return True if a file imports a module whose name is not a text in it, or one of ours."""
    calls = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    names = [node.args[0] for node in calls if ast.unparse(node.func).endswith("import_module")]
    return any(not isinstance(name, ast.Constant) or str(name.value).startswith("prompty") for name in names)


def test_our_own_modules_are_imported_by_statements() -> None:
    named = {str(file.relative_to(ROOT)) for file in SOURCES if imports_by_name(file)}
    assert named <= IMPORT_BY_NAME


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
