"""Runs as an operator sees them: listed by page and filter, one bad row harms no other, and old ones are deleted."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prompty import Paused
from prompty.durable import Runs
from prompty.errors import Cancelled, IterationsExceeded, RequestError, RunRefused, UnknownRun
from tests.durable.runs import Desk, rounds, scripted, working

SECONDS = 60
NOW = timedelta(0)
TABLES = ("workflow_status", "workflow_input", "workflow_output", "operation_outputs", "prompty_runs")


class Stored:
    """A database with a run for each way to end: done, failed, paused, and one that was answered and is done."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "runs.db"
        self.url = f"sqlite:///{self.file}"
        with working(self.url, Desk().look) as worker:
            runs, script = worker.runs, rounds("look", 1, 1)
            runs.submit(scripted(script, name="desk"), run_id="done", tools=["look"], tenant="acme")
            assert runs.result("done", timeout=SECONDS) == "Done."
            for run_id in ("paused", "answered"):
                runs.submit(scripted(script), run_id=run_id, approval="always", tools=["look"])
            runs.answer(runs.result("answered", timeout=SECONDS), [True])
            assert runs.result("answered", timeout=SECONDS) == "Done."
            assert isinstance(runs.result("paused", timeout=SECONDS), Paused)
            runs.submit(scripted(script[:1] * 2), run_id="failed", max_iterations=1, tools=["look"])
            with pytest.raises(IterationsExceeded):
                runs.result("failed", timeout=SECONDS)

    def edit(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            assert connection.execute(statement, values).rowcount >= 1

    def damage_end(self, run_id: str) -> None:
        """Change one character of what is stored of a run's end."""
        self.edit(
            "UPDATE workflow_output SET output = replace(output, 'Done.', 'Dome.') WHERE workflow_uuid = ?", run_id
        )

    def damage_record(self, id: str) -> None:
        self.edit("UPDATE workflow_input SET inputs = replace(inputs, 'brief', 'Brief') WHERE workflow_uuid = ?", id)

    def count_rows(self) -> dict[str, int]:
        with closing(sqlite3.connect(self.file)) as connection:
            return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES}  # noqa: S608  our own names

    @contextmanager
    def client(self) -> Iterator[Runs]:
        with Runs(self.url) as runs:
            yield runs


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


def get_states(runs: Runs, **filters: Any) -> dict[str, str]:
    return {run.id: run.state for run in runs.list(**filters)}


def test_an_end_that_cannot_be_read_is_named_and_harms_no_other(stored: Stored) -> None:
    stored.damage_end("done")
    with stored.client() as client:
        states = get_states(client)
        assert states == {"done": "done", "paused": "paused", "answered": "done", "failed": "failed"}
        found = client.get("done")
        assert (found.state, found.reason) == ("done", "its checksum is wrong: it was changed after prompty wrote it")
        with pytest.raises(RunRefused, match="checksum"):
            client.result("done")
        assert isinstance(client.result("paused"), Paused)
        client.delete("done")
        assert client.prune(NOW) == 2
        assert get_states(client) == {"paused": "paused"}


def test_a_paused_run_whose_record_was_damaged_can_be_cancelled_and_pruned(stored: Stored) -> None:
    stored.damage_record("paused#1")
    with stored.client() as client:
        assert client.get("paused").state == "paused"
        assert "checksum" in str(client.get("paused").reason)
        with pytest.raises(RunRefused, match="the record of the run 'paused#1'"):
            client.answer("paused", [True])
        client.cancel("paused")
        assert get_states(client, state="cancelled") == {"paused": "cancelled"}
        assert client.prune(NOW, state="cancelled") == 1


def test_a_run_that_a_worker_could_not_read_has_failed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Runs(url) as client:
        client.submit(scripted(["Hi."]), run_id="mine")
        with closing(sqlite3.connect(tmp_path / "runs.db")) as connection, connection:
            connection.execute("UPDATE workflow_input SET inputs = replace(inputs, 'brief', 'Brief')")
        with working(url), pytest.raises(RunRefused):
            client.result("mine", timeout=SECONDS)
        [failed] = client.list("failed")
        assert "it is not JSON" in str(failed.reason) or "checksum" in str(failed.reason)
        assert client.prune(NOW) == 1


def test_runs_are_listed_by_state_prompt_tenant_prefix_and_age(stored: Stored) -> None:
    with stored.client() as client:
        assert get_states(client, state="paused") == {"paused": "paused"}
        assert get_states(client, state="done") == {"done": "done", "answered": "done"}
        assert get_states(client, state="failed") == {"failed": "failed"}
        assert get_states(client, prompt="desk") == {"done": "done"}
        assert get_states(client, prompt="nobody") == {}
        assert get_states(client, tenant="acme") == {"done": "done"}
        assert get_states(client, tenant="acme", state="failed") == {}
        assert get_states(client, prefix="pa") == {"paused": "paused"}
        assert get_states(client, prefix="PA") == get_states(client, prefix="_") == {}
        assert get_states(client, older_than=timedelta(hours=1)) == {}
        stored.edit("UPDATE prompty_runs SET created = created - 7200000, since = since - 7200000")
        assert len(client.list(older_than=timedelta(hours=1))) == 4
        assert client.prune(timedelta(hours=3)) == 0


def test_what_waits_and_what_runs_is_told_apart(tmp_path: Path) -> None:
    with Runs(f"sqlite:///{tmp_path}/runs.db") as runs:
        for number in range(3):
            runs.submit(scripted(["Hi."]), run_id=str(number))
        assert get_states(runs, state="waiting", limit=2) == {"2": "waiting", "1": "waiting"}
        assert runs.list("running") == []
        with closing(sqlite3.connect(tmp_path / "runs.db")) as connection, connection:
            connection.execute("UPDATE workflow_status SET status = 'PENDING' WHERE workflow_uuid = '1'")
        assert get_states(runs, state="running") == {"1": "running"}
        assert get_states(runs, state="waiting") == {"2": "waiting", "0": "waiting"}
        counts = {count.state: count.runs for count in runs.count_runs()}
        assert counts == {"waiting": 2, "running": 1, "paused": 0, "quarantined": 0}


def test_a_summary_has_tokens_and_the_first_start(stored: Stored) -> None:
    with stored.client() as client:
        runs = {run.id: run for run in client.list()}
        assert runs["answered"].segments == 2
        assert runs["answered"].tokens is not None
        assert runs["done"].prompt == "desk"
        assert runs["answered"].created < runs["answered"].since
        assert "exceeded 1 iterations" in str(runs["failed"].reason)
        assert client.get("answered") == runs["answered"]
        with pytest.raises(UnknownRun):
            client.get("nobody")


def test_an_answered_run_keeps_its_place_and_pages_follow_each_other_by_their_last_run(stored: Stored) -> None:
    with stored.client() as client:
        everything = client.list()
        assert [run.id for run in everything] == ["failed", "answered", "paused", "done"]
        seen, after = [], None
        while page := client.list(limit=3, after=after):
            assert len(page) <= 3
            seen += page
            after = page[-1].id
        assert seen == everything
        with pytest.raises(UnknownRun, match="here"):
            client.list(after="here")


def test_a_pruned_run_leaves_no_row_and_others_keep_theirs(stored: Stored) -> None:
    before = stored.count_rows()
    with stored.client() as client:
        with pytest.raises(RequestError, match="paused has not ended"):
            client.prune(NOW, state="paused")
        with pytest.raises(RequestError, match="the run 'paused' is paused"):
            client.delete("paused")
        assert client.prune(NOW, state="failed") == 1
        assert client.prune(NOW, prompt="desk") == 1
        assert get_states(client) == {"paused": "paused", "answered": "done"}
        assert client.prune(NOW) == 1
        client.answer("paused", [True])
    left = stored.count_rows()
    assert left["prompty_runs"] == left["workflow_output"] == 1
    assert left["workflow_status"] == left["workflow_input"] == 2, "the paused run, and its next segment"
    assert 0 < left["operation_outputs"] < before["operation_outputs"]


def test_a_run_is_not_pruned_while_it_executes_although_its_row_says_that_it_has_ended(stored: Stored) -> None:
    stored.edit("UPDATE workflow_status SET status = 'PENDING' WHERE workflow_uuid = 'done'")
    with stored.client() as client:
        assert client.prune(NOW) == 2
        assert get_states(client) == {"paused": "paused", "done": "running"}


def test_a_run_whose_deletion_was_interrupted_is_deleted_later(stored: Stored) -> None:
    with stored.client() as client:
        client.client.delete_workflows(["done"])
        assert "done" not in get_states(client)
        with pytest.raises(UnknownRun):
            client.get("done")
        assert client.prune(NOW) == 3
        assert stored.count_rows()["prompty_runs"] == 1


def test_a_run_that_is_retried_and_done_is_no_longer_found_as_cancelled(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Runs(url) as client:
        client.submit(scripted(rounds("look", 1, 1)), run_id="mine", tools=["look"])
        client.cancel("mine")
        with pytest.raises(Cancelled):
            client.result("mine")
        assert get_states(client, state="cancelled") == {"mine": "cancelled"}
        client.retry("mine")
        with working(url, Desk().look):
            assert client.result("mine", timeout=SECONDS) == "Done."
        assert client.list("cancelled") == []


def test_runs_of_another_schema_are_reported(stored: Stored) -> None:
    with stored.client() as client:
        for number in range(2):
            client.submit(scripted(["Hi."]), run_id=f"later{number}")
        stored.edit("UPDATE workflow_status SET application_version = 'prompty-2' WHERE workflow_uuid = 'later1'")
        stored.edit("UPDATE workflow_status SET application_version = 'shop' WHERE workflow_uuid = 'later0'")
        reasons = [run.reason for run in client.list("waiting")]
        assert reasons == [
            "needs a worker of the version 'prompty-2'; this one is 'prompty-1'",
            "needs a worker of the version 'shop'; this one is 'prompty-1'",
        ]
