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
    "src/prompty/lazy.py",
    "src/prompty/registry.py",
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
    source = file.read_text(encoding="utf-8")
    if "import_module" not in source:
        return False
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
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


VALIDATORS = ROOT / "src/prompty/safety/schemas.py"
VALIDATION_LIBRARIES = ("jsonschema_rs", "jsonschema", "fastjsonschema")


def imports_validators(source: str) -> bool:
    """Return True if code can reach a library that builds validators. Imports for types alone don't count."""
    if not any(library in source for library in VALIDATION_LIBRARIES):
        return False
    tree = ast.parse(source)
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    for_types = {id(inner) for block in blocks for statement in block.body for inner in ast.walk(statement)}
    names: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import() if id(node) not in for_types:
                names += [alias.name for alias in node.names]
            case ast.ImportFrom() if id(node) not in for_types:
                names.append(node.module or "")
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if "import" in ast.unparse(node.func):
                names.append(name)
            case ast.Subscript(slice=ast.Constant(value=str(name))) if ast.unparse(node.value).endswith("modules"):
                names.append(name)
    return any(name.partition(".")[0] in VALIDATION_LIBRARIES for name in names)


def test_one_module_builds_validators() -> None:
    assert imports_validators(VALIDATORS.read_text(encoding="utf-8"))
    others = [file for file in SOURCES if file != VALIDATORS]
    assert [file for file in others if imports_validators(file.read_text(encoding="utf-8"))] == []


def test_an_import_of_validators_is_found_in_every_form() -> None:
    for source in (
        "import jsonschema_rs",
        "import json, jsonschema_rs as rs",
        "from jsonschema_rs import validator_for",
        "from jsonschema_rs import meta, is_valid, validate",
        "from jsonschema_rs.jsonschema_rs import Draft7Validator",
        "def f():\n    from jsonschema_rs import Draft202012Validator as Checker",
        "from importlib import import_module\nimport_module('jsonschema_rs').validator_for({})",
        "__import__('jsonschema_rs')",
        "import sys\nsys.modules['jsonschema_rs']",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import jsonschema_rs",
        "import jsonschema",
    ):
        assert imports_validators(source), source
    assert not imports_validators("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import jsonschema_rs")


def test_every_validator_is_built_with_the_refusal_of_references() -> None:
    calls = [node for node in ast.walk(ast.parse(VALIDATORS.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    names = {node: ast.unparse(node.func) for node in calls if ast.unparse(node.func).startswith("jsonschema_rs.")}
    built = [node for node, name in names.items() if not name.endswith("Options")]
    assert sorted(ast.unparse(node.func) for node in built) == [
        "jsonschema_rs.meta.is_valid",  # it takes no retriever, and its schema names a known dialect
        "jsonschema_rs.validator_for",
    ]
    [factory] = [node for node in built if ast.unparse(node.func) == "jsonschema_rs.validator_for"]
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in factory.keywords}
    assert given["retriever"] == "_refuse_reference"
