"""Row ids, and an index of finished and interrupted rows by id.

An id is a hash of the prompt, the model and the row, so a row has the same id whenever the batch is run.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from prompty.batches.records import PlannedRow
from prompty.batches.rows import get_input_kinds, read_rows
from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.safety.redaction import MASK

_HASH_LENGTH = 32
_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -16000;
CREATE TABLE seen (hash TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE finished (id TEXT PRIMARY KEY, failed INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE started (id TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
"""
_COUNT = "INSERT INTO {0} VALUES (?, 1) ON CONFLICT DO UPDATE SET count = count + 1 RETURNING count"


class FinishedRow(NamedTuple):
    """A row that an earlier run has finished: it has a result, or it failed."""

    failed: bool


class RowIndex:
    """Index in an unnamed file on disk, for batches with more rows than memory holds. It ends with the process."""

    def __init__(self) -> None:
        self._tables = sqlite3.connect("", isolation_level=None)
        self._tables.executescript(_TABLES)
        self._tables.execute("BEGIN")

    def count_occurrence(self, hash: str) -> int:
        """Count a row with this hash, and return how many there have been."""
        return self._increment("seen", hash)

    def mark_finished(self, id: str, *, failed: bool = False) -> None:
        self._tables.execute("INSERT OR IGNORE INTO finished VALUES (?, ?)", (id, failed))

    def mark_unfinished(self, id: str) -> None:
        self._tables.execute("DELETE FROM finished WHERE id = ?", (id,))

    def find_finished(self, id: str) -> FinishedRow | None:
        found = self._tables.execute("SELECT failed FROM finished WHERE id = ?", (id,)).fetchone()
        return FinishedRow(bool(found[0])) if found else None

    def mark_started(self, id: str) -> None:
        self._increment("started", id)

    def count_interruptions(self, id: str) -> int:
        """Return how often a row was started and not finished."""
        count = self._tables.execute("SELECT count FROM started WHERE id = ?", (id,)).fetchone()
        return int(count[0]) if count else 0

    def list_interrupted(self) -> Iterator[str]:
        """Yield each row that was started and not finished, once per start. Forget the starts of finished rows."""
        self._tables.execute("DELETE FROM started WHERE id IN (SELECT id FROM finished)")
        for id, count in self._tables.execute("SELECT id, count FROM started"):
            yield from [id] * count

    def close(self) -> None:
        self._tables.close()

    def _increment(self, table: str, key: str) -> int:
        [count] = self._tables.execute(_COUNT.format(table), (key,)).fetchone()
        return int(count)


def plan_rows(
    path: Path, agent: PromptAgent, numbers: range | frozenset[int], index: RowIndex
) -> Iterator[PlannedRow | FinishedRow]:
    """Yield the rows with these numbers in order, and the finished ones among them for the caller to count. Equal rows
    are counted from the start of the file, so ids do not depend on the selection."""
    prompt, last = hash_prompt(agent), max(numbers, default=0)
    state = _get_state(path)
    for row in read_rows(path, get_input_kinds(agent)):
        _check_unchanged(path, state)
        if row.number > last:
            return
        inputs = mask_sensitive(agent, row.inputs)
        hash = hash_row(prompt, {"unreadable row": row.number} if row.problem else inputs)
        occurrence = index.count_occurrence(hash)
        id = hash if occurrence == 1 else f"{hash}-{occurrence}"
        if row.number not in numbers:
            continue
        interrupted = index.count_interruptions(id)
        yield index.find_finished(id) or PlannedRow(row=row, id=id, masked_inputs=inputs, interrupted=interrupted)
    _check_unchanged(path, state)


def _check_unchanged(path: Path, state: tuple[int, ...]) -> None:
    """Raise `RequestError` if the file has changed: rows of two files must not be mixed in one output."""
    if _get_state(path) != state:
        fix = "Run the batch again: finished rows are skipped."
        raise RequestError(f"'{path.name}' changed while the batch was running", fix)


def _get_state(path: Path) -> tuple[int, ...]:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def hash_prompt(agent: PromptAgent) -> str:
    """Hash the prompt and its model, but not the connection, which does not affect the answer."""
    return _hash(agent.model_dump(mode="json", by_alias=True, exclude={"path": True, "model": {"connection"}}))


def hash_row(prompt: str, masked_inputs: Mapping[str, object]) -> str:
    """Hash a row of a prompt. Pass inputs without sensitive values: the hash of a short secret would reveal it."""
    return _hash([prompt, masked_inputs])


def mask_sensitive(agent: PromptAgent, inputs: Mapping[str, object]) -> dict[str, object]:
    """Return the inputs with a mask for each that the file declares as sensitive."""
    sensitive = {declared.name for declared in agent.inputs if declared.sensitive}
    return {name: MASK if name in sensitive else value for name, value in inputs.items()}


def _hash(value: object) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_HASH_LENGTH]
