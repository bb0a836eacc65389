"""The database of runs: its file and tables, a role with few rights, and rows that change state once."""

import stat
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from prompty.durable import Runs
from prompty.durable.database import RunFilter, RunTable, create_engine, migrate, prepare
from prompty.errors import RequestError
from tests.durable.databases import Databases, free_port
from tests.durable.runs import scripted

DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.database)]


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, databases: Databases) -> str:
    return databases.new(request.param)


@pytest.fixture
def table(url: str) -> Iterator[RunTable]:
    migrate(url)
    engine = create_engine(url)
    table = RunTable(engine)
    with engine.begin() as connection:
        assert table.insert("mine", "desk.prompty", None, connection)
        assert not table.insert("mine", "other.prompty", None, connection)
    yield table
    engine.dispose()


def test_a_sqlite_file_is_private_and_one_that_exists_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "new" / "runs.db"
    prepare(f"sqlite:///{file}")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes()[18:20] == b"\x02\x02", "it has a write-ahead log"
    theirs = tmp_path / "theirs.db"
    theirs.write_bytes(b"")
    prepare(f"sqlite:///{theirs}")
    assert theirs.read_bytes() == b""


MIGRATE = "import sys; from prompty.durable.database import migrate; migrate(sys.argv[1])"


@pytest.mark.process
def test_several_processes_create_the_tables_at_once(url: str) -> None:
    started = [subprocess.Popen([sys.executable, "-c", MIGRATE, url]) for _ in range(4)]  # noqa: S603  our own code
    assert [process.wait(120) for process in started] == [0] * 4
    with Runs(url) as runs:
        assert runs.list() == []


@pytest.mark.database
def test_a_role_that_may_create_nothing_submits_and_lists_when_the_tables_are_there(databases: Databases) -> None:
    url = databases.postgres()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE clerk LOGIN")
    clerk = url.replace("postgres@", "clerk@")
    with pytest.raises(RequestError, match="permission denied"):
        Runs(clerk)
    migrate(url, "clerk")
    migrate(clerk)
    with Runs(clerk) as runs:
        runs.submit(scripted(["Hi."]), run_id="mine")
        assert [run.id for run in runs.list()] == ["mine"]


@pytest.mark.parametrize("url", ["mysql://here", "sqlite://", "runs.db"])
def test_a_url_that_is_no_database_is_refused(url: str) -> None:
    with pytest.raises(RequestError, match="unsupported database URL"):
        Runs(url)


def test_a_database_that_is_away_is_explained_in_a_sentence() -> None:
    url = f"postgresql://me:secret@127.0.0.1:{free_port()}/runs"
    with pytest.raises(
        RequestError, match=r"the database 'postgresql://.*' cannot be used: connection failed"
    ) as error:
        Runs(url)
    assert "secret" not in str(error.value)
    assert "psycopg" not in str(error.value)
    assert str(error.value).endswith("Check the URL, and that the server runs.")


def test_a_state_changes_once_so_that_it_is_counted_once(table: RunTable) -> None:
    assert table.change("mine", "paused", segment=1)
    assert not table.change("mine", "paused", segment=1), "the step was repeated"
    assert table.change("mine", "open", segment=1)
    assert not table.change("mine", "paused", segment=1), "a process that hung wakes up after the answer"
    assert not table.change("mine", "done", segment=0), "so does one that executed the segment before"
    assert table.change("mine", "done", segment=1, tokens=3, cost=Decimal("0.10"))
    assert not table.change("mine", "done", segment=1)
    assert not table.change("mine", "cancelled", segment=1), "it has ended"
    row = table.get("mine")
    assert row is not None
    assert (row.prompt, row.state, row.segments, row.tokens, row.cost) == ("desk.prompty", "done", 2, 3, "0.10")
    assert row.created <= row.since <= table.read_clock() * 1000


def test_a_cancelled_run_stays_cancelled_whatever_its_worker_notes(table: RunTable) -> None:
    assert table.change("mine", "cancelled", segment=0)
    for state in ("done", "failed", "paused", "open"):
        assert not table.change("mine", state, segment=1 if state == "paused" else 0)
    assert table.change("mine", "open", segment=0, was=("cancelled",))


def test_rows_are_found_by_prefix_whatever_the_language_of_the_database(table: RunTable) -> None:
    with table.engine.begin() as connection:
        for id in ("a-1", "A-1", "a_1", "ä-1", "a%1", "b"):
            table.insert(id, "", None, connection)
    assert {row.id for row in table.find(RunFilter(prefix="a"), limit=10)} == {"a-1", "a_1", "a%1"}
    assert {row.id for row in table.find(RunFilter(prefix="a%"), limit=10)} == {"a%1"}
    assert {row.id for row in table.find(RunFilter(prefix="ä"), limit=10)} == {"ä-1"}


def test_the_gauges_count_what_is_open_and_for_how_long(table: RunTable) -> None:
    hour = 3600.0
    for number, hours in enumerate((0, 2, 30)):
        with table.engine.begin() as connection:
            table.insert(str(number), "", None, connection)
        table.update(str(number), state="paused", since=table.now - int(hours * hour * 1000))
    runs, oldest = table.measure("paused")
    assert runs == 3
    assert oldest == pytest.approx(30 * hour, abs=5)
    assert table.measure("paused", without=["2"])[0] == 2
    assert (table.count("paused"), table.count("paused", 2)) == (3, 2)
