"""The lock between processes: with fcntl, with msvcrt as far as a POSIX system can show it, and with neither."""

import subprocess
import sys
from pathlib import Path

import pytest

from prompty.concurrency import FileLock

# msvcrt locks a range of bytes at the file's position for one handle, as Linux does with an open file description.
MSVCRT = """
import asyncio, errno, fcntl, os, struct, sys, types  # asyncio first: with msvcrt there it would take this for Windows

def locking(file, mode, count):
    assert mode == 2
    try:
        position = os.lseek(file, 0, os.SEEK_CUR)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, position, count, 0))
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied") from None

sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
sys.modules["fcntl"] = None
"""
HOLDER = """
import sys
from pathlib import Path
from prompty.concurrency import FileLock

path = Path(sys.argv[1])
try:
    lock = FileLock(path, remove=True)
except BlockingIOError:
    sys.exit("held by another process")
with path.open("r+") as file:
    print("content:", file.write("text"), flush=True)
sys.stdin.readline()
if sys.argv[2] == "release":
    lock.release()
    print("released", flush=True)
    sys.stdin.readline()
"""
EVERY_SYSTEM = pytest.mark.parametrize("system", ["", MSVCRT], ids=["fcntl", "msvcrt"])


def start_holder(system: str, path: Path, end: str) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603  our own code
        [sys.executable, "-c", system + HOLDER, path, end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.process
@EVERY_SYSTEM
@pytest.mark.parametrize("end", ["release", "kill"])
def test_a_second_process_gets_the_lock_when_the_first_releases_it_or_is_killed(
    system: str, end: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.lock"
    with start_holder(system, path, end) as holder:
        assert holder.stdin
        assert holder.stdout
        assert holder.stdout.readline() == "content: 4\n"
        with start_holder(system, path, end) as second:
            _, error = second.communicate("\n\n", timeout=30)
        assert (second.returncode, error) == (1, "held by another process\n")
        if end == "release":
            holder.stdin.write("\n")
            holder.stdin.flush()
            assert holder.stdout.readline() == "released\n"
            assert not path.exists()
        else:
            holder.kill()
            holder.wait()
        with start_holder(system, path, end) as third:
            assert third.communicate("\n\n", timeout=30)[1] == ""


def test_a_lock_that_was_removed_by_its_holder_is_not_taken_by_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.lock"

    def remove_first(file: int) -> None:
        path.unlink()

    monkeypatch.setattr("prompty.concurrency._lock", remove_first)
    with pytest.raises(BlockingIOError):
        FileLock(path, remove=True)


def test_without_a_way_to_lock_files_only_the_lock_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prompty.concurrency.fcntl", None)
    monkeypatch.setattr("prompty.concurrency.msvcrt", None)
    with pytest.raises(OSError, match="neither fcntl nor msvcrt"):
        FileLock(tmp_path / "a.lock")
