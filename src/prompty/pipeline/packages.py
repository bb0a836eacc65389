"""Prompts in Python packages: `pkg:acme_prompts/answer.prompty` is a file that a distribution brought along."""

import os
from importlib.resources import files
from pathlib import Path

from prompty.errors import FileMissing, Problem
from prompty.pipeline.references import StrPath

SCHEME = "pkg:"


def locate(path: StrPath) -> StrPath:
    """Return the file or folder that `pkg:package/path` names, and any other path as it is. Raise FileMissing.

    Importing the package runs its code, so `pkg:` works for a path of the caller, and not for one that a file names.
    """
    name = os.fspath(path)
    if not name.startswith(SCHEME):
        return path
    package, *inner = name.removeprefix(SCHEME).strip("/").split("/")
    if ".." in inner:
        raise _missing(name, "the path leaves the package", "Name a file of the package.")
    try:
        found = files(package)
    except (ImportError, TypeError, ValueError, AttributeError):
        fix = "Install the distribution that has it, or correct the name. A path is pkg:PACKAGE/FILE.prompty."
        raise _missing(name, f"there is no package '{package}'", fix) from None
    for part in inner:
        found /= part
    if isinstance(found, Path) and found.exists():
        return found
    fix = "Correct the path, or add the file to the package data of the distribution."
    raise _missing(name, f"the package '{package}' has no file '{'/'.join(inner)}'", fix)


def _missing(name: str, message: str, fix: str) -> FileMissing:
    return FileMissing([Problem(code="file-missing", message=message, fix=fix, path=name)])
