"""Rows of a provider batch that have no result yet, in an unnamed file on disk: there may be more than memory holds."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prompty.batches.records import PlannedRow

_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -8000;
CREATE TABLE rows (
    id TEXT PRIMARY KEY, number INTEGER, inputs TEXT, interrupted INTEGER, tries INTEGER DEFAULT 0, chunk TEXT
) WITHOUT ROWID;
CREATE INDEX by_chunk ON rows (chunk, number);
"""
_COLUMNS = "id, number, inputs, interrupted, tries"


class StoredRow(NamedTuple):
    """A row. `tries` counts the answers that it got and that failed."""

    id: str
    number: int
    inputs: dict[str, object]
    interrupted: int
    tries: int


class RowStore:
    """The rows, each ready or in a chunk."""

    def __init__(self) -> None:
        self._tables = sqlite3.connect("", isolation_level=None)
        self._tables.executescript(_TABLES)
        self._tables.execute("BEGIN")

    def add(self, planned: PlannedRow) -> None:
        values = (planned.id, planned.row.number, json.dumps(planned.row.inputs), planned.interrupted)
        self._tables.execute("INSERT INTO rows (id, number, inputs, interrupted) VALUES (?, ?, ?, ?)", values)

    def list_ready(self) -> Iterator[StoredRow]:
        """Yield the rows that are in no chunk, in the order of the file. The caller may remove them."""
        last = 0
        while page := self._tables.execute(
            f"SELECT {_COLUMNS} FROM rows WHERE chunk IS NULL AND number > ? ORDER BY number LIMIT 100",  # noqa: S608  a constant
            (last,),
        ).fetchall():
            yield from map(_read, page)
            last = page[-1][1]

    def count_ready(self) -> int:
        [count] = self._tables.execute("SELECT count(*) FROM rows WHERE chunk IS NULL").fetchone()
        return int(count)

    def count(self) -> int:
        [count] = self._tables.execute("SELECT count(*) FROM rows").fetchone()
        return int(count)

    def assign(self, ids: Iterable[str], nonce: str) -> None:
        """Put rows into a chunk."""
        self._tables.executemany("UPDATE rows SET chunk = ? WHERE id = ?", ((nonce, id) for id in ids))

    def release(self, nonce: str) -> int:
        """Make the rows that are left in a chunk ready again. Return their number."""
        return self._tables.execute("UPDATE rows SET chunk = NULL WHERE chunk = ?", (nonce,)).rowcount

    def retry(self, id: str) -> None:
        """Count a try that failed, and make the row ready again."""
        self._tables.execute("UPDATE rows SET tries = tries + 1, chunk = NULL WHERE id = ?", (id,))

    def count_interruption(self, ids: Iterable[str]) -> None:
        """Count that rows may have been paid for without a result."""
        self._tables.executemany("UPDATE rows SET interrupted = interrupted + 1 WHERE id = ?", ((id,) for id in ids))

    def get(self, id: str) -> StoredRow | None:
        found = self._tables.execute(f"SELECT {_COLUMNS} FROM rows WHERE id = ?", (id,)).fetchone()  # noqa: S608  a constant
        return _read(found) if found else None

    def remove(self, id: str) -> None:
        self._tables.execute("DELETE FROM rows WHERE id = ?", (id,))

    def close(self) -> None:
        self._tables.close()


def _read(values: tuple[str, int, str, int, int]) -> StoredRow:
    id, number, inputs, interrupted, tries = values
    return StoredRow(id, number, json.loads(inputs), interrupted, tries)
