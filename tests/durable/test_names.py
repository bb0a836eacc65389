"""A worker's name in PostgreSQL, whose locks belong to a connection."""

import gc
import time

import psycopg
import pytest

from prompty.durable import names
from prompty.durable.names import name_lock
from prompty.durable.suite import wait_until
from prompty.errors import NameInUse
from tests.durable.databases import Databases


def locks_in(url: str) -> int:
    """Return the number of advisory locks that sessions of a database hold."""
    locks = "SELECT datname FROM pg_locks JOIN pg_database ON pg_database.oid = database WHERE locktype = 'advisory'"
    with psycopg.connect(url) as connection:
        return connection.execute(locks).fetchall().count((url.rpartition("/")[2],))


def test_a_name_that_was_given_back_is_not_taken_again(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the moment is just that in which the lock was looked after. What is left open would be a warning."""
    monkeypatch.setattr(names, "CHECK_SECONDS", 0.0005)
    monkeypatch.setattr(names, "DEATH_SECONDS", 0.0)
    url = databases.postgres()
    for number in range(50):
        lock = name_lock(url, "one")
        time.sleep(number % 5 / 1000)
        lock.release()
        gc.collect()


def test_a_name_is_kept_while_the_server_starts_again(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(names, "DEATH_SECONDS", 0.0)
    url = databases.postgres()
    lock = name_lock(url, "one")
    databases.server.stop()
    databases.server.start()
    wait_until(lambda: locks_in(url) == 1)
    with pytest.raises(NameInUse):
        name_lock(url, "one")
    lock.release()
    name_lock(url, "one").release()
    gc.collect()
