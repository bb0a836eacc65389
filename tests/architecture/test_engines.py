"""Durable engines are used by their public names, so that a release of theirs breaks nothing unannounced."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
ENGINES = ("dbos", "temporalio")
PRIVATE_MODULE = re.compile(r"\b(dbos|temporalio)(\.\w+)*\._\w+")
# Public in spite of their names: those of named tuples, and of the standard library.
PUBLIC = {"_asdict", "_replace", "_fields", "_make", "_exit"}


def find_private_names(source: str, *, follows_objects: bool) -> Iterator[str]:
    """Yield modules and attributes whose names begin with an underscore: imported, written in a text, and, if it
    `follows_objects`, of anything but the object itself."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (one.name for one in names if PRIVATE_MODULE.search(one.name))
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] in ENGINES:
                if PRIVATE_MODULE.search(module):
                    yield module
                yield from (f"{module}.{one.name}" for one in names if one.name.startswith("_"))
            case ast.Constant(value=str(text)) if (found := PRIVATE_MODULE.search(text)) is not None:
                yield found[0]
            case ast.Attribute(value=value, attr=name) if follows_objects and _is_private(name):
                if not (isinstance(value, ast.Name) and value.id in ("self", "cls")):
                    yield name
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                if follows_objects and _is_private(name):
                    yield name


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def test_no_private_name_of_an_engine_is_used() -> None:
    found: set[str] = set()
    for file in SOURCES:
        source, path = file.read_text(encoding="utf-8"), str(file.relative_to(ROOT))
        follows = "/durable/" in path or any(f"import {engine}" in source for engine in ENGINES)
        found |= {f"{path}: {name}" for name in find_private_names(source, follows_objects=follows)}
    assert found == set()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from dbos._sys_db import SystemDatabase", "dbos._sys_db"),
        ("import dbos._core", "dbos._core"),
        ("from dbos import _core", "dbos._core"),
        ("from temporalio.worker._workflow import x", "temporalio.worker._workflow"),
        ("client._sys_db.engine", "_sys_db"),
        ("self.client._sys_db", "_sys_db"),
        ("self._client._sys_db", "_sys_db"),
        ("getattr(client, '_sys_db')", "_sys_db"),
        ("import_module('dbos._sys_db')", "dbos._sys_db"),
    ],
)
def test_private_names_are_found_however_they_are_reached(source: str, name: str) -> None:
    assert name in set(find_private_names(source, follows_objects=True))


def test_own_names_and_public_ones_are_none() -> None:
    source = "from dbos import DBOS, error\nself._client.send()\ncls._x\nrow._asdict()\nos._exit(0)\nDBOS.__doc__"
    assert set(find_private_names(source, follows_objects=True)) == set()
