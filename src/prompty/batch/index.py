"""What is known of rows by their names, on disk: a file may have ten million of them, and memory may not."""

import sqlite3
from collections.abc import Iterator

_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -16000;
CREATE TABLE seen (hash TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE finished (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE begun (id TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
"""
_COUNTED = (
    "INSERT INTO {0} VALUES (?, 1) ON CONFLICT DO UPDATE SET count = count + 1 RETURNING count"  # names of our own
)


class Index:
    """An unnamed file that the system removes with the process, however that ends."""

    def __init__(self) -> None:
        self._tables = sqlite3.connect("", isolation_level=None)
        self._tables.executescript(_TABLES)
        self._tables.execute("BEGIN")

    def occurrence(self, hash: str) -> int:
        """How often this row has been met, with this time."""
        return self._counted("seen", hash)

    def finish(self, id: str) -> None:
        """Note that a row is finished."""
        self._tables.execute("INSERT OR IGNORE INTO finished VALUES (?)", (id,))

    def is_finished(self, id: str) -> bool:
        return self._tables.execute("SELECT 1 FROM finished WHERE id = ?", (id,)).fetchone() is not None

    def forget(self, id: str) -> None:
        """Note that a row is not finished after all."""
        self._tables.execute("DELETE FROM finished WHERE id = ?", (id,))

    def begin(self, id: str) -> None:
        """Note that a row was begun."""
        self._counted("begun", id)

    def interrupted(self, id: str) -> int:
        """How often a row was begun by processes that did not finish it."""
        found = self._tables.execute("SELECT count FROM begun WHERE id = ?", (id,)).fetchone()
        return int(found[0]) if found else 0

    def left(self) -> Iterator[str]:
        """Rows that were begun and are not finished, each as often as it was begun. The others count as never begun."""
        self._tables.execute("DELETE FROM begun WHERE id IN (SELECT id FROM finished)")
        for id, count in self._tables.execute("SELECT id, count FROM begun"):
            yield from [id] * count

    def close(self) -> None:
        self._tables.close()

    def _counted(self, table: str, key: str) -> int:
        [count] = self._tables.execute(_COUNTED.format(table), (key,)).fetchone()
        return int(count)
