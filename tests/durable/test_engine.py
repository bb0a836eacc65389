"""The engine we use, held to the suite that every engine must pass, on both of its databases."""

import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine as Database, event

from prompty.durable.dbos_engine import DbosEngine
from prompty.durable.engine import Attempt, Engine, Steps
from prompty.model.message import Json
from tests.durable.databases import Databases
from tests.durable.suite import (
    BatchesSuite,
    CatalogSuite,
    EngineSuite,
    QueueSuite,
    RetriesSuite,
    StreamsSuite,
    TakeoversSuite,
)


class DbosSuite(EngineSuite, StreamsSuite, QueueSuite, RetriesSuite, CatalogSuite, BatchesSuite, TakeoversSuite):
    """DBOS has every capability."""


class TestDbosOnSqlite(DbosSuite):
    def engine(self, folder: Path, name: str | None) -> Engine:
        return DbosEngine(f"sqlite:///{folder}/runs.db", name)


class TestDbosOnPostgres(DbosSuite):
    @pytest.fixture(autouse=True)
    def _database(self, databases: Databases) -> None:
        self.url = databases.postgres()

    def engine(self, folder: Path, name: str | None) -> Engine:
        return DbosEngine(self.url, name)


@pytest.mark.parametrize("lease", [10, 1.5])
def test_a_worker_waits_for_the_database_and_goes_on_as_the_same_worker(databases: Databases, lease: float) -> None:
    """Also if the database is away for longer than the lease: nobody could take the run over meanwhile."""
    asked = threading.Event()

    async def workflow(steps: Steps, record: Json) -> Json:
        return await steps.step("fenced", {})

    async def perform(attempt: Attempt, effect: Json) -> Json:
        databases.server.stop()
        asked.set()
        await attempt.fence()
        return {"executions": 1}

    engine = DbosEngine(databases.postgres(), "one", lease=lease)
    engine.open(workflow, perform)
    try:
        engine.start("a", {})
        assert asked.wait(30)
        time.sleep(2)
        databases.server.start()
        status = engine.wait("a", 30)
        assert (status.output, status.recovered) == ({"executions": 1}, 0)
    finally:
        engine.close()


@pytest.mark.parametrize("table", ["application_versions", "queues"])
def test_a_worker_opens_although_the_database_ends_its_session_meanwhile(databases: Databases, table: str) -> None:
    """As it does with one that is suspended in a transaction for half a lease."""
    ended: list[int] = []

    def end_session(connection: Any, _cursor: object, statement: str, *_: object) -> None:
        if f"INSERT INTO dbos.{table}" in statement and not ended:
            ended.append(connection.connection.driver_connection.info.backend_pid)
            with psycopg.connect(databases.server.url(), autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", ended)

    async def workflow(steps: Steps, record: Json) -> Json:
        return record

    async def perform(attempt: Attempt, effect: Json) -> Json:
        return effect

    engine = DbosEngine(databases.postgres(), "one")
    event.listen(Database, "before_cursor_execute", end_session)
    try:
        engine.open(workflow, perform)
        engine.start("a", {"number": 1})
        assert engine.wait("a", 30).output == {"number": 1}
    finally:
        event.remove(Database, "before_cursor_execute", end_session)
        engine.close()
    assert ended != []
