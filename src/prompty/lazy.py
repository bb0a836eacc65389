"""Import the public names of a package on first use.

The typed imports of the package's `__init__`, such as `import X as X`, are the only list of the names: type checkers
read them as imports, and this module reads them as text.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for true; importing it from typing would cost more than this module

if TYPE_CHECKING:
    from collections.abc import Callable


def import_lazily(
    package: str, find_fix: Callable[[str, list[str]], str] = lambda name, known: ""
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    `find_fix` returns what to write instead of a name, from the name and those that there are.
    """
    names: dict[str, str] = {}

    def read_names() -> list[str]:
        names.update(names or _read_names(package))
        return sorted(names)

    def get(name: str) -> object:
        known = read_names()
        if name == "__all__":
            return known
        if name not in names:
            fix = "" if name.startswith("_") else find_fix(name, known)
            raise AttributeError(f"module '{package}' has no attribute '{name}'{fix and f'. {fix}'}")
        value = vars(sys.modules[package])[name] = getattr(import_module(names[name]), name)
        return value

    return get, read_names


def _read_names(package: str) -> dict[str, str]:
    """Return the module of each public name."""
    spec = sys.modules[package].__spec__
    modules: dict[str, str] = {}
    module = ""
    for line in spec.loader.get_data(spec.origin).decode().splitlines():  # type: ignore[union-attr]  # a file of ours
        words = line.replace("(", " ").replace(")", " ").replace(",", " ").split()
        if words[:1] == ["from"]:
            module = words[1]
        triples = zip(words, words[1:], words[2:], strict=False)
        modules |= {name: module for name, word, alias in triples if word == "as" and name == alias}
    return modules
