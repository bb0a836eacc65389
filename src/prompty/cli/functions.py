"""`--tools`: functions for the tools of a prompt, from a Python file or an installed module that the user names."""

from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from prompty.errors import ToolError
from prompty.tools.function import MARK


def functions_from(places: list[str] | None) -> list[object]:
    """The functions marked with `@tool` in each of these."""
    return [function for place in places or [] for function in _marked(_module(place), place)]


def _module(place: str) -> ModuleType:
    path = Path(place)
    if path.suffix != ".py":
        return import_module(place)
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ToolError(f"there is no file '{place}'", "Name a Python file, or a module that is installed.")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _marked(module: ModuleType, place: str) -> list[object]:
    found = [value for value in vars(module).values() if callable(value) and hasattr(value, MARK)]
    if not found:
        raise ToolError(f"no function in '{place}' is a tool", "Mark functions with @tool from prompty.")
    return found
