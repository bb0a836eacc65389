"""Runs as an operator sees them: listed by page and filter, one bad row harms no other, and old ones are deleted."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from prompty import Paused
from prompty.cli.app import app
from prompty.durable import DurableRuntime
from prompty.durable.engine import VersionCount
from prompty.errors import IterationsExceeded, RequestError, RunRefused, UnknownRun
from prompty.events import Done
from tests.durable.runs import Desk, rounds, scripted, working
from tests.durable.suite import wait_until

SECONDS = 60
NOW = timedelta(0)
TABLES = ("workflow_status", "workflow_input", "workflow_output", "operation_outputs")


class Stored:
    """A database with a run for each way to end: done, failed, paused, and one that was answered and is done."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "runs.db"
        self.url = f"sqlite:///{self.file}"
        with working(self.url, Desk().look) as runtime:
            script = rounds("look", 1, 1)
            runtime.start(scripted(script, name="desk"), run_id="done").result(timeout=SECONDS)
            runtime.start(scripted(script), run_id="paused", approval="always").result(timeout=SECONDS)
            answered = runtime.start(scripted(script), run_id="answered", approval="always")
            runtime.answer(answered.result(timeout=SECONDS), [True])
            assert answered.result(timeout=SECONDS) == "Done."
            with pytest.raises(IterationsExceeded):
                runtime.start(scripted(script[:1] * 2), run_id="failed", max_iterations=1).result(timeout=SECONDS)

    def edit(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            assert connection.execute(statement, values).rowcount >= 1

    def damage(self, run_id: str) -> None:
        """Change one character of what is stored of a run's end."""
        self.edit(
            "UPDATE workflow_output SET output = replace(output, 'Done.', 'Dome.') WHERE workflow_uuid = ?", run_id
        )

    def count_rows(self) -> dict[str, int]:
        with closing(sqlite3.connect(self.file)) as connection:
            return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES}  # noqa: S608  our own names

    @contextmanager
    def client(self) -> Iterator[DurableRuntime]:
        runtime = DurableRuntime(self.url)
        yield runtime
        runtime.close()

    def run(self, *words: str, code: int = 0) -> str:
        """Return what a command prints."""
        done = CliRunner().invoke(app, [*words, "--database", self.url])
        assert done.exit_code == code, done.output
        return done.output


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


def get_states(runtime: DurableRuntime, **filters: Any) -> dict[str, str]:
    return {run.id: run.state for run in runtime.list(**filters)}


def test_a_run_that_cannot_be_read_is_listed_as_refused_and_harms_no_other(stored: Stored) -> None:
    stored.damage("done")
    with stored.client() as client:
        states = get_states(client)
        assert states == {"done": "refused", "paused": "paused", "answered": "done", "failed": "failed"}
        [refused] = client.list("refused")
        assert (refused.id, refused.tokens) == ("done", None)
        assert refused.reason is not None
        assert "checksum" in refused.reason
        assert client.summary("paused").state == "paused"
        assert isinstance(client.result("paused"), Paused)
        with pytest.raises(RunRefused, match="checksum"):
            client.result("done")
        assert client.prune(NOW) == 3
        assert get_states(client) == {"paused": "paused"}


def test_commands_name_a_refused_run_with_its_reason_and_delete_it(stored: Stored) -> None:
    stored.damage("done")
    assert "its checksum is wrong" in stored.run("runs", "list")
    assert "answered: done" in stored.run("runs", "show", "answered")
    assert "its checksum is wrong" in stored.run("runs", "show", "done")
    assert [run["id"] for run in json.loads(stored.run("runs", "list", "--state", "refused", "--json"))] == ["done"]
    assert stored.run("runs", "prune", "--state", "refused", "--older-than", "0s") == "1 runs deleted\n"
    assert stored.run("runs", "prune", "failed") == "1 runs deleted\n"
    assert "is paused" in stored.run("runs", "prune", "paused", code=1)
    with stored.client() as client:
        assert get_states(client) == {"paused": "paused", "answered": "done"}


def test_runs_are_listed_by_state_prompt_and_age(stored: Stored) -> None:
    with stored.client() as client:
        assert get_states(client, state="paused") == {"paused": "paused"}
        assert get_states(client, state="done") == {"done": "done", "answered": "done"}
        assert get_states(client, state="failed") == {"failed": "failed"}
        assert get_states(client, prompt="desk") == {"done": "done"}
        assert get_states(client, prompt="nobody") == {}
        assert get_states(client, older_than=timedelta(hours=1)) == {}
        stored.edit(
            "UPDATE workflow_status SET created_at = created_at - 7200000, completed_at = completed_at - 7200000"
        )
        assert len(client.list(older_than=timedelta(hours=1))) == 4
        assert client.prune(timedelta(hours=3)) == 0


def test_a_summary_has_tokens_and_the_first_start(stored: Stored) -> None:
    with stored.client() as client:
        runs = {run.id: run for run in client.list()}
        assert runs["answered"].segments == 2
        assert runs["answered"].tokens is not None
        assert runs["done"].prompt == "desk"
        first = client.engine.status("answered")
        assert first is not None
        assert runs["answered"].created == first.created
        assert client.summary("answered") == runs["answered"]
        with pytest.raises(UnknownRun):
            client.summary("nobody")


def test_pages_follow_each_other_by_their_cursor(stored: Stored) -> None:
    with stored.client() as client:
        everything = client.list()
        seen, after = [], None
        while page := client.list(limit=3, after=after):
            assert len(page) <= 3
            seen += page
            after = page[-1].cursor
        assert seen == everything
        with pytest.raises(RequestError, match="not a position"):
            client.list(after="here")
    first = stored.run("runs", "list", "--limit", "3")
    assert f"add --after {everything[2].cursor}" in first
    last = stored.run("runs", "list", "--limit", "3", "--after", everything[2].cursor)
    assert everything[3].id in last
    assert "--after" not in last


def test_a_pruned_run_leaves_no_row_and_others_keep_theirs(stored: Stored) -> None:
    before = stored.count_rows()
    with stored.client() as client:
        with pytest.raises(RequestError, match="paused has not ended"):
            client.prune(NOW, state="paused")
        assert client.prune(NOW, state="failed") == 1
        assert client.prune(NOW, prompt="desk") == 1
        assert get_states(client) == {"paused": "paused", "answered": "done"}
        assert client.prune(NOW) == 1
        client.answer("paused", [True])
    left = stored.count_rows()
    assert left["workflow_status"] == left["workflow_input"] == 2, "the paused run, and its next segment"
    assert left["workflow_output"] == 1
    assert 0 < left["operation_outputs"] < before["operation_outputs"]


def test_a_label_of_an_attempt_that_died_does_not_count(stored: Stored) -> None:
    stored.edit("""UPDATE workflow_status SET attributes = '{"prompt": "", "outcome": "failed", "attempt": 0}'
        WHERE workflow_uuid = 'done'""")
    with stored.client() as client:
        assert "done" in get_states(client, state="done")
        assert "done" not in get_states(client, state="failed")


def test_a_run_that_is_retried_and_done_is_no_longer_found_as_cancelled(tmp_path: Path) -> None:
    desk = Desk()
    url = f"sqlite:///{tmp_path}/runs.db"
    client = DurableRuntime(url)
    client.start(scripted(rounds("look", 1, 1)), run_id="mine")
    client.cancel("mine")
    assert get_states(client, state="cancelled") == {"mine": "cancelled"}
    client.retry("mine")
    with working(url, desk.look):
        wait_until(lambda: get_states(client, state="done") == {"mine": "done"})
    assert client.list("cancelled") == []
    client.close()


def test_runs_of_another_schema_are_reported(stored: Stored) -> None:
    client = DurableRuntime(stored.url)
    for number in range(3):
        client.start(scripted(["Hi."]), run_id=f"later{number}")
    stored.edit("UPDATE workflow_status SET application_version = 'prompty-2' WHERE workflow_uuid LIKE 'later%'")
    stored.edit("UPDATE workflow_status SET application_version = 'shop' WHERE workflow_uuid = 'later0'")
    [later] = [run for run in client.list("waiting") if run.id == "later1"]
    assert later.reason == "needs a worker of a later release (schema 2; this one runs schema 1)"
    assert client.catalog.count_versions() == [
        VersionCount("prompty-1", 0, 0, 5),
        VersionCount("prompty-2", 2, 0, 0),
        VersionCount("shop", 1, 0, 0),
    ]
    assert "needs a worker of a later release" in stored.run("runs", "list")
    said = stored.run("runs", "migrate", code=1)
    assert "prompty-2: 2 waiting, 0 running, 0 ended\n    Each needs a worker of a later release" in said
    assert "needs a worker of the application 'shop'" in said
    for number in range(3):
        client.cancel(f"later{number}")
    client.close()
    assert "prompty-2: 0 waiting, 0 running, 2 ended" in stored.run("runs", "migrate")


def test_an_end_of_another_schema_is_refused_in_the_list_and_pruned(stored: Stored) -> None:
    stored.edit("""UPDATE workflow_output SET output = replace(output, '"prompty":1', '"prompty":2')""")
    with stored.client() as client:
        assert set(get_states(client).values()) == {"refused"}
        [reason] = {run.reason for run in client.list()}
        assert reason == "it has schema 2, but this release reads schema 1"
        assert client.prune(NOW) == 3, "what it was labelled as says that the paused one has not ended"


def test_many_runs_are_cancelled_and_retried_by_a_filter(stored: Stored) -> None:
    with stored.client() as client:
        for number in range(3):
            client.start(scripted(["Hi."], name="greeting"), run_id=f"queued{number}")
        assert stored.run("runs", "cancel", "--prompt", "greeting", "--older-than", "0s") == "3 runs cancelled\n"
        assert get_states(client, prompt="greeting") == dict.fromkeys(("queued2", "queued1", "queued0"), "cancelled")
        assert stored.run("runs", "retry", "--state", "cancelled") == "3 runs continued\n"
        assert len(client.list("waiting")) == 3
        assert stored.run("runs", "cancel", "queued0") == ""
        assert len(client.list("waiting")) == 2
        refused = stored.run("runs", "retry", "queued0", "done", code=1)
        assert "was neither cancelled nor broken" in refused
        assert "1 runs continued" in refused
        assert len(client.list("waiting")) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cancel"], "Give run ids"),
        (["cancel", "done", "--state", "waiting"], "either ids or filters"),
        (["cancel", "--state", "done"], "The state must be one of waiting, running, paused"),
        (["retry", "--state", "paused"], "The state must be one of failed, cancelled"),
    ],
)
def test_a_command_for_many_runs_needs_ids_or_filters(stored: Stored, words: list[str], said: str) -> None:
    assert said in " ".join(stored.run("runs", *words, code=2).split())


def test_the_events_of_a_run_are_followed_until_it_needs_an_answer(stored: Stored) -> None:
    followed = stored.run("runs", "tail", "answered")
    assert "look(" in followed
    assert "seen 0/0" in followed
    assert followed.endswith("answered: done\n")
    assert "paused: paused\n  1. look(" in stored.run("runs", "tail", "paused")
    assert "there is no run 'nobody'" in stored.run("runs", "tail", "nobody", code=1)


def test_many_paused_runs_are_answered_with_one_verdict(stored: Stored) -> None:
    assert stored.run("runs", "answer", "--each", "no=expired", "--older-than", "1h") == "0 runs answered\n"
    assert stored.run("runs", "answer", "--each", "no=expired", "--prompt", "nobody") == "0 runs answered\n"
    stored.run("runs", "answer", "--each", "no=expired")
    with working(stored.url, Desk().look) as runtime:
        assert runtime.result("paused", timeout=SECONDS) == "Done."
        *_, last = runtime.events("paused")
        assert isinstance(last.event, Done)
        assert "expired" in next(message.text for message in last.event.messages if message.role == "tool")


@pytest.mark.parametrize(
    "words", [[], ["paused"], ["paused", "--each", "yes"], ["paused", "yes", "--older-than", "1d"]]
)
def test_an_answer_is_for_one_run_or_for_each(stored: Stored, words: list[str]) -> None:
    assert "--each" in stored.run("runs", "answer", *words, code=2)
