"""Modules as a graph of every import: at the top, for types alone, inside a function, or by name."""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]


def name_module(file: Path) -> str:
    return ".".join(file.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_module(file): file for file in SOURCES.rglob("*.py")}


def find_imports(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            submodules = [f"{node.module}.{name.name}" for name in node.names]
            yield from (name if name in MODULES else str(node.module) for name in submodules)
        elif isinstance(node, ast.Call) and name_function(node.func).endswith("import_module"):
            yield from (str(value.value) for value in node.args if isinstance(value, ast.Constant))


def name_function(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


@cache
def build_graph() -> dict[str, set[str]]:
    return {module: {name for name in find_imports(module) if name in MODULES} - {module} for module in MODULES}


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert len(build_graph()) > 200
    try:
        TopologicalSorter(build_graph()).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(reversed(error.args[1])))


# It gives frameworks the names of layers above it, which its own modules must not see: none of ours imports it.
FACADE = "prompty.pipeline"


def test_no_module_of_ours_imports_the_names_for_frameworks() -> None:
    assert [module for module, names in build_graph().items() if FACADE in names] == []


def get_room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def test_no_module_imports_one_of_a_higher_layer() -> None:
    layers = enumerate(CONTRACTS[0]["layers"])
    depths = {f"prompty.{room.strip()}": depth for depth, layer in layers for room in layer.split("|")}
    edges = [(module, imported) for module, names in build_graph().items() if module != FACADE for imported in names]
    rooms = [(get_room(module), get_room(imported)) for module, imported in edges]
    upwards = [
        f"{module} → {imported}"
        for (module, imported), (room, other) in zip(edges, rooms, strict=True)
        if room != other and room in depths and other in depths and depths[other] <= depths[room]
    ]
    assert upwards == []


def test_the_layer_contract_sees_imports_for_types_and_ignores_only_those_of_the_facade() -> None:
    ignored = [edge for contract in CONTRACTS for edge in contract.get("ignore_imports", ())]
    assert {edge.partition(" -> ")[0] for edge in ignored} == {FACADE}
