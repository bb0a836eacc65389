"""Source files: imports that a reader sees, and a reason beside each late import and each silenced check."""

import ast
import re
from itertools import chain
from pathlib import Path
from typing import TypeGuard

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


WRITER = ROOT / "src/prompty/safety/write_files.py"
STORE = ROOT / "src/prompty/memory/sqlite.py"  # SQLite opens its file itself, after the writer has created it
WRITING_NAMES = {
    *("write_text", "write_bytes", "touch", "mkdir", "makedirs", "mknod", "mkfifo", "truncate", "symlink_to"),
    *("NamedTemporaryFile", "mkstemp", "FileIO"),
    *("copyfile", "copy2", "copytree"),
}
WRITING_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC"}


def find_writing(source: str) -> list[str]:
    """Return the places of a module that open a file for writing, or create a folder, by any of Python's ways."""
    tree = ast.parse(source)
    nothing = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and "os.devnull" in ast.unparse(node)]
    kept = {id(inner) for call in nothing for inner in ast.walk(call)}
    return [f"{node.lineno}: {ast.unparse(node)}" for node in ast.walk(tree) if id(node) not in kept and _writes(node)]


def _writes(node: ast.AST) -> TypeGuard[ast.expr | ast.ImportFrom]:
    match node:
        case ast.Attribute(attr=name) | ast.Constant(value=str(name)) if name in WRITING_FLAGS:
            return True
        case ast.ImportFrom(module=str(module), names=names) if module in ("os", "tempfile", "io", "shutil"):
            return any(alias.name in WRITING_NAMES | {"open"} for alias in names)
        case ast.Call(func=ast.Attribute(attr=name)) if name in WRITING_NAMES:
            return True
        case ast.Call(func=ast.Name(id="open")):
            return _has_writing_mode(node, 1)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr="open")):
            return False  # its flags are found above
        case ast.Call(func=ast.Attribute(value=ast.Name(id="io"), attr="open")):
            return _has_writing_mode(node, 1)
        case ast.Call(func=ast.Attribute(attr="open")):
            return _has_writing_mode(node, 0)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="sqlite3"), attr="connect"), args=[place, *_]):
            return not (isinstance(place, ast.Constant) and place.value == "")  # which is private, and removed
    return False


def _has_writing_mode(call: ast.Call, position: int) -> bool:
    """Return True unless the mode of a call of `open` is a text that only reads."""
    given = [keyword.value for keyword in call.keywords if keyword.arg == "mode"] or call.args[position : position + 1]
    modes = [mode.value for mode in given if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
    return any(set(mode) & set("wax+") for mode in modes) and all(set(mode) <= set("rwaxbt+") for mode in modes)


def test_one_module_opens_files_for_writing() -> None:
    assert find_writing(WRITER.read_text(encoding="utf-8"))
    others = [file for file in SOURCES if file not in (WRITER, STORE)]
    assert {file.name: found for file in others if (found := find_writing(file.read_text(encoding="utf-8")))} == {}
    assert [place.partition(": ")[2] for place in find_writing(STORE.read_text(encoding="utf-8"))] == [
        "sqlite3.connect(self.path, timeout=30)"
    ]


def test_every_way_of_writing_a_file_is_found() -> None:
    for source in (
        "open(path, 'w')",
        "open(path, mode='ab')",
        "open(path, 'r+')",
        "io.open(path, 'x')",
        "path.open('w', encoding='utf-8')",
        "path.open(mode='wb')",
        "path.write_text(text)",
        "Path('a').write_bytes(b'')",
        "path.touch(mode=0o600)",
        "path.mkdir(parents=True)",
        "os.makedirs(path)",
        "os.open(path, os.O_CREAT)",
        "flags = os.O_RDONLY | os.O_APPEND",
        "flags = getattr(os, 'O_TRUNC', 0)",
        "os.truncate(path, 0)",
        "tempfile.NamedTemporaryFile('w')",
        "from tempfile import NamedTemporaryFile as Draft",
        "tempfile.mkstemp()",
        "shutil.copyfile(a, b)",
        "sqlite3.connect(path)",
    ):
        assert find_writing(source), source
    for source in (
        "open(path, 'rb')",
        "path.open('rb')",
        "path.open()",
        "os.open(path, os.O_RDONLY)",
        "workspace.open(uri, text, 'prompty')",
        "sqlite3.connect('')",
        "write_bytes(value)",
        "from tempfile import TemporaryDirectory, TemporaryFile",  # private, and removed
        "os.open(os.devnull, os.O_WRONLY)",
    ):
        assert not find_writing(source), source
