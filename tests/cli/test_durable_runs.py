"""`prompty worker`, `submit` and `runs`, with real workers."""

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
from tests.durable.shop import stop
from tests.durable.suite import wait_until
from tests.loopback import Server, reply

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
  options:
    additionalProperties:
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


class Folder:
    """A folder with prompts, tools and a database, and the commands in it."""

    def __init__(self, path: Path) -> None:
        self.path, self.url = path, f"sqlite:///{path}/runs.db"
        (path / "functions.py").write_text(TOOLS)
        (path / "pay.prompty").write_text(PROMPT.format(**PAY))
        (path / "wait.prompty").write_text(PROMPT.format(**WAIT, arguments=f"{{folder: {path}}}"))

    def until_begun(self) -> None:
        """Wait until the tool of `wait.prompty` runs; it ends after `let_go`."""
        wait_until((self.path / "begun").exists)

    def let_go(self) -> None:
        (self.path / "go").touch()

    def __call__(self, *words: str) -> str:
        """What a command prints."""
        done = CliRunner().invoke(app, [*words, "--database", self.url])
        assert done.exit_code == 0, done.output
        return done.output

    def fails(self, *words: str) -> str:
        done = CliRunner().invoke(app, [*words, "--database", self.url])
        assert done.exit_code == 1
        return done.output

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
        wait_until(lambda: "paused" in folder("runs", "list"))
        assert 'pay({"at": "here"}) needs approval' in folder("runs", "show", "mine")
        folder("runs", "answer", "mine", "yes")
        folder("runs", "answer", "mine", "yes")
        wait_until(lambda: "done" in folder("runs", "list"))
        assert "paid here" in folder("runs", "show", "mine")
        assert "answered otherwise" in folder.fails("runs", "answer", "mine", "no=too late")
    assert folder("runs", "prune", "--older-than", "0s") == "1 runs deleted\n"
    assert "there is no run 'mine'" in folder.fails("runs", "show", "mine")


def test_a_run_is_cancelled_and_tried_again(folder: Folder) -> None:
    folder("submit", str(folder.path / "wait.prompty"), "--id", "mine")
    folder("runs", "cancel", "mine")
    assert '"state": "cancelled"' in folder("runs", "list", "--json")
    folder("runs", "retry", "mine")
    folder.let_go()
    with folder.worker():
        wait_until(lambda: "done" in folder("runs", "list"))
    assert "neither cancelled nor broken" in folder.fails("runs", "retry", "mine")


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
        wait_until(lambda: "paused" in folder("runs", "list"))
        assert "was interrupted, and may have taken effect" in folder("runs", "show", "mine")
        folder("runs", "answer", "mine", "use=waited")
        wait_until(lambda: "done" in folder("runs", "list"))


def test_another_worker_takes_over_the_runs_of_one_that_was_killed(folder: Folder) -> None:
    folder("submit", str(folder.path / "wait.prompty"), "--id", "mine")
    with folder.worker("--lease", "2"):
        folder.until_begun()
        assert "one" in folder("runs", "list")
    with folder.worker("--lease", "2", name="two"):
        wait_until(lambda: "paused" in folder("runs", "list"))
        assert "two" in folder("runs", "list")


def test_a_person_who_answers_soon_after_a_takeover_is_warned(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    folder("submit", str(folder.path / "wait.prompty"), "--id", "mine")
    with folder.worker("--lease", "2") as hanging:
        folder.until_begun()
        stop(hanging, folder.url)
        with folder.worker("--lease", "2", name="two"):
            wait_until(lambda: "paused" in folder("runs", "list"))
            folder("runs", "answer", "mine", "use=waited")
            assert "it may still finish 'wait' after your answer" in caplog.text
            wait_until(lambda: "done" in folder("runs", "list"))


def test_two_workers_may_have_the_same_name(folder: Folder) -> None:
    with folder.worker(), folder.worker():
        folder("submit", str(folder.path / "pay.prompty"), "--id", "mine")
        wait_until(lambda: "paused" in folder("runs", "list"))


def test_a_worker_names_the_runs_that_it_leaves_alone(folder: Folder) -> None:
    folder("submit", str(folder.path / "pay.prompty"), "--id", "mine")
    with closing(sqlite3.connect(folder.path / "runs.db")) as connection, connection:
        connection.execute("UPDATE workflow_status SET application_version = 'prompty-0'")
    with folder.worker(stderr=subprocess.PIPE) as worker:
        assert worker.stderr is not None
        left = "skipped 1 run: each needs a worker of an earlier release (schema 0; this one runs schema 1)."
        assert worker.stderr.readline().startswith(left)
    assert "waiting" in folder("runs", "list")
    assert "prompty-0: 1 waiting" in folder.fails("runs", "migrate")


def test_a_worker_deletes_runs_that_ended_long_enough_ago_and_keeps_paused_ones(folder: Folder) -> None:
    folder("submit", str(folder.path / "pay.prompty"), "--id", "paused")
    folder("submit", str(folder.path / "wait.prompty"), "--id", "cancelled")
    folder("runs", "cancel", "cancelled")
    with folder.worker("--keep", "7d"):
        wait_until(lambda: "paused  " in folder("runs", "list", "--state", "paused"))
    assert "cancelled" in folder("runs", "list")
    with folder.worker("--keep", "0s"):
        wait_until(lambda: "cancelled" not in folder("runs", "list"))
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
    assert "is not an https URL" in folder.fails("worker", "--on-pause", "http://example.com")


def test_a_worker_denies_what_nobody_answers_and_tells_a_webhook(folder: Folder) -> None:
    file = str(folder.path / "pay.prompty")
    with Server() as server:
        server.answer(reply(b"", 204))
        with folder.worker("--per-tenant", "2", "--on-pause", f"{server.url}/paused"):
            folder("submit", file, "--id", "mine", "--tenant", "acme", "--pause-timeout", "4s", "--deadline", "1h")
            wait_until(lambda: len(server.requests) == 1)
            assert server.requests[0].body["run"] == "mine"
            wait_until(lambda: "done" in folder("runs", "list"))
            shown = folder("runs", "show", "mine")
    assert 'pay({"at":"here"}) was denied: nobody answered within 0:00:04' in shown
    assert "paid" not in shown
