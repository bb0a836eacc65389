"""Checks that are functions in Python files: `module:function`.

A test file only names a function. Its code runs only if the user named the Python file on the command line, or in the
settings of pytest, which runs the project's code anyway.
"""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path

from prompty.cases.evaluators import Functions
from prompty.tools.source import import_source


def load_checks(sources: Sequence[str]) -> Functions:
    """Return the public functions of Python files or modules by `module:function`."""
    functions: dict[str, Callable[..., object]] = {}
    for source in sources:
        module = Path(source).stem if source.endswith(".py") else source
        for name, function in inspect.getmembers(import_source(source), inspect.isfunction):
            if not name.startswith("_"):
                functions[f"{module}:{name}"] = function
    return functions
