"""A worker as its operators see it: a real process with probes and metrics, and a role that may only write rows."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import psycopg
import pytest

from prompty import Paused
from prompty.durable import Runs
from prompty.durable.metrics import METRICS
from tests.batch.folder import until
from tests.durable.databases import Databases, free_port
from tests.durable.runs import scripted
from tests.durable.test_metrics import read_samples

pytestmark = [pytest.mark.process, pytest.mark.database]
SECONDS = 60
TOOLS = "from prompty import tool\n\n@tool\nasync def look(at: str) -> str:\n    return f'seen {at}'\n"


class Worker:
    """`prompty worker` with probes, in a process of its own."""

    def __init__(self, folder: Path, url: str, *words: str) -> None:
        (folder / "functions.py").write_text(TOOLS)
        self.port = free_port()
        command = [
            sys.executable,
            "-m",
            "prompty.cli",
            "worker",
            "-t",
            "functions.py",
            "--probes",
            str(self.port),
            *words,
        ]
        self.process = subprocess.Popen(  # noqa: S603  our own command
            command, cwd=folder, env={**os.environ, "PROMPTY_DATABASE": url}, stdout=subprocess.PIPE, text=True
        )

    def get(self, path: str) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def is_ready(self) -> bool:
        return self.get("/readyz") == (200, "ok\n")


@contextmanager
def running(folder: Path, url: str, *words: str) -> Iterator[Worker]:
    worker = Worker(folder, url, *words)
    try:
        until(worker.is_ready)
        yield worker
    finally:
        worker.process.send_signal(signal.SIGTERM)
        worker.process.communicate(timeout=SECONDS)


def test_a_running_worker_shows_every_documented_metric(databases: Databases, tmp_path: Path) -> None:
    url = databases.postgres()
    client = Runs(url)
    agent = scripted([{"call": "look", "arguments": {"at": "here"}}, "Done."])
    with running(tmp_path, url, "--drain", "1") as worker:
        assert worker.get("/livez") == (200, "ok\n")
        assert client.result(client.submit(agent, tools=["look"]), timeout=SECONDS) == "Done."
        paused = client.submit(agent, tools=["look"], approval="always")
        assert isinstance(client.result(paused, timeout=SECONDS), Paused)
        status, text = worker.get("/metrics")
        assert status == 200
        samples = read_samples(text.encode())
    states = ("waiting", "running", "paused", "quarantined")
    counts = {state: samples[f'prompty_runs{{prompty_run_state="{state}"}}'] for state in states}
    assert counts == {"waiting": 0, "running": 0, "paused": 1, "quarantined": 0}
    assert samples['prompty_runs_ended_total{prompty_run_outcome="done"}'] == 1
    assert 0 < samples['prompty_runs_oldest_seconds{prompty_run_state="paused"}'] < SECONDS
    assert samples['prompty_step_duration_seconds_count{prompty_step_kind="tool"}'] == 1
    assert samples['prompty_tokens_total{gen_ai_token_type="output"}'] == 15
    quiet = {"prompty.model.rate_limited", "prompty.calls.uncertain", "prompty.workers.lost", "prompty.runs.taken_over"}
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `(prompty[\w.]+)` \| `(\w+)` \|", page, re.MULTILINE))
    assert documented.keys() == METRICS.keys()
    shown = {re.sub(r"_(bucket|count|sum)?(\{.*)?$|\{.*$", "", name) for name in samples}
    assert {documented[name] for name in METRICS.keys() - quiet} <= shown
    client.close()


def test_a_worker_that_takes_runs_over_counts_it(databases: Databases, tmp_path: Path) -> None:
    url = databases.postgres()
    client = Runs(url)
    agent = scripted([{"call": "look", "arguments": {"at": "here"}}, "Done."])
    first = Worker(tmp_path, url, "--lease", "2")
    until(first.is_ready)
    first.process.kill()
    first.process.communicate()
    with running(tmp_path, url, "--lease", "2", "--drain", "1") as second:
        until(lambda: read_samples(second.get("/metrics")[1].encode()).get("prompty_workers_lost_total") == 1)
        assert client.result(client.submit(agent, tools=["look"]), timeout=SECONDS) == "Done."
    client.close()


def test_a_worker_is_not_ready_while_its_database_is_away(databases: Databases, tmp_path: Path) -> None:
    url = databases.postgres()
    with running(tmp_path, url, "--lease", "4", "--drain", "1") as worker:
        databases.server.stop()
        try:
            until(lambda: worker.get("/readyz")[0] == 503)
            status, reason = worker.get("/readyz")
            assert status == 503
            assert re.fullmatch(r"(the database does not answer: \w+|the worker has not renewed its lease)\n", reason)
            assert worker.get("/livez") == (200, "ok\n"), "a restart would not help"
        finally:
            databases.server.start()
        until(worker.is_ready)


def test_a_role_that_can_create_nothing_works_once_the_tables_are_there(databases: Databases, tmp_path: Path) -> None:
    owner = databases.postgres()
    name = owner.rpartition("/")[2]
    role = f"worker_{name}"
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(f"REVOKE CREATE ON DATABASE {name} FROM PUBLIC")
    command = [sys.executable, "-m", "prompty.cli", "db", "migrate", "--database", owner, "--role", role]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)  # noqa: S603  our own
    assert done.stdout.endswith("are up to date\n")
    narrow = owner.replace("postgres@", f"{role}@")
    with psycopg.connect(narrow, autocommit=True) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("CREATE TABLE dbos.mine (id text)")
    client = Runs(narrow)
    agent = scripted([{"call": "look", "arguments": {"at": "here"}}, "Done."])
    with running(tmp_path, narrow, "--drain", "1"):
        assert client.result(client.submit(agent, tools=["look"]), timeout=SECONDS) == "Done."
    client.close()
