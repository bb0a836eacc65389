"""Our own stores, held to the suite that every store must pass."""

import json
import multiprocessing
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from prompty import PromptAgent, turn
from prompty.errors import MemoryFailed, StoreUnusable
from prompty.memory import InProcessMemory, MemoryStore, SqliteMemory
from prompty.testing import Script
from tests.memory.store_suite import MemoryStoreSuite


class TestInProcessMemory(MemoryStoreSuite):
    def store(self, folder: Path) -> MemoryStore:
        return InProcessMemory()


class TestSqliteMemory(MemoryStoreSuite):
    def store(self, folder: Path) -> MemoryStore:
        return SqliteMemory(folder / "sessions.db")

    def test_another_store_on_the_same_file_sees_the_same(self, tmp_path: Path) -> None:
        self.store(tmp_path).append("a", ({"role": "user"},))
        second = self.store(tmp_path)
        assert second.load("a") == [{"role": "user"}]
        release = self.store(tmp_path).acquire("a")
        assert release is not None
        assert second.acquire("a") is None
        release()

    def test_the_file_is_private(self, tmp_path: Path) -> None:
        self.store(tmp_path)
        assert stat.S_IMODE(os.stat(tmp_path / "sessions.db").st_mode) == 0o600

    def test_no_lock_file_is_left(self, tmp_path: Path) -> None:
        release = self.store(tmp_path).acquire("a")
        assert release is not None
        release()
        assert not list(tmp_path.glob("*.lock"))

    @pytest.mark.process
    def test_a_process_that_ends_gives_its_session_back(self, tmp_path: Path) -> None:
        self.store(tmp_path)
        context = multiprocessing.get_context("spawn")
        child = context.Process(target=acquire_and_die, args=(str(tmp_path / "sessions.db"),))
        child.start()
        child.join(30)
        assert child.exitcode == 3
        release = self.store(tmp_path).acquire("a")
        assert release is not None
        release()

    def test_a_file_of_another_release_is_refused(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / "sessions.db") as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
        with pytest.raises(StoreUnusable, match="schema 99"):
            self.store(tmp_path)


def acquire_and_die(path: str) -> None:
    assert SqliteMemory(path).acquire("a")
    os._exit(3)


def test_a_store_that_fails_is_an_error_with_the_session(tmp_path: Path) -> None:
    store = SqliteMemory(tmp_path / "sessions.db")
    with sqlite3.connect(tmp_path / "sessions.db") as connection:
        connection.execute("DROP TABLE messages")
    connection.close()
    agent = PromptAgent.model_validate({"model": {"id": "m", "provider": "scripted"}, "instructions": "user:\nHi"})
    with Script("never asked"), pytest.raises(MemoryFailed, match="'mine'"):
        turn(agent, memory=store, session_id="mine")


def test_what_is_stored_is_json(tmp_path: Path) -> None:
    SqliteMemory(tmp_path / "sessions.db").append("a", ({"role": "user", "content": "é"},))
    with sqlite3.connect(tmp_path / "sessions.db") as connection:
        [(text,)] = connection.execute("SELECT message FROM messages").fetchall()
    connection.close()
    assert json.loads(text) == {"role": "user", "content": "é"}


def damage(path: Path, how: str) -> None:
    if how == "a folder":
        path.mkdir()
    elif how == "garbage":
        path.write_bytes(b"this is no database" * 500)
    else:
        SqliteMemory(path).append("a", tuple({"role": "user", "content": "x" * 500} for _ in range(200)))
        content = path.read_bytes()
        for other in path.parent.glob(f"{path.name}-*"):
            other.unlink()
        path.write_bytes(content[: len(content) // 2 + 100])


@pytest.mark.parametrize("how", ["a folder", "garbage", "truncated"])
def test_a_file_that_is_no_store_is_an_error_of_ours(tmp_path: Path, how: str) -> None:
    path = tmp_path / "sessions.db"
    damage(path, how)
    with pytest.raises(StoreUnusable, match=r"sessions\.db' cannot be used"):
        use(path)


def use(path: Path) -> None:
    store = SqliteMemory(path)
    store.load("a")
    store.append("a", ({"role": "user"},))


def test_a_stored_message_that_is_damaged_is_an_error_of_ours(tmp_path: Path) -> None:
    store = SqliteMemory(tmp_path / "sessions.db")
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("INSERT INTO messages VALUES ('a', 0, '{half')")
    with pytest.raises(StoreUnusable):
        store.load("a")
