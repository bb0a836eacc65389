"""Sixty hostile repositories are read or refused in time, with a sentence, and only git starts."""

import hashlib
import sys
import time
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import pytest

from tests.machine import time_factor
from tests.public_data import SHARED
from tests.real.seen import watch

MAKER = SHARED / "repro" / "month" / "hostile_repositories.py"
SECONDS = 12
READER = """
import sys
from pathlib import Path
from prompty.cases.revision import find_repository, open_revision
from prompty.errors import RequestError

try:
    with open_revision(find_repository(Path(sys.argv[1])), sys.argv[2]) as revision:
        files = [path for path in revision.folder.rglob("*") if path.is_file()]
        assert all(path.resolve().is_relative_to(revision.folder) for path in revision.folder.rglob("*"))
    assert not revision.folder.exists()
    print("read", len(files))
except RequestError as error:
    print("refused", error)
"""
# The names are the maker's. What can be read is read.
REFUSED = {
    *("shallow, beyond", "partial clone, hostile uploadpack", "bare", "empty", "no repository"),
    *("names and kinds in trees", "10^11 files from 11 trees", "record that declares 2^62 bytes"),
    *("delta before the start of the pack", "pack with changed bytes", "pack cut short", "pack of no bytes"),
    *("HEAD is a pipe", "branch is a link to /dev/zero", "object is a link to /dev/zero"),
    *("HEAD names a file outside", "branch names itself", "owned by another user", "deltas in a circle"),
    "loose bomb that declares 5 bytes",
}
MAY_BE_EITHER = {"revision"}  # fifteen, of which some name nothing


def write_pack_index(file: IO[bytes], entries: Iterable[tuple[bytes, int, int]], checksum: bytes) -> None:
    """Write the index of a pack, version 2, from (hash, offset, checksum) in the order of the hashes."""
    found = list(entries)
    counts = [sum(name[0] <= first for name, _, _ in found) for first in range(256)]
    columns = [
        *(count.to_bytes(4, "big") for count in counts),
        *(name for name, _, _ in found),
        *(crc.to_bytes(4, "big") for _, _, crc in found),
        *(offset.to_bytes(4, "big") for _, offset, _ in found),
    ]
    content = b"\xfftOc" + (2).to_bytes(4, "big") + b"".join(columns) + checksum
    file.write(content + hashlib.sha1(content).digest())  # noqa: S324  git's format


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the program that makes the repositories. It takes one function from a library that we don't install."""
    if not MAKER.is_file():
        pytest.skip("the hostile repositories are not there; set PROMPTY_SHARED to the folder that holds repro/")
    library = ModuleType("dulwich.pack")
    library.write_pack_index = write_pack_index  # type: ignore[attr-defined]  # a module that has only this
    monkeypatch.setitem(sys.modules, "dulwich", ModuleType("dulwich"))
    monkeypatch.setitem(sys.modules, "dulwich.pack", library)
    spec = spec_from_file_location("hostile_repositories", MAKER)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_hostile_repository_is_read_or_refused_and_starts_nothing_but_git(maker: Any, tmp_path: Path) -> None:
    count, root, trace = 0, tmp_path / "all", tmp_path / "trace"
    root.mkdir()
    for name, folder, revision in maker._build(root):
        count += 1
        began = time.monotonic()
        seen = watch([sys.executable, "-c", READER, str(folder), revision], tmp_path, trace)
        seconds = time.monotonic() - began
        case = f"{name}, {revision}: {seen.output}"
        assert {Path(program).name for program in seen.programs} <= {Path(sys.executable).name, "git"}, case
        assert not [program for program in seen.programs if Path(program).is_relative_to(root)], case
        assert (seen.connections, seen.code, (root / "RAN").exists()) == ([], 0, False), case
        assert seconds < SECONDS * time_factor(), case
        if name not in MAY_BE_EITHER:
            assert seen.output.startswith("refused" if name in REFUSED else "read"), case
        assert "\n    " in seen.output or seen.output.startswith("read"), case  # a cause, and a fix
    assert count >= 59
