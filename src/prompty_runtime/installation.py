"""Inspect the installation: two distributions may install the package `prompty`, and pip warns of neither.

Installed after ours, the other one overwrites files of ours. Installed before, it loses its own, and uninstalling it
deletes ours. The records of the installed distributions show both.
"""

import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution, distributions
from importlib.util import find_spec
from json import loads
from pathlib import Path
from shlex import quote
from typing import NamedTuple

OURS = "prompty-runtime"
PACKAGE = "prompty"


class Finding(NamedTuple):
    """A problem of the installation, and the command that fixes it. If it is fatal, files of ours are not ours."""

    problem: str
    fix: str
    is_fatal: bool


def inspect_installation() -> list[Finding]:
    """Return what is wrong with the installation of prompty-runtime."""
    try:
        ours = distribution(OURS)
    except PackageNotFoundError:  # the sources are on the path, and nothing is installed
        return []
    others = [f"{other.metadata['Name']} {other.version}" for other in _find_others()]
    damaged = list(_find_damaged(ours))
    names = [other.partition(" ")[0] for other in others]
    reinstall = _write_command(ours, names)
    if others and damaged:
        problem = (
            f"{_join(others)} has overwritten or removed {len(damaged)} files of {OURS} {ours.version}, "
            f"for example {damaged[0]}: both install the package `{PACKAGE}`"
        )
        return [Finding(problem, f"Run: {reinstall}", True)]
    if others:
        problem = (
            f"{_join(others)} installs the package `{PACKAGE}`, too: {OURS} {ours.version} has replaced files of it, "
            "and uninstalling it alone would delete files of ours"
        )
        return [Finding(problem, f"Run: {reinstall}", False), *_find_shadow(ours)]
    if damaged:
        problem = (
            f"{len(damaged)} files of {OURS} {ours.version} are missing or changed, for example {damaged[0]}: "
            f"another distribution with the package `{PACKAGE}` may have been installed or uninstalled"
        )
        return [Finding(problem, f"Run: {reinstall}", True)]
    return list(_find_shadow(ours))


def _find_others() -> Iterator[Distribution]:
    for other in distributions():
        name = str(other.metadata["Name"] or "").lower().replace("_", "-")
        record = other.read_text("RECORD") or ""
        if name != OURS and f"\n{PACKAGE}/" in f"\n{record}":
            yield other


def _find_damaged(ours: Distribution) -> Iterator[str]:
    """Yield the files of ours that are missing, or are not as they were installed."""
    for file in ours.files or []:
        if file.hash is not None and file.hash.mode == "sha256" and not _is_intact(file):
            yield str(file)


def _is_intact(file: PackagePath) -> bool:
    try:
        content = Path(str(file.locate())).read_bytes()
    except OSError:
        return False
    digest = urlsafe_b64encode(sha256(content).digest()).decode().rstrip("=")
    return file.hash is not None and digest == file.hash.value


def _find_shadow(ours: Distribution) -> Iterator[Finding]:
    """Yield a finding if Python imports another `prompty` than the installed one, such as a script of that name."""
    installed = Path(str(ours.locate_file(f"{PACKAGE}/__init__.py")))
    spec = find_spec(PACKAGE)
    if not installed.is_file() or spec is None or spec.origin is None:  # an editable installation has no such file
        return
    if not installed.samefile(spec.origin):
        problem = f"`import {PACKAGE}` finds {spec.origin}, not {installed}, because its folder comes first on the path"
        yield Finding(problem, "Rename that file or folder, or remove its folder from PYTHONPATH.", False)


def _write_command(ours: Distribution, others: list[str]) -> str:
    """Return the command that removes the other distributions and installs ours again."""
    python = quote(sys.executable)
    has_pip = find_spec("pip") is not None
    remove = f"{python} -m pip uninstall -y" if has_pip else f"uv pip uninstall --python {python}"
    again = "-m pip install --force-reinstall --no-deps"
    install = f"{python} {again}" if has_pip else f"uv pip install --python {python} --reinstall --no-deps"
    steps = [f"{remove} {' '.join(map(quote, others))}"] if others else []
    return " && ".join([*steps, f"{install} {_describe_source(ours)}"])


def _describe_source(ours: Distribution) -> str:
    """Return what to install: the release, or the file or folder that it was installed from."""
    source = loads(ours.read_text("direct_url.json") or "{}")
    if not source.get("url"):
        return f"{OURS}=={ours.version}"
    editable = source.get("dir_info", {}).get("editable")
    return f"{'--editable ' if editable else ''}{quote(source['url'].removeprefix('file://'))}"


def _join(names: list[str]) -> str:
    return " and ".join(names)
