"""The output of a batch, the failures beside it, and a journal of what was begun. Lines are appended whole.

A process can be killed at any moment: what it has written stays, and a line that it was writing is mended by the next
one. The machine can lose what was written in the last second.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from prompty.batch.index import Index
from prompty.batch.lines import cost_in
from prompty.concurrency import FileLock
from prompty.errors import RequestError
from prompty.model.message import Json

SYNC_SECONDS = 1.0
_BEGINNING = b'{"id": "'


class Books:
    """The files of one batch, in this process alone until they are closed.

    Rows in the output are finished, and so are failed ones, unless they are to be tried again: then failures are
    forgotten. Rows in the journal that are not finished were cut off, and may have been paid for.
    """

    def __init__(self, out: Path, *, retry_failed: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self.out, self.failed_path, self.journal_path = out, beside(out, ".failed.jsonl"), beside(out, ".started")
        self.index = Index()
        self.spent = Decimal()
        self._clock, self._synced = clock, clock()
        self._lock = _locked(out)
        try:
            self._out = _opened(out)
            self._failed = _opened(self.failed_path)
            self._read(self._out, out)
            self._read(self._failed, self.failed_path)
            self._journal = self._begun_anew()
            if retry_failed:
                self._forget_failures()
        except BaseException:
            self._lock.release()
            raise

    def begin(self, id: str) -> None:
        """Note that a row is about to be paid for."""
        _append(self._journal, f"{id}\n".encode())

    def finish(self, line: bytes, cost: Decimal | None) -> None:
        """Keep the line of a row that has a result."""
        self._write(self._out, line, cost)

    def fail(self, line: bytes, cost: Decimal | None) -> None:
        """Keep the line of a row that has none."""
        self._write(self._failed, line, cost)

    def close(self, *, complete: bool = False) -> None:
        """Give the files back. When nothing is left to do, nothing was cut off: the journal goes."""
        self._sync()
        for file in (self._journal, self._failed, self._out):
            os.close(file)
        self._lock.release()
        self.index.close()
        for path, unneeded in ((self.journal_path, complete), (self.failed_path, not self.failed_path.stat().st_size)):
            if unneeded:
                path.unlink()

    def _write(self, file: int, line: bytes, cost: Decimal | None) -> None:
        _append(file, line)
        self.spent += cost or 0
        if self._clock() - self._synced > SYNC_SECONDS:
            self._sync()

    def _sync(self) -> None:
        os.fsync(self._out)
        os.fsync(self._failed)
        self._synced = self._clock()

    def _read(self, file: int, path: Path) -> None:
        """Note which rows a file has, after mending its last line."""
        _mend(file, path)
        for line in _results(path):
            self.index.finish(line["id"])
            self.spent += cost_in(line)

    def _begun_anew(self) -> int:
        """The journal with nothing in it but the rows that were cut off."""
        if self.journal_path.exists():
            with self.journal_path.open(encoding="ascii", errors="replace") as lines:
                for line in lines:
                    if line.endswith("\n"):
                        self.index.begin(line.rstrip("\n"))
        fresh = self.journal_path.with_name(f"{self.journal_path.name}.new")
        fresh.unlink(missing_ok=True)
        journal = _opened(fresh)
        for id in self.index.left():
            _append(journal, f"{id}\n".encode())
        fresh.replace(self.journal_path)
        return journal

    def _forget_failures(self) -> None:
        for line in _results(self.failed_path):
            self.index.forget(line["id"])
        os.ftruncate(self._failed, 0)


def beside(out: Path, ending: str) -> Path:
    """The file of this ending that belongs to an output."""
    return out.with_name(f"{out.stem}{ending}")


def encoded(line: Json) -> bytes:
    """A line as it is written. What is no text of Unicode is written as its escape."""
    try:
        return json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(line, allow_nan=False).encode() + b"\n"


def _opened(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)


def _locked(path: Path) -> FileLock:
    try:
        return FileLock(path)
    except BlockingIOError:
        raise RequestError(
            f"another process writes to '{path}'", "Wait for it, or write to another file; --database shares rows."
        ) from None


def _append(file: int, content: bytes) -> None:
    while content:  # a disk that is nearly full takes a part of it
        content = content[os.write(file, content) :]


def _mend(file: int, path: Path) -> None:
    """Complete or remove a last line that was cut off. Whatever else stands there is not ours to change."""
    tail = _last_line(file)
    if not tail:
        return
    try:
        json.loads(tail)
        _append(file, b"\n")
    except ValueError:
        if not tail.startswith(_BEGINNING[: len(tail)]):
            raise _foreign(path, "its last line") from None
        os.ftruncate(file, os.fstat(file).st_size - len(tail))


def _last_line(file: int) -> bytes:
    """What stands after the last end of a line."""
    tail, position = b"", os.fstat(file).st_size
    while position > 0 and b"\n" not in tail:
        length = min(65536, position)
        position -= length
        tail = os.pread(file, length, position) + tail
    return tail.rpartition(b"\n")[2]


def _results(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for number, text in enumerate(lines, 1):
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            if not isinstance(line, dict) or not isinstance(line.get("id"), str):
                raise _foreign(path, f"line {number}")
            yield line


def _foreign(path: Path, place: str) -> RequestError:
    return RequestError(f"{place} of '{path}' is no result of a batch", "Write to another file, or remove the line.")
