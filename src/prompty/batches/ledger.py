"""Ledger of a batch: the output, a file of failures next to it, and a journal of started rows.

Records are appended whole. A process can be killed at any moment: its records stay, and the next process repairs a
truncated line. A machine that crashes can lose the records of the last second.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any

from prompty.batches.records import parse_cost
from prompty.batches.row_index import RowIndex
from prompty.concurrency import FileLock
from prompty.errors import RequestError
from prompty.safety.write_files import append, open_to_append, read_last_line, replace_and_open

SYNC_SECONDS = 1.0
_RECORD_START = b'{"id": "'


class Ledger:
    """The files of one batch, locked until they are closed. `spent` is the cost of all rows in them.

    Rows in the output are finished. So are failed rows, unless `retry_failed` removes them. Rows in the journal that
    are not finished were interrupted, and may have been paid for. Set `complete` when no row is left.
    """

    def __init__(self, out: Path, *, retry_failed: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self.out = out
        self.failures_path: Path = get_failures_path(out)
        self.journal_path: Path = out.with_name(f"{out.stem}.started")
        self.spent: Decimal = Decimal()
        self.complete = False
        self._clock, self._synced = clock, clock()
        with ExitStack() as resources:
            resources.callback(_lock(out).release)
            self.index: RowIndex = resources.enter_context(closing(RowIndex()))
            self._out = _open(out, resources)
            self._failures = _open(self.failures_path, resources)
            self._read(self._out, out)
            self._read(self._failures, self.failures_path, failed=True)
            self._journal = self._rewrite_journal(resources)
            if retry_failed:
                self._remove_failures()
            self._resources = resources.pop_all()

    def begin(self, id: str) -> None:
        """Record in the journal that a row is about to be paid for."""
        append(self._journal, f"{id}\n".encode())

    def finish(self, line: bytes, cost: Decimal | None) -> None:
        """Append the record of a row that succeeded."""
        self._write(self._out, line, cost)

    def fail(self, line: bytes, cost: Decimal | None) -> None:
        """Append the record of a row that failed."""
        self._write(self._failures, line, cost)

    def close(self) -> None:
        """Close the files and release the lock. A complete batch needs no journal."""
        self.sync()
        self._resources.close()
        if self.complete:
            self.journal_path.unlink()
        if not self.failures_path.stat().st_size:
            self.failures_path.unlink()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, file: int, line: bytes, cost: Decimal | None) -> None:
        append(file, line)
        self.spent += cost or 0
        if self._clock() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Make sure that all records are still there after a crash of the machine."""
        os.fsync(self._out)
        os.fsync(self._failures)
        self._synced = self._clock()

    def _read(self, file: int, path: Path, *, failed: bool = False) -> None:
        """Repair the last line of a file, then index its rows and add up their cost."""
        _repair_last_line(file, path)
        for record in read_records(path):
            self.index.mark_finished(record["id"], failed=failed)
            self.spent += parse_cost(record)

    def _rewrite_journal(self, resources: ExitStack) -> int:
        """Replace the journal with one that has only the interrupted rows, and open it."""
        with os.fdopen(open_to_append(self.journal_path), encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.endswith("\n"):
                    self.index.mark_started(line.rstrip("\n"))
        interrupted = "".join(f"{id}\n" for id in self.index.list_interrupted())
        journal = replace_and_open(self.journal_path, interrupted.encode())
        resources.callback(os.close, journal)
        return journal

    def _remove_failures(self) -> None:
        for record in read_records(self.failures_path):
            self.index.mark_unfinished(record["id"])
        os.ftruncate(self._failures, 0)


def get_failures_path(out: Path) -> Path:
    """Return the file of the rows of a batch that failed."""
    return out.with_name(f"{out.stem}.failed.jsonl")


def _lock(path: Path) -> FileLock:
    try:
        return FileLock(path)
    except BlockingIOError:
        raise RequestError(
            f"another process is writing to '{path}'",
            "Wait for it, or write to another file.",
        ) from None


def _open(path: Path, resources: ExitStack) -> int:
    file = open_to_append(path)
    resources.callback(os.close, file)
    return file


def _repair_last_line(file: int, path: Path) -> None:
    """Complete or remove a truncated last line. Refuse a file that is not a batch's output."""
    tail = read_last_line(file)
    if not tail:
        return
    try:
        json.loads(tail)
        append(file, b"\n")
    except ValueError:
        if not tail.startswith(_RECORD_START[: len(tail)]):
            raise _not_a_record(path, "the last line") from None
        os.ftruncate(file, os.fstat(file).st_size - len(tail))


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of an output or of a file of failures."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            is_record = isinstance(record, dict) and isinstance(record.get("id"), str)
            if not is_record or record.keys().isdisjoint({"result", "error"}):
                raise _not_a_record(path, f"line {number}")
            yield record


def _not_a_record(path: Path, place: str) -> RequestError:
    return RequestError(f"{place} of '{path}' is not a record of a batch", "Write to another file, or remove the line.")
