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
from prompty.durable import DurableRuntime, Limits
from prompty.durable.dbos_engine import DbosEngine
from prompty.durable.dbos_leases import get_tables
from prompty.durable.envelope import digest
from prompty.durable.expiry import Expiry
from prompty.durable.record import Record, record_from
from prompty.durable.timers import Claim, Timer, TimerKind
from prompty.errors import DeadlineExceeded, RequestError
from prompty.model.event import RunFailed
from tests.durable.databases import Databases
from tests.durable.runs import Desk, rounds, scripted, working
from tests.durable.suite import wait_until
from tests.loopback import Hold, Server

SECONDS = 30.0
KINDS: list[TimerKind] = ["deadline", "pause", "notice"]
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
def client(url: str) -> Iterator[DurableRuntime]:
    runtime = DurableRuntime(url)
    yield runtime
    runtime.close()


def check_failed(runtime: DurableRuntime, run_id: str) -> DeadlineExceeded:
    """Check that a run failed at its deadline, and that everybody sees so."""
    with pytest.raises(DeadlineExceeded, match="did not end before its deadline, 20") as error:
        runtime.result(run_id, timeout=SECONDS)
    assert runtime.summary(run_id).state == "failed"
    assert [run.id for run in runtime.list("failed")] == [run_id]
    last = list(runtime.events(run_id))[-1].event
    assert isinstance(last, RunFailed)
    assert "deadline" in last.error
    return error.value


def test_a_call_under_way_is_abandoned_at_the_deadline_and_none_begins_after_it(url: str) -> None:
    shop = Shop()
    with working(url, shop.wait) as runtime:
        run = runtime.start(scripted(rounds("wait", 3, 1)), deadline=SOON)
        begun = time.monotonic()
        error = check_failed(runtime, run.id)
        assert time.monotonic() - begun < 10
    assert shop.begun == ["0/0"]
    assert "was interrupted" in error.messages[-1].text


def test_a_run_that_ends_in_time_knows_nothing_of_its_deadline(url: str) -> None:
    desk = Desk()
    with working(url, desk.look) as runtime:
        run = runtime.start(scripted(rounds("look", 1, 2)), deadline=timedelta(seconds=6))
        assert run.result(timeout=SECONDS) == "Done."
        time.sleep(7)  # the timer has been looked at
        assert run.result(timeout=SECONDS) == "Done."
        assert runtime.summary(run.id).state == "done"


def test_a_run_that_waits_in_the_queue_fails_at_its_deadline(url: str, client: DurableRuntime) -> None:
    shop, desk = Shop(), Desk()
    with working(url, shop.wait, desk.look, limits=Limits(worker_concurrency=1)):
        client.start(scripted(rounds("wait", 1, 1)), run_id="busy", tools=["wait"])
        wait_until(lambda: shop.begun != [])
        late = client.start(scripted(rounds("look", 1, 1)), run_id="late", deadline=SOON, tools=["look"])
        check_failed(client, late.id)
        assert client.summary("busy").state == "running"
    assert desk.seen == []


def test_a_run_that_waited_past_its_deadline_begins_nothing(url: str, client: DurableRuntime) -> None:
    desk = Desk()
    run = client.start(scripted(rounds("look", 1, 1)), deadline=SOON, tools=["look"])
    time.sleep(1.5)
    with working(url, desk.look):
        check_failed(client, run.id)
    assert desk.seen == []


def test_a_paused_run_fails_at_its_deadline(url: str) -> None:
    shop = Shop()
    with working(url, shop.pay) as runtime:
        run = runtime.start(scripted(rounds("pay", 1, 1)), approval="always", deadline=timedelta(seconds=6))
        paused = run.result(timeout=SECONDS)
        assert isinstance(paused, Paused)
        wait_until(lambda: runtime.summary(run.id).state == "failed")
        check_failed(runtime, run.id)
        with pytest.raises(RequestError, match="answered otherwise"):
            runtime.answer(paused, [True])
    assert shop.begun == []


def test_calls_of_a_pause_that_nobody_answers_are_denied_and_the_run_goes_on(url: str) -> None:
    shop = Shop()
    with working(url, shop.pay) as runtime:
        run = runtime.start(scripted(rounds("pay", 1, 2)), approval="always", pause_timeout=SOON)
        paused = run.result(timeout=SECONDS)
        assert isinstance(paused, Paused)
        wait_until(lambda: runtime.summary(run.id).state == "done")
        assert run.result(timeout=SECONDS) == "Done."
        messages = [event.event for event in run.events()]
        assert "nobody answered within 0:00:01" in str(messages)
        assert runtime.summary(run.id).segments == 2
        with pytest.raises(RequestError, match="answered otherwise"):
            runtime.answer(paused, [True, True])
    assert shop.begun == []


def test_a_pause_that_is_answered_in_time_is_not_denied(url: str) -> None:
    shop = Shop()
    with working(url, shop.pay) as runtime:
        run = runtime.start(scripted(rounds("pay", 1, 1)), approval="always", pause_timeout=timedelta(seconds=5))
        paused = run.result(timeout=SECONDS)
        assert isinstance(paused, Paused)
        runtime.answer(paused, [True])
        assert run.result(timeout=SECONDS) == "Done."
        time.sleep(6)
        assert runtime.summary(run.id).segments == 2
    assert shop.begun == ["0/0"]


def test_two_workers_that_expire_the_same_pause_start_one_segment(url: str, client: DurableRuntime) -> None:
    shop = Shop()
    with working(url, shop.pay) as runtime:
        run = runtime.start(scripted(rounds("pay", 1, 1)), approval="always", pause_timeout=timedelta(days=1))
        assert isinstance(run.result(timeout=SECONDS), Paused)
        first, second = Expiry(runtime.engine), Expiry(client.engine)
        assert first._deny_calls(run.id)
        assert second._deny_calls(run.id)
        wait_until(lambda: runtime.summary(run.id).state == "done")
        assert runtime.summary(run.id).segments == 2


def test_a_timer_is_claimed_by_one_worker_and_comes_back_if_that_one_dies(url: str) -> None:
    engine, other = DbosEngine(url), DbosEngine(url)
    timer = Timer("a", "deadline")
    now = engine.timers.read_clock()
    assert now == pytest.approx(time.time(), abs=5)
    engine.timers.set(timer, now - 1)
    engine.timers.set(timer, now + 1000)  # it is set already
    engine.timers.set(Timer("b", "pause"), now + 1000)
    assert engine.timers.claim(["pause"], 10) == []
    assert engine.timers.claim(KINDS, 10) == [Claim(timer, 1)]
    assert other.timers.claim(KINDS, 10) == []
    time.sleep(5.2)
    assert other.timers.claim(KINDS, 10) == [Claim(timer, 2)]
    other.timers.drop(timer)
    time.sleep(5.2)
    assert engine.timers.claim(KINDS, 10) == []
    engine.close()
    other.close()


def test_a_deleted_run_leaves_no_timer(url: str) -> None:
    with working(url) as runtime:
        assert isinstance(runtime.engine, DbosEngine)
        database = runtime.engine.client._sys_db.engine
        run = runtime.start(scripted(["Done."]), deadline=timedelta(days=1))
        run.result(timeout=SECONDS)
        with database.connect() as connection:
            assert [row.id for row in connection.execute(get_tables().timers.select())] == [run.id]
        runtime.delete(run.id)
        with database.connect() as connection:
            assert connection.execute(get_tables().timers.select()).all() == []


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
def test_a_limit_that_is_over_before_the_run_begins_is_refused(option: str, client: DurableRuntime) -> None:
    with pytest.raises(RequestError, match=f"the {option} of 0:00:00 is over before the run begins"):
        client.start(scripted(["Done."]), **{option: timedelta(0)})  # type: ignore[arg-type]  # one of the two
    assert client.list() == []


def test_a_tool_on_another_thread_is_left_behind_at_the_deadline(tmp_path: Path) -> None:
    released = threading.Event()

    @tool
    def wait(at: str) -> str:
        """Wait on a thread."""
        released.wait(SECONDS)
        return "waited"

    try:
        with working(f"sqlite:///{tmp_path}/runs.db", wait) as runtime:
            begun = time.monotonic()
            run = runtime.start(scripted(rounds("wait", 1, 1)), deadline=SOON)
            check_failed(runtime, run.id)
            assert time.monotonic() - begun < 10
    finally:
        released.set()


def test_a_model_that_does_not_answer_is_left_behind_at_the_deadline(tmp_path: Path) -> None:
    key = "a-key-of-this-test"
    with Server() as server:
        server.answer([Hold()])
        connection = {"kind": "key", "apiKey": key, "endpoint": server.url}
        model = {"id": "m", "provider": "openai", "connection": connection}
        agent = PromptAgent.model_validate({"model": model, "instructions": "user:\nHi"})
        with working(f"sqlite:///{tmp_path}/runs.db", secrets={"key": key}) as runtime:
            begun = time.monotonic()
            run = runtime.start(agent, deadline=timedelta(seconds=3))
            error = check_failed(runtime, run.id)
            assert time.monotonic() - begun < 10
        assert len(server.requests) == 1
    assert [message.role for message in error.messages] == ["user"]


WORKER = """
import sys, time
from prompty import tool
from prompty.durable import DurableRuntime

@tool
async def wait(at: str) -> str:
    print("begun", flush=True)
    time.sleep(60)
    return "waited"

with DurableRuntime(sys.argv[1], name="lost", lease=2, tools=[wait]) as runtime:
    print("open", flush=True)
    time.sleep(60)
"""


@pytest.mark.process
def test_a_run_whose_worker_died_fails_at_its_deadline_on_another_one(
    url: str, client: DurableRuntime, tmp_path: Path
) -> None:
    (tmp_path / "lost.py").write_text(WORKER)
    lost = subprocess.Popen(  # noqa: S603  our own script
        [sys.executable, str(tmp_path / "lost.py"), url], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert lost.stdout is not None
    try:
        assert lost.stdout.readline() == "open\n"
        run = client.start(scripted(rounds("wait", 1, 1)), deadline=timedelta(seconds=6), tools=["wait"])
        assert lost.stdout.readline() == "begun\n"
    finally:
        lost.send_signal(signal.SIGKILL)
        lost.communicate()
    shop = Shop()
    with working(url, shop.wait, lease=2):
        wait_until(lambda: client.summary(run.id).state == "failed")
        check_failed(client, run.id)
    assert shop.begun == []
