"""The engine we use, held to the suite that every engine must pass, on both of its databases."""

import multiprocessing
from pathlib import Path

import pytest

from prompty.durable.dbos_engine import DbosEngine
from prompty.durable.engine import Engine
from prompty.durable.suite import EngineSuite, return_record
from prompty.errors import NameInUse
from tests.durable.databases import Databases


class TestDbosOnSqlite(EngineSuite):
    def engine(self, folder: Path, name: str | None) -> Engine:
        return DbosEngine(f"sqlite:///{folder}/runs.db", name)

    def open_elsewhere(self, folder: Path, name: str) -> None:
        assert opened_elsewhere(f"sqlite:///{folder}/runs.db", name) == "NameInUse"
        raise NameInUse(name)  # as the other process has found


class TestDbosOnPostgres(EngineSuite):
    @pytest.fixture(autouse=True)
    def _database(self, databases: Databases) -> None:
        self.url = databases.postgres()

    def engine(self, folder: Path, name: str | None) -> Engine:
        return DbosEngine(self.url, name)

    def open_elsewhere(self, folder: Path, name: str) -> None:
        assert opened_elsewhere(self.url, name) == "NameInUse"
        raise NameInUse(name)  # as the other process has found


def opened_elsewhere(url: str, name: str) -> str:
    """What opening an engine in another process comes to: DBOS is one for each process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_open, (url, name))


def _open(url: str, name: str) -> str:
    try:
        DbosEngine(url, name).open(return_record)
    except NameInUse as error:
        return type(error).__name__
    return "opened"
