"""Functions of Python files that a person named, as checks: `module:function`.

A test file only names a function. Its code runs because somebody wrote the path of the Python file on the command line,
or into the settings of pytest, which runs code of the project anyway.
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
