"""Locks of databases: in PostgreSQL they belong to a connection, and beside a SQLite file to a process."""

import gc
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from prompty.batches import shared as locks
from prompty.batches.shared import acquire_lock
from tests.batch.folder import until
from tests.durable.databases import Databases


def locks_in(url: str) -> int:
    """Return the number of advisory locks that sessions of a database hold."""
    locks = "SELECT datname FROM pg_locks JOIN pg_database ON pg_database.oid = database WHERE locktype = 'advisory'"
    with psycopg.connect(url) as connection:
        return connection.execute(locks).fetchall().count((url.rpartition("/")[2],))


def test_a_lock_that_was_given_back_is_not_taken_again(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the moment is just that in which the lock was looked after. What is left open would be a warning."""
    monkeypatch.setattr(locks, "CHECK_SECONDS", 0.0005)
    monkeypatch.setattr(locks, "DEATH_SECONDS", 0.0)
    url = databases.postgres()
    for number in range(50):
        lock = acquire_lock(url, "one")
        time.sleep(number % 5 / 1000)
        lock.release()
        gc.collect()


def test_a_lock_is_kept_while_the_server_starts_again(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(locks, "DEATH_SECONDS", 0.0)
    url = databases.postgres()
    lock = acquire_lock(url, "one")
    databases.server.stop()
    databases.server.start()
    until(lambda: locks_in(url) == 1)
    with pytest.raises(BlockingIOError):
        acquire_lock(url, "one")
    lock.release()
    acquire_lock(url, "one").release()
    gc.collect()


OPEN = "import sys; from prompty.durable import Runs; Runs(sys.argv[1]).close(); print('open')"


def test_processes_that_open_a_new_sqlite_file_at_once_all_find_its_tables(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPEN, f"sqlite:///{tmp_path}/runs.db"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(6)]  # noqa: S603  our own code
    printed = [process.communicate(timeout=120) for process in processes]
    assert [out for out, _ in printed] == ["open\n"] * 6, printed
    assert not list(tmp_path.glob("*.lock"))
