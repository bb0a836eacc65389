"""Prompts in Python packages: `pkg:acme_prompts/answer.prompty` is a file in an installed distribution."""

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from prompty.errors import FileMissing, Problem
from prompty.pipeline.references import StrPath

SCHEME = "pkg:"


def locate_prompt(path: StrPath) -> StrPath:
    """Return the file or folder that the text `pkg:package/path` names, and any other path unchanged.

    Raise FileMissing. Importing the package runs its code, so only a caller can use `pkg:`. A `Path` is always a file,
    because a path in a file becomes one when it is joined with the file's folder.
    """
    if not isinstance(path, str) or not path.startswith(SCHEME):
        return path
    name = path
    package, *inner = name.removeprefix(SCHEME).strip("/").split("/")
    if ".." in inner:
        raise _missing(name, "the path leaves the package", "Name a file in the package.")
    try:
        if not is_package(package):
            raise ImportError(package)
        found = files(package)
    except (ImportError, TypeError, ValueError, AttributeError):
        fix = "Install its distribution, or correct the name. Write pkg:PACKAGE/FILE.prompty."
        raise _missing(name, f"there is no package '{package}'", fix) from None
    for part in inner:
        found /= part
    if isinstance(found, Path) and found.exists():
        return found
    fix = "Correct the path, or add the file to the distribution's package data."
    raise _missing(name, f"the package '{package}' has no file '{'/'.join(inner)}'", fix)


def is_package(name: str) -> bool:
    """Return True if a package of this name is installed, and not a single module."""
    spec = find_spec(name)
    return spec is not None and spec.submodule_search_locations is not None


def _missing(name: str, message: str, fix: str) -> FileMissing:
    return FileMissing([Problem(code="file-missing", message=message, fix=fix, path=name)])
