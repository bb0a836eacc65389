"""Files that are written: as POSIX does it, and as far as POSIX can show it, as Windows does."""

import fcntl
import os
from pathlib import Path

import pytest

from prompty.batches.ledger import Ledger
from prompty.batches.row_index import FinishedRow
from prompty.cases.answers import CallLedger
from prompty.safety.write_files import (
    append,
    create_files,
    open_to_append,
    read_at,
    read_last_line,
    remove_open_file,
    replace_and_open,
    replace_file,
)

EVERY_SYSTEM = pytest.mark.parametrize("has_pread", [True, False], ids=["pread", "no-pread"])


@EVERY_SYSTEM
def test_reading_anywhere_leaves_writes_at_the_end(
    has_pread: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_pread:
        monkeypatch.delattr(os, "pread")
    path = tmp_path / "log"
    file = open_to_append(path)
    append(file, b"one\ntwo\nthr")
    assert (read_at(file, 3, 4), read_at(file, 9, 8), read_last_line(file)) == (b"two", b"thr", b"thr")
    append(file, b"ee")
    os.close(file)
    assert path.read_bytes() == b"one\ntwo\nthree"


@EVERY_SYSTEM
@pytest.mark.parametrize("tail", [b"", b"x", b"y" * 200_000])
def test_the_last_line_is_found_however_long_it_is(
    tail: bytes, has_pread: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_pread:
        monkeypatch.delattr(os, "pread")
    for head in (b"", b"first\n", b"z" * 70_000 + b"\n"):
        (tmp_path / "log").write_bytes(head + tail)
        file = open_to_append(tmp_path / "log")
        assert read_last_line(file) == tail
        os.close(file)


@EVERY_SYSTEM
def test_a_batch_is_continued_after_a_cut_line(
    has_pread: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_pread:
        monkeypatch.delattr(os, "pread")
    out = tmp_path / "out.jsonl"
    out.write_bytes(b'{"id": "a", "result": 1}\n{"id": "b", "res')
    with Ledger(out) as ledger:
        assert (ledger.index.find_finished("a"), ledger.index.find_finished("b")) == (FinishedRow(failed=False), None)
    assert out.read_bytes() == b'{"id": "a", "result": 1}\n'


def test_files_are_opened_as_binary_where_that_makes_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get_flags(name: str) -> int:
        file = open_to_append(tmp_path / name)
        flags = fcntl.fcntl(file, fcntl.F_GETFL)
        os.close(file)
        return flags

    assert not get_flags("posix") & os.O_DSYNC
    monkeypatch.setattr(os, "O_BINARY", os.O_DSYNC, raising=False)  # any flag that the system reports
    assert get_flags("windows") & os.O_DSYNC


def test_a_new_file_is_private_and_must_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "log"
    os.close(open_to_append(path, new=True))
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(FileExistsError):
        open_to_append(path, new=True)


def test_a_file_is_closed_when_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows does not rename an open file."""
    rename, path = Path.replace, tmp_path / "log"
    path.write_text("old")

    def rename_closed(source: Path, target: Path) -> Path:
        assert [file for file in Path("/proc/self/fd").iterdir() if file.resolve() == source] == []
        return rename(source, target)

    monkeypatch.setattr(Path, "replace", rename_closed)
    file = replace_and_open(path, b"one\n")
    append(file, b"two\n")
    os.close(file)
    assert (path.read_text(), list(tmp_path.iterdir())) == ("one\ntwo\n", [path])


def test_what_cannot_be_deleted_while_it_is_open_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_text("old")
    remove_open_file(path)
    assert not path.exists()

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "The process cannot access the file", str(path))

    ledger = CallLedger(path)
    ledger.begin("case", None)
    monkeypatch.setattr(Path, "unlink", refuse)
    ledger.complete = True
    ledger.close()
    assert path.read_bytes() == b""
    again = CallLedger(path)
    assert again.interrupted == []
    again.close()


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="leads through a link"):
        replace_file(tmp_path / "link", b"theirs")
    assert (tmp_path / "target").read_text() == "mine"


def test_nothing_is_created_if_one_of_the_files_exists_even_as_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "there").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match="there already exists"):
        create_files({tmp_path / "new": b"", tmp_path / "there": b""})
    assert not (tmp_path / "new").exists()


def test_a_path_may_lead_through_links_above_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "work").mkdir(parents=True)
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path / "linked" / "work")
    for path in (Path("a"), tmp_path / "linked" / "work" / "b", tmp_path / "linked" / "c", Path("../d")):
        replace_file(path, b"mine")
    assert sorted(path.name for path in (tmp_path / "real").rglob("*")) == ["a", "b", "c", "d", "work"]


def test_the_links_of_the_system_may_lead_anywhere_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to("real")
    monkeypatch.chdir("/")
    replace_file(tmp_path / "linked" / "a", b"mine")
    assert (tmp_path / "real" / "a").read_bytes() == b"mine"


@pytest.mark.parametrize("rights", [0o600, 0o640, 0o755])
def test_a_file_gets_no_more_rights_than_it_had(tmp_path: Path, rights: int) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(rights)
    replace_file(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", rights & 0o666)
    replace_file(path, b"private", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_stays_as_it_was_if_the_new_one_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(TypeError):
        replace_file(path, "not bytes")  # type: ignore[arg-type]  # fails in the middle
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])
