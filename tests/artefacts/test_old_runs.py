"""The durable runs that version 0.1.0 left in a database are read as they were, and go on to their ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from prompty import Paused, deny
from prompty.durable import DurableRuntime, use_result
from prompty.durable.suite import wait_until
from prompty.errors import Cancelled, IterationsExceeded
from prompty.events import Done, Event
from prompty.memory import SqliteMemory
from tests.artefacts.stored import OLD, TOOLS, expected, restore_sqlite
from tests.conversations.turns import assert_history_is_legal
from tests.durable.databases import Databases
from tests.plain import plain

SECONDS = 60
SECRETS = {"door": "sesame-0815"}
Restore = Callable[[str], str]
every_database = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


@pytest.fixture
def restored(databases: Databases) -> Restore:
    """Return the URL of a new database of a kind that holds the runs of version 0.1.0."""

    def restore(kind: str) -> str:
        url = databases.new(kind)
        if kind == "sqlite":
            restore_sqlite("runs/sqlite.sql", Path(url.partition("///")[2]))
        else:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute((OLD / "runs/postgresql.sql").read_bytes())
        return url

    return restore


@contextmanager
def working(url: str, folder: Path) -> Iterator[DurableRuntime]:
    """A worker of the name that the killed one had. It is closed when every run has ended or waits for a person."""
    memory = SqliteMemory(folder / "sessions.db")
    with DurableRuntime(url, name="worker", tools=TOOLS, memory=memory, secrets=SECRETS) as runtime:
        yield runtime
        wait_until(lambda: {run.state for run in runtime.list()}.isdisjoint({"waiting", "running"}))


def messages_of(runtime: DurableRuntime, run_id: str) -> list[str]:
    """The texts of a conversation that has ended, which every API takes."""
    *_, last = runtime.events(run_id)
    assert isinstance(last.event, Done)
    assert_history_is_legal(last.event.messages)
    return [message.text for message in last.event.messages]


@every_database
def test_runs_are_listed_and_their_events_are_read_as_they_were(kind: str, restored: Restore) -> None:
    reader = DurableRuntime(restored(kind))
    stored = expected("runs/expected.json")
    assert {run.id: run.state for run in reader.list()} == stored["states"]
    for run_id, events in stored["events"].items():
        assert [_as_old(event.event) for event in reader.events(run_id)] == events, run_id
    assert reader.result("done") == "Done."
    assert reader.result("guarded") == "DONE."
    assert isinstance(reader.result("paused"), Paused)
    with pytest.raises(IterationsExceeded):
        reader.result("failed")
    with pytest.raises(Cancelled):
        reader.result("cancelled")
    reader.close()


def _as_old(event: Event) -> Any:
    """Return an event as version 0.1.0 had it: events of tools have got the key of their call, and its exception."""
    shown = plain(event)
    return {name: value for name, value in shown.items() if name not in ("key", "error")} if "key" in shown else shown


@every_database
def test_queued_runs_are_run(kind: str, restored: Restore, tmp_path: Path) -> None:
    with working(restored(kind), tmp_path) as runtime:
        assert runtime.result("queued", timeout=SECONDS) == "Run at last."
        assert messages_of(runtime, "queued")[1:] == ["When you can.", "", "seen 0", "paid 5", "Run at last."]
        assert runtime.result("queued-options", timeout=SECONDS) == "Run at last."
        assert messages_of(runtime, "queued-options")[0] == "What does it look like?"
        assert len(runtime.parts.memory.load("queued runs")) == 5  # type: ignore[union-attr]  # there is a store
        assert runtime.result("queued-secret", timeout=SECONDS) == "Open."
        assert messages_of(runtime, "queued-secret")[0] == "Who? ", "the secret is not stored, so no reader sees it"


@every_database
def test_paused_runs_are_answered_and_end(kind: str, restored: Restore, tmp_path: Path) -> None:
    with working(restored(kind), tmp_path) as runtime:
        paused: Any = runtime.result("paused", timeout=SECONDS)
        assert [call.arguments for call in paused.pending] == [{"amount": 120}]
        runtime.answer(paused, [deny("too much")])
        assert runtime.result("paused", timeout=SECONDS) == "Settled."
        results = ["seen 0", "Tool 'pay' was denied: too much", "paid 7"]
        assert messages_of(runtime, "paused")[3:6] == results
        runtime.answer("paused-session", [True, True, True])
        assert runtime.result("paused-session", timeout=SECONDS) == "Settled."
        assert messages_of(runtime, "paused-session")[3:6] == ["seen 0", "paid 120", "paid 7"]


@every_database
def test_runs_whose_worker_was_killed_recover(kind: str, restored: Restore, tmp_path: Path) -> None:
    with working(restored(kind), tmp_path) as runtime:
        paused: Any = runtime.result("running", timeout=SECONDS)
        assert [(call.name, call.unknown) for call in paused.pending] == [("pay", True)], "nobody knows what it did"
        runtime.answer(paused, [use_result("paid 666")])
        assert runtime.result("running", timeout=SECONDS) == "Recovered."
        assert messages_of(runtime, "running")[3:] == ["seen 0", "", "paid 666", "seen 1", "Recovered."]
        for run_id in ("running-idempotent", "running-streamed"):
            assert runtime.result(run_id, timeout=SECONDS) == "Recovered."
            assert messages_of(runtime, run_id)[3:] == ["seen 0", "", "page 666", "Recovered."]
        assert runtime.list("running") == []


@every_database
def test_a_run_that_was_cancelled_can_be_retried_and_ended_ones_pruned(
    kind: str, restored: Restore, tmp_path: Path
) -> None:
    with working(restored(kind), tmp_path) as runtime:
        runtime.retry("cancelled")
        wait_until(lambda: {run.id: run.state for run in runtime.list()}["cancelled"] == "paused")
        runtime.answer("cancelled", [deny("the bank has refused it")])
        assert runtime.result("cancelled", timeout=SECONDS) == "never"
        runtime.catalog.delete(["done"])
        assert "done" not in {run.id for run in runtime.list()}
