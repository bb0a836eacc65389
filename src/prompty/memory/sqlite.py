"""Session store in a SQLite file, for any number of processes on one machine."""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from prompty.concurrency import FileLock
from prompty.errors import StoreUnusable, check_path
from prompty.model.message import Json
from prompty.safety.write_files import create_folder, open_to_append

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS messages (
    session_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (session_id, position)
) WITHOUT ROWID
"""


class SqliteMemory:
    """A store in a private file. Each session has a lock file next to it, which the operating system releases when the
    process ends or is killed."""

    def __init__(self, path: str | Path) -> None:
        check_path(path, "SqliteMemory()", "the path of a file")
        self.path: Path = Path(path)
        try:
            create_folder(self.path.parent)
            os.close(open_to_append(self.path))
            self._create_table()
        except (OSError, sqlite3.Error, ValueError) as error:
            raise StoreUnusable(str(self.path), error) from error

    def __eq__(self, other: object) -> bool:
        """Two stores on one file are the same: a session that one has locked is locked for the other."""
        return isinstance(other, SqliteMemory) and self.path.absolute() == other.path.absolute()

    def __hash__(self) -> int:
        return hash(self.path.absolute())

    def _create_table(self) -> None:
        with self._connect() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            [version] = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, SCHEMA_VERSION):
                raise ValueError(f"{self.path.name} was written by another release of prompty (schema {version})")
            connection.execute(_SCHEMA)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute("SELECT session_id, position, message FROM messages LIMIT 1").fetchone()

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        """Open a connection for one transaction. Raise StoreUnusable if the file is damaged."""
        try:
            with self._connect() as connection:
                yield connection
        except (sqlite3.Error, json.JSONDecodeError) as error:
            raise StoreUnusable(str(self.path), error) from error

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """Open a connection for one transaction."""
        connection = sqlite3.connect(self.path, timeout=30)
        try:
            with connection:
                yield connection
        finally:
            connection.close()

    def load(self, session_id: str, /) -> list[Json]:
        query = "SELECT message FROM messages WHERE session_id = ? ORDER BY position"
        with self._use() as connection:
            return [json.loads(text) for (text,) in connection.execute(query, (session_id,))]

    def append(self, session_id: str, messages: tuple[Json, ...], /) -> None:
        with self._use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            self._add(connection, session_id, messages)

    def replace(self, session_id: str, messages: tuple[Json, ...], /) -> None:
        with self._use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM messages WHERE session_id = ?", (session_id,))
            self._add(connection, session_id, messages)

    def _add(self, connection: sqlite3.Connection, session_id: str, messages: tuple[Json, ...]) -> None:
        highest = "SELECT coalesce(max(position) + 1, 0) FROM messages WHERE session_id = ?"
        [first] = connection.execute(highest, (session_id,)).fetchone()
        rows = [(session_id, first + at, json.dumps(message)) for at, message in enumerate(messages)]
        connection.executemany("INSERT INTO messages VALUES (?, ?, ?)", rows)

    def acquire(self, session_id: str, /) -> Callable[[], None] | None:
        path = self.path.with_name(f"{self.path.name}.{sha256(session_id.encode()).hexdigest()[:24]}.lock")
        try:
            return FileLock(path, remove=True).release
        except BlockingIOError:
            return None
