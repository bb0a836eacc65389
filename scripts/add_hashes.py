"""Add the hashes of all files of each version to the pinned requirements, as `make pin` does.

    python -m scripts.add_hashes requirements/dev.txt

The hashes are those of the package index that pip is configured with. A file that the index gets later for an old
version has another hash, so `pip install --require-hashes` refuses it. Wheels that no supported Python takes are left
out.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from packaging.tags import Tag
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

OLDEST_PYTHON = 11  # the minor version
_LINK = re.compile(r'href="[^"#]*?([^"#/]+)#sha256=([0-9a-f]{64})"')  # in the HTML that every index has (PEP 503)
_PINNED = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)")
_CPYTHON = re.compile(r"cp3(\d+)")


class Pin(NamedTuple):
    """A requirement: its name as it was written, and its version."""

    name: str
    version: Version

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def parse_pins(text: str) -> list[Pin]:
    """Return the pinned requirements of a file, with or without hashes."""
    return [Pin(found[1], Version(found[2])) for line in text.splitlines() if (found := _PINNED.match(line))]


def list_hashes(pin: Pin, pages: Iterable[str]) -> list[str]:
    """Return the hashes of this version's files, for supported Pythons, from the project's pages in the indexes."""
    return sorted({found[2] for page in pages for found in _LINK.finditer(page) if _belongs(unquote(found[1]), pin)})


def _belongs(filename: str, pin: Pin) -> bool:
    try:
        if filename.endswith(".whl"):
            name, version, _, tags = parse_wheel_filename(filename)
            return (name, version) == (canonicalize_name(pin.name), pin.version) and any(map(_is_supported, tags))
        return parse_sdist_filename(filename) == (canonicalize_name(pin.name), pin.version)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return False  # an egg, an installer, or a name of the time before the rules


def _is_supported(tag: Tag) -> bool:
    found = _CPYTHON.fullmatch(tag.interpreter)
    if found is None:
        return tag.interpreter.startswith("py3")
    return int(found[1]) >= OLDEST_PYTHON or tag.abi == "abi3"


def write_requirements(pins: Sequence[Pin], hashes: Sequence[Sequence[str]]) -> str:
    """Return the text of the file. Raise `ValueError` for a version without files."""
    lines = []
    for pin, known in zip(pins, hashes, strict=True):
        if not known:
            raise ValueError(f"the index has no files of {pin}")
        lines.append(" \\\n    ".join([str(pin), *(f"--hash=sha256:{value}" for value in known)]))
    return "\n".join(lines) + "\n"


def read_index(pins: Sequence[Pin]) -> list[list[str]]:
    """Return the hashes of each pin, as the indexes of pip's configuration list them."""
    command: Any = import_module("pip._internal.commands").create_command("download")
    options, _ = command.parse_args([])
    urls = [url for url in (options.index_url, *options.extra_index_urls) if url.startswith(("https:", "http:"))]
    with command.main_context():
        session = command.get_default_session(options)

        def read(pin: Pin) -> list[str]:
            pages = [f"{url.rstrip('/')}/{canonicalize_name(pin.name)}/" for url in urls]
            answers = [session.get(page, headers={"Accept": "text/html"}) for page in pages]
            return list_hashes(pin, [answer.text for answer in answers if answer.ok])

        with ThreadPoolExecutor(8) as threads:
            return list(threads.map(read, pins))


def main(path: Path) -> None:
    pins = parse_pins(path.read_text(encoding="utf-8"))
    text = write_requirements(pins, read_index(pins))
    path.write_text(text, encoding="utf-8", newline="\n")
    print(f"{path}: {len(pins)} requirements, {text.count('--hash=')} hashes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
