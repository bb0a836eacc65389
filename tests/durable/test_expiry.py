"""Deadlines of runs, and pauses that nobody answers in time."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from prompty import Paused, PromptAgent, tool
from prompty.durable import Runs
from prompty.durable.envelope import digest
from prompty.durable.record import Record, record_from
from prompty.errors import DeadlineExceeded, RequestError
from prompty.events import RunFailed
from tests.batch.folder import until
from tests.durable.databases import Databases
from tests.durable.runs import Desk, rounds, scripted, working
from tests.loopback import Hold, Server

SECONDS = 30.0
SOON = timedelta(seconds=1)
DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.database)]


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, databases: Databases) -> str:
    return databases.new(request.param)


class Shop:
    """A tool that takes its time, and one that must not run unseen."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    @tool
    async def wait(self, at: str) -> str:
        """Wait for ever."""
        self.begun.append(at)
        await asyncio.sleep(SECONDS)
        return "waited"

    @tool
    async def pay(self, at: str) -> str:
        """Pay."""
        self.begun.append(at)
        return "paid"


@pytest.fixture
def client(url: str) -> Iterator[Runs]:
    with Runs(url) as runs:
        yield runs


def check_failed(runs: Runs, run_id: str) -> DeadlineExceeded:
    """Check that a run failed at its deadline, and that everybody sees so."""
    with pytest.raises(DeadlineExceeded, match="did not end before its deadline, 20") as error:
        runs.result(run_id, timeout=SECONDS)
    assert runs.get(run_id).state == "failed"
    assert [run.id for run in runs.list("failed")] == [run_id]
    last = list(runs.events(run_id))[-1].event
    assert isinstance(last, RunFailed)
    assert "deadline" in last.error
    return error.value


def test_a_call_under_way_is_abandoned_at_the_deadline_and_none_begins_after_it(url: str) -> None:
    shop = Shop()
    with working(url, shop.wait) as worker:
        run_id = worker.runs.submit(scripted(rounds("wait", 3, 1)), deadline=timedelta(seconds=3), tools=["wait"])
        begun = time.monotonic()
        error = check_failed(worker.runs, run_id)
        assert time.monotonic() - begun < 15
    assert shop.begun == ["0/0"]
    assert "was interrupted" in error.messages[-1].text


def test_a_run_that_waited_past_its_deadline_begins_nothing(url: str, client: Runs) -> None:
    desk = Desk()
    run_id = client.submit(scripted(rounds("look", 1, 1)), deadline=SOON, tools=["look"])
    time.sleep(1.5)
    with working(url, desk.look):
        check_failed(client, run_id)
    assert desk.seen == []


def test_a_paused_run_fails_at_its_deadline(url: str) -> None:
    shop = Shop()
    with working(url, shop.pay) as worker:
        runs = worker.runs
        run_id = runs.submit(
            scripted(rounds("pay", 1, 1)), approval="always", deadline=timedelta(seconds=8), tools=["pay"]
        )
        paused = runs.result(run_id, timeout=SECONDS)
        assert isinstance(paused, Paused)
        until(lambda: runs.get(run_id).state == "failed")
        check_failed(runs, run_id)
        with pytest.raises(RequestError, match="answered otherwise"):
            runs.answer(paused, [True])
    assert shop.begun == []


def test_calls_of_a_pause_that_nobody_answers_are_denied_and_the_run_goes_on(url: str) -> None:
    shop = Shop()
    with working(url, shop.pay) as worker:
        runs = worker.runs
        run_id = runs.submit(scripted(rounds("pay", 1, 2)), approval="always", pause_timeout=SOON, tools=["pay"])
        paused = runs.result(run_id, timeout=SECONDS)
        assert isinstance(paused, Paused)
        until(lambda: runs.get(run_id).state == "done")
        assert runs.result(run_id, timeout=SECONDS) == "Done."
        assert "there was no answer within 0:00:01" in str([event.event for event in runs.events(run_id)])
        assert runs.get(run_id).segments == 2
        with pytest.raises(RequestError, match="answered otherwise"):
            runs.answer(paused, [True, True])
    assert shop.begun == []


def test_a_pause_that_is_answered_in_time_is_not_denied(url: str) -> None:
    shop = Shop()
    with working(url, shop.pay) as worker:
        runs = worker.runs
        run_id = runs.submit(
            scripted(rounds("pay", 1, 1)), approval="always", pause_timeout=timedelta(seconds=5), tools=["pay"]
        )
        paused = runs.result(run_id, timeout=SECONDS)
        assert isinstance(paused, Paused)
        runs.answer(paused, [True])
        assert runs.result(run_id, timeout=SECONDS) == "Done."
        time.sleep(6)
        assert runs.get(run_id).segments == 2
    assert shop.begun == ["0/0"]


def test_no_answer_is_accepted_once_a_worker_has_begun_what_follows_the_pause(url: str, client: Runs) -> None:
    shop = Shop()
    with working(url, shop.pay):
        run_id = client.submit(scripted(rounds("pay", 1, 1)), approval="always", tools=["pay"])
        paused = client.result(run_id, timeout=SECONDS)
    assert client.table.change(run_id, "open", segment=1)  # what a worker does first when its time is up
    with pytest.raises(RequestError, match="answered otherwise"):
        client.answer(paused, [True])


def test_a_record_keeps_its_limits_of_time() -> None:
    limited = Record(
        run_id="a",
        segment=0,
        agent={},
        path=None,
        agent_hash=digest([{}, []]),
        secrets=[],
        inputs={},
        hidden={},
        options={},
        origins={},
        deadline=12.5,
        pause_timeout=3.0,
    )
    assert record_from(limited.to_json(), "here") == limited


@pytest.mark.parametrize("option", ["deadline", "pause_timeout"])
def test_a_limit_that_is_over_before_the_run_begins_is_refused(option: str, client: Runs) -> None:
    with pytest.raises(RequestError, match=f"the {option} of 0:00:00 is over before the run begins"):
        client.submit(scripted(["Done."]), **{option: timedelta(0)})  # type: ignore[arg-type]  # one of the two
    assert client.list() == []


def test_a_tool_on_another_thread_is_left_behind_at_the_deadline(tmp_path: Path) -> None:
    released = threading.Event()

    @tool
    def wait(at: str) -> str:
        """Wait on a thread."""
        released.wait(SECONDS)
        return "waited"

    try:
        with working(f"sqlite:///{tmp_path}/runs.db", wait) as worker:
            begun = time.monotonic()
            deadline = timedelta(seconds=3)
            run_id = worker.runs.submit(scripted(rounds("wait", 1, 1)), deadline=deadline, tools=["wait"])
            check_failed(worker.runs, run_id)
            assert time.monotonic() - begun < 15
    finally:
        released.set()


def test_a_model_that_does_not_answer_is_left_behind_at_the_deadline(tmp_path: Path) -> None:
    key = "a-key-of-this-test"
    with Server() as server:
        server.answer([Hold()])
        connection = {"kind": "key", "apiKey": key, "endpoint": server.url}
        model = {"id": "m", "provider": "openai", "connection": connection}
        agent = PromptAgent.model_validate({"model": model, "instructions": "user:\nHi"})
        with working(f"sqlite:///{tmp_path}/runs.db", secrets={"key": key}) as worker:
            begun = time.monotonic()
            run_id = worker.runs.submit(agent, deadline=timedelta(seconds=4))
            error = check_failed(worker.runs, run_id)
            assert time.monotonic() - begun < 15
        assert len(server.requests) == 1
    assert [message.role for message in error.messages] == ["user"]


WORKER = """
import sys, time
from prompty import tool
from prompty.durable import Worker

@tool
async def wait(at: str) -> str:
    print("begun", flush=True)
    time.sleep(60)
    return "waited"

with Worker(sys.argv[1], name="lost", lease=2, tools=[wait]):
    print("open", flush=True)
    time.sleep(60)
"""


@pytest.mark.process
def test_a_run_whose_worker_died_fails_at_its_deadline_on_another_one(url: str, client: Runs, tmp_path: Path) -> None:
    (tmp_path / "lost.py").write_text(WORKER)
    lost = subprocess.Popen(  # noqa: S603  our own script
        [sys.executable, str(tmp_path / "lost.py"), url], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert lost.stdout is not None
    try:
        assert lost.stdout.readline() == "open\n"
        run_id = client.submit(scripted(rounds("wait", 1, 1)), deadline=timedelta(seconds=6), tools=["wait"])
        assert lost.stdout.readline() == "begun\n"
    finally:
        lost.send_signal(signal.SIGKILL)
        lost.communicate()
    shop = Shop()
    with working(url, shop.wait, lease=2):
        until(lambda: client.get(run_id).state == "failed")
        check_failed(client, run_id)
    assert shop.begun == []
