"""`--tools`: load functions from a Python file or an installed module."""

from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Annotated

from typer import Option

from prompty.errors import ToolError
from prompty.tools.function import MARK

ToolFiles = Annotated[
    list[str] | None, Option("--tools", "-t", help="Offer the functions marked @tool in a Python file or module.")
]


def load_functions(sources: list[str] | None) -> list[object]:
    """Return the functions marked with `@tool` in these files and modules."""
    return [function for source in sources or [] for function in _find_tools(_import(source), source)]


def _import(source: str) -> ModuleType:
    path = Path(source)
    if path.suffix != ".py":
        return import_module(source)
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ToolError(f"there is no file '{source}'", "Name a Python file or an installed module.")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _find_tools(module: ModuleType, source: str) -> list[object]:
    functions = [value for value in vars(module).values() if callable(value) and hasattr(value, MARK)]
    if not functions:
        raise ToolError(f"no function in '{source}' is a tool", "Mark functions with @tool from prompty.")
    return functions
