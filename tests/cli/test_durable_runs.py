"""`prompty worker`, `submit` and `runs`, with real workers on SQLite."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prompty.cli.app import app
from tests.batch.folder import until
from tests.loopback import Server, refusing_port, reply

pytestmark = [pytest.mark.process, pytest.mark.database]

TOOLS = """\
import time
from pathlib import Path
from prompty import tool

@tool
def pay(at: str) -> str:
    return f"paid {at}"

@tool
def wait(folder: str) -> str:
    Path(folder, "begun").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.02)
    return "waited"
"""
PROMPT = """\
---
model:
  id: m
  provider: scripted
  script:
    - [{{call: {name}, arguments: {arguments}}}]
    - Done.
tools:
  - name: {name}
    kind: function
    parameters: {parameters}
    approvalMode: {approval}
---
user:
Go on.
"""
PAY = {"name": "pay", "arguments": "{at: here}", "parameters": "{at: {kind: string}}", "approval": "always"}
WAIT = {"name": "wait", "parameters": "{folder: {kind: string}}", "approval": "never"}
LOGIN = """\
---
model: {id: m, provider: scripted, script: [Welcome.]}
inputs:
  pin: {kind: string, sensitive: true}
---
user:
My PIN is {{pin}}.
"""
PIN = "pin-of-nobody-98765"


class Folder:
    """A folder with prompts, tools and a database, and the commands in it."""

    def __init__(self, path: Path) -> None:
        self.path, self.url = path, f"sqlite:///{path}/runs.db"
        (path / "functions.py").write_text(TOOLS)
        (path / "pay.prompty").write_text(PROMPT.format(**PAY))
        (path / "login.prompty").write_text(LOGIN)
        (path / "wait.prompty").write_text(PROMPT.format(**WAIT, arguments=f"{{folder: {path}}}"))

    def until_begun(self) -> None:
        """Wait until the tool of `wait.prompty` runs; it ends after `let_go`."""
        until((self.path / "begun").exists)

    def let_go(self) -> None:
        (self.path / "go").touch()

    def __call__(self, *words: str) -> str:
        """What a command prints."""
        return self.fails(*words, code=0)

    def fails(self, *words: str, code: int = 1) -> str:
        done = CliRunner().invoke(app, [*words, "--database", self.url])
        assert done.exit_code == code, done.output
        return done.output

    def states(self, *filters: str) -> dict[str, str]:
        """Runs in the order of the list, with their states."""
        return {run["id"]: run["state"] for run in json.loads(self("runs", "list", "--json", *filters))}

    @contextmanager
    def worker(self, *words: str, name: str = "one", **streams: int) -> Iterator["subprocess.Popen[str]"]:
        """A worker that has begun to work."""
        command = [sys.executable, "-m", "prompty.cli", "worker", "--name", name, "-t", str(self.path / "functions.py")]
        command += ["--database", self.url, *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **streams)  # type: ignore[call-overload]  # options by name  # noqa: S603  our own code
        assert process.stdout is not None
        while "working on" not in (line := process.stdout.readline()):
            assert line, "the worker has ended by itself"
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_submitted_run_is_shown_answered_and_forgotten(folder: Folder) -> None:
    assert folder("submit", str(folder.path / "pay.prompty"), "--id", "mine") == "mine\n"
    assert "waiting" in folder("runs", "list")
    with folder.worker("--concurrency", "5", "--rate", "100/1"):
        until(lambda: "paused" in folder("runs", "list"))
        assert 'pay({"at": "here"}) needs approval' in folder("runs", "show", "mine")
        folder("runs", "answer", "mine", "yes")
        folder("runs", "answer", "mine", "yes")
        until(lambda: "done" in folder("runs", "list"))
        assert "paid here" in folder("runs", "show", "mine")
        assert "answered otherwise" in folder.fails("runs", "answer", "mine", "no=too late")
    assert folder("runs", "prune", "--older-than", "0s") == "1 runs deleted\n"
    assert "there is no run 'mine'" in folder.fails("runs", "show", "mine")


def test_a_run_is_cancelled_and_tried_again(folder: Folder) -> None:
    folder("submit", str(folder.path / "wait.prompty"), "--id", "mine")
    folder("runs", "cancel", "mine")
    assert folder.states() == {"mine": "cancelled"}
    folder("runs", "retry", "mine")
    folder.let_go()
    with folder.worker():
        until(lambda: folder.states() == {"mine": "done"})
    assert "the run 'mine' is done" in folder.fails("runs", "retry", "mine")


def test_a_worker_that_is_told_to_stop_lets_its_runs_end(folder: Folder) -> None:
    folder("submit", str(folder.path / "wait.prompty"))
    with folder.worker("--drain", "20") as worker:
        folder.until_begun()
        worker.send_signal(signal.SIGTERM)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "one: stopping\n"
        folder.let_go()
        assert worker.wait(30) == 0
    assert "done" in folder("runs", "list")


def test_a_run_that_is_cut_off_goes_on_when_another_worker_starts(folder: Folder) -> None:
    folder("submit", str(folder.path / "wait.prompty"), "--id", "mine")
    with folder.worker("--drain", "0") as worker:
        folder.until_begun()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    assert "waiting" in folder("runs", "list")
    with folder.worker(name="two"):
        until(lambda: "paused" in folder("runs", "list"))
        assert "was interrupted, and may have taken effect" in folder("runs", "show", "mine")
        folder("runs", "answer", "mine", "use=waited")
        until(lambda: "done" in folder("runs", "list"))


def test_another_worker_takes_over_the_runs_of_one_that_was_killed(folder: Folder) -> None:
    folder("submit", str(folder.path / "wait.prompty"), "--id", "mine")
    with folder.worker("--lease", "2"):
        folder.until_begun()
        assert "one" in folder("runs", "list")
    with folder.worker("--lease", "2", name="two"):
        until(lambda: folder.states() == {"mine": "paused"})
        folder("runs", "answer", "mine", "use=waited")
        until(lambda: folder.states() == {"mine": "done"})
        assert "two" in folder("runs", "list")


def test_two_workers_may_have_the_same_name(folder: Folder) -> None:
    with folder.worker(), folder.worker():
        folder("submit", str(folder.path / "pay.prompty"), "--id", "mine")
        until(lambda: "paused" in folder("runs", "list"))


def test_a_worker_names_the_runs_that_it_leaves_alone(folder: Folder) -> None:
    folder("submit", str(folder.path / "pay.prompty"), "--id", "mine")
    with folder.worker():
        until(lambda: folder.states() == {"mine": "paused"})
    with closing(sqlite3.connect(folder.path / "runs.db")) as connection, connection:
        for table, column in (("workflow_status", "application_version"), ("application_versions", "version_name")):
            connection.execute(f"UPDATE {table} SET {column} = 'prompty-0'")  # noqa: S608  names above
    with folder.worker(stderr=subprocess.PIPE) as worker:
        assert worker.stderr is not None
        assert worker.stderr.readline() == "skipped 1 run of prompty-0. See `prompty runs migrate`.\n"
    assert "prompty-0: 1 unfinished" in folder.fails("runs", "migrate")
    folder("runs", "cancel", "mine")
    assert folder("runs", "migrate") == ""


def test_a_worker_deletes_runs_that_ended_long_enough_ago_and_keeps_paused_ones(folder: Folder) -> None:
    folder("submit", str(folder.path / "pay.prompty"), "--id", "paused")
    folder("submit", str(folder.path / "wait.prompty"), "--id", "cancelled")
    folder("runs", "cancel", "cancelled")
    with folder.worker("--keep", "7d"):
        until(lambda: "paused  " in folder("runs", "list", "--state", "paused"))
    assert "cancelled" in folder("runs", "list")
    with folder.worker("--keep", "0s"):
        until(lambda: "cancelled" not in folder("runs", "list"))
    assert "paused" in folder("runs", "list")


def test_what_is_no_verdict_is_said_so(folder: Folder) -> None:
    done = CliRunner().invoke(app, ["runs", "answer", "mine", "perhaps", "--database", folder.url])
    assert done.exit_code == 2
    assert "perhaps" in done.output


def test_a_full_queue_is_said_with_the_options_of_the_command(folder: Folder) -> None:
    file = str(folder.path / "pay.prompty")
    folder("submit", file, "--max-waiting", "1", "--tenant", "acme")
    assert "acme" in folder("runs", "list")
    assert '"tenant": "acme"' in folder("runs", "list", "--json")
    said = folder.fails("submit", file, "--max-waiting", "1")
    assert "1 runs wait for a worker already, and the limit is 1" in said
    assert "raise --max-waiting" in said
    assert "Give --deadline" in folder.fails("submit", file, "--deadline", "0s")
    assert "is not an https URL" in folder.fails("worker", "--notify", "http://example.com")


def test_a_worker_denies_what_nobody_answers_and_tells_a_webhook(folder: Folder) -> None:
    file = str(folder.path / "pay.prompty")
    with Server() as server:
        server.answer(reply(b"", 204))
        with folder.worker("--per-tenant", "2", "--notify", f"{server.url}/runs"):
            folder("submit", file, "--id", "mine", "--tenant", "acme", "--pause-timeout", "4s", "--deadline", "1h")
            until(lambda: len(server.requests) == 1)
            assert (server.requests[0].body["event"], server.requests[0].body["run"]) == ("run.paused", "mine")
            until(lambda: "done" in folder("runs", "list"))
            shown = folder("runs", "show", "mine")
    assert 'pay({"at":"here"}) was denied: there was no answer within 0:00:04' in shown
    assert "paid" not in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--concurrency", "20", "--total", "10"), "--concurrency, which is for this worker, must not be larger"),
        (("--concurrency", "0"), "greater than or equal to 1"),
        (("--per-tenant", "-1"), "greater than or equal to 1"),
        (("--rate", "10/0"), "'10/0' is not a rate. Write for example 100/60."),
        (("--rate", "0/10"), "'0/10' is not a rate"),
        (("--rate", "10/nan"), "'10/nan' is not a rate"),
        (("--rate", "ten"), "'ten' is not a rate"),
        (("--lease", "0"), "greater than or equal to 1"),
        (("--lease", "nan"), "greater than or equal to 1"),
        (("--drain", "-1"), "greater than or equal to 0"),
        (("--secret", "key"), "'key' names no variable. Write NAME=VARIABLE."),
        (("--secret", "key=NO_SUCH_VARIABLE"), "The environment variable NO_SUCH_VARIABLE is not set."),
    ],
)
def test_a_number_that_cannot_work_is_a_mistake_of_the_command_line(
    words: tuple[str, ...], said: str, folder: Folder
) -> None:
    assert said in " ".join(folder.fails("worker", *words, code=2).split())
    assert not (folder.path / "runs.db").exists()


def test_ids_are_whole_however_long_they_are(folder: Folder) -> None:
    id = f"order-{'x' * 300}"
    folder("submit", str(folder.path / "pay.prompty"), "--id", id)
    assert id in folder("runs", "list").split()


def test_the_newest_run_is_first_also_after_an_older_one_was_answered(folder: Folder) -> None:
    file = str(folder.path / "pay.prompty")
    with folder.worker():
        folder("submit", file, "--id", "old")
        until(lambda: folder.states() == {"old": "paused"})
        folder("submit", file, "--id", "new")
        folder("runs", "answer", "old", "yes")
        until(lambda: folder.states() == {"new": "paused", "old": "done"})
        assert list(folder.states()) == ["new", "old"]


def test_runs_of_a_tenant_or_with_a_prefix_are_found_and_changed_alone(folder: Folder) -> None:
    file = str(folder.path / "pay.prompty")
    for tenant, id in (("acme", "a-1"), ("acme", "b-1"), ("zeta", "a-2"), ("zeta", "a_2")):
        folder("submit", file, "--id", id, "--tenant", tenant)
    assert list(folder.states("--tenant", "acme")) == ["b-1", "a-1"]
    assert list(folder.states("--id-prefix", "a-")) == ["a-2", "a-1"]
    assert list(folder.states("--id-prefix", "a_")) == ["a_2"]
    assert folder("runs", "cancel", "--tenant", "acme") == "2 runs cancelled\n"
    assert set(folder.states("--state", "cancelled")) == {"a-1", "b-1"}
    assert folder("runs", "retry", "--tenant", "acme", "--id-prefix", "a-") == ""
    assert folder.states("--tenant", "acme") == {"b-1": "cancelled", "a-1": "waiting"}
    assert folder("runs", "prune", "--older-than", "0s", "--tenant", "zeta") == "0 runs deleted\n"
    assert folder("runs", "prune", "--older-than", "0s", "--tenant", "acme") == "1 runs deleted\n"
    assert "b-1" not in folder.states()
    assert "Give either ids or filters" in folder.fails("runs", "cancel", "a-1", "--tenant", "acme", code=2)
    assert "--id-prefix" in folder.fails("runs", "retry", code=2)
    assert "must be one of failed, cancelled" in folder.fails("runs", "retry", "--state", "done", code=2)


def test_a_worker_without_a_secret_fails_its_run_and_one_that_knows_it_continues(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PIN", PIN)
    file = str(folder.path / "login.prompty")
    folder("submit", file, "--id", "mine", "-i", f"pin={PIN}", "--secret", "pin=SHOP_PIN")
    with folder.worker():
        until(lambda: folder.states() == {"mine": "failed"})
    shown = folder("runs", "show", "mine")
    assert "the secret 'pin'" in shown
    assert "--secret" in shown
    assert "{" not in shown
    folder("runs", "retry", "mine")
    with folder.worker("--secret", "pin=SHOP_PIN"):
        until(lambda: folder.states() == {"mine": "done"})
    assert "Welcome." in folder("runs", "show", "mine")
    stored = b"".join(path.read_bytes() for path in folder.path.glob("runs.db*"))
    assert PIN.encode() not in stored


@pytest.mark.parametrize("words", [("runs", "list"), ("runs", "cancel", "x"), ("db", "migrate"), ("worker",)])
def test_a_database_that_is_away_is_said_in_a_sentence(words: tuple[str, ...]) -> None:
    with refusing_port() as port:
        url = f"postgresql://shop:secret-word@127.0.0.1:{port}/runs"
        done = subprocess.run(  # noqa: S603  our own command
            [sys.executable, "-m", "prompty.cli", *words, "--database", url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, "")
    first, fix = done.stderr.splitlines()
    assert first.startswith(f"error: the database 'postgresql://••••@127.0.0.1:{port}/runs' cannot be used: connection")
    assert "OperationalError" not in first
    assert fix == "    Check the URL, and that the server runs."


def test_a_file_that_is_no_database_is_said_in_a_sentence(folder: Folder) -> None:
    (folder.path / "runs.db").write_text("This is a text, and no database at all.")
    assert "cannot be used: file is not a database" in folder.fails("runs", "list")


def test_tail_follows_a_run_over_its_answer(folder: Folder) -> None:
    folder("submit", str(folder.path / "pay.prompty"), "--id", "mine")
    command = [sys.executable, "-m", "prompty.cli", "runs", "tail", "mine", "--database", folder.url]
    with folder.worker():
        until(lambda: folder.states() == {"mine": "paused"})
        once = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603  our own
        assert "mine: paused" in once.stdout
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        following = subprocess.Popen([*command, "-f"], stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603  our own
        assert following.stdout is not None
        while "mine: paused" not in following.stdout.readline():
            pass
        folder("runs", "answer", "mine", "yes")
        rest, _ = following.communicate(timeout=60)
    assert "paid here" in rest
    assert "mine: done" in rest
