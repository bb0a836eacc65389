"""The queue of runs: its limit, tenants with limits of their own, and runs that rise while they wait."""

import asyncio
import time
from collections.abc import Iterator
from functools import partial

import pytest

from prompty import Paused, tool
from prompty.durable import DurableRuntime, Limits
from prompty.durable.dbos_engine import DbosEngine
from prompty.errors import QueueFull
from tests.durable.databases import Databases
from tests.durable.runs import scripted, working
from tests.durable.suite import wait_until

SECONDS = 30.0
DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.database)]


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, databases: Databases) -> str:
    return databases.new(request.param)


@pytest.fixture
def client(url: str) -> Iterator[DurableRuntime]:
    runtime = DurableRuntime(url, limits=Limits(max_waiting=3))
    yield runtime
    runtime.close()


class Gate:
    """A tool that waits, and knows how many calls of each tenant wait at once."""

    def __init__(self) -> None:
        self.open = False
        self.inside: list[str] = []
        self.order: list[str] = []
        self.most: dict[str, int] = {}

    @tool
    async def enter(self, at: str) -> str:
        """Wait at the gate."""
        self.order.append(at)
        self.inside.append(at)
        self.most[at] = max(self.most.get(at, 0), self.inside.count(at))
        while not self.open:
            await asyncio.sleep(0.02)
        self.inside.remove(at)
        return "in"


def enter(runtime: DurableRuntime, name: str, run_id: str, **options: object) -> None:
    agent = scripted([[{"call": "enter", "arguments": {"at": name}}], "Done."])
    runtime.start(agent, run_id=run_id, tools=["enter"], **options)  # type: ignore[arg-type]  # options of start


def is_paused(runtime: DurableRuntime, run_id: str) -> bool:
    return runtime.summary(run_id).state == "paused"


def test_a_full_queue_refuses_new_runs_and_says_how_many_wait(client: DurableRuntime, url: str) -> None:
    for number in range(3):
        client.start(scripted(["Done."]), run_id=str(number), tenant="a" if number else None)
    with pytest.raises(
        QueueFull, match=r"3 runs wait for a worker already, and the limit is 3\n.*raise Limits\(max_waiting"
    ) as full:
        client.start(scripted(["Done."]), run_id="late")
    assert full.value.waiting == 3
    assert "raise --max-waiting" in full.value.for_command_line()
    client.start(scripted(["Done."]), run_id="1")  # it is in the queue already
    with working(url):
        for number in range(3):
            assert client.result(str(number), timeout=SECONDS) == "Done."
        assert client.start(scripted(["Done."]), run_id="late").result(timeout=SECONDS) == "Done."


def test_answers_are_accepted_while_the_queue_is_full(client: DurableRuntime, url: str) -> None:
    gate = Gate()
    gate.open = True
    with working(url, gate.enter):
        enter(client, "a", "asked", approval="always")
        assert isinstance(client.result("asked", timeout=SECONDS), Paused)
    for number in range(3):
        client.start(scripted(["Done."]), run_id=str(number))
    client.answer("asked", [True])
    with working(url, gate.enter):
        wait_until(lambda: client.summary("asked").state == "done")


def test_each_tenant_has_its_own_limit_and_none_waits_for_another(url: str) -> None:
    client, gate = DurableRuntime(url), Gate()
    for number in range(6):
        enter(client, "big", f"big-{number}", tenant="big")
    enter(client, "small", "small", tenant="small")
    enter(client, "none", "none")
    with working(url, gate.enter, limits=Limits(tenant_concurrency=2)):
        wait_until(lambda: sorted(gate.inside) == ["big", "big", "none", "small"])
        time.sleep(1.5)  # nobody else comes in
        assert sorted(gate.inside) == ["big", "big", "none", "small"]
        gate.open = True
        for number in range(6):
            assert client.result(f"big-{number}", timeout=SECONDS) == "Done."
    assert gate.most["big"] == 2
    client.close()


def test_what_a_worker_starts_for_a_tenant_counts_too_and_so_does_what_follows_a_pause(url: str) -> None:
    gate = Gate()
    with working(url, gate.enter, limits=Limits(tenant_concurrency=1)) as runtime:
        for run_id in ("first", "second"):
            enter(runtime, "a", run_id, tenant="a", approval="always")
        for run_id in ("first", "second"):
            wait_until(partial(is_paused, runtime, run_id))
            runtime.answer(run_id, [True])
        wait_until(lambda: gate.inside == ["a"])
        time.sleep(1.5)
        assert gate.inside == ["a"]
        gate.open = True
        for run_id in ("first", "second"):
            assert runtime.result(run_id, timeout=SECONDS) == "Done."
    assert gate.most == {"a": 1}


def test_a_run_of_a_tenant_that_was_cancelled_goes_on_in_its_queue(url: str) -> None:
    client, gate = DurableRuntime(url), Gate()
    enter(client, "a", "run", tenant="a")
    client.cancel("run")
    client.retry("run")
    gate.open = True
    with working(url, gate.enter, limits=Limits(tenant_concurrency=1)):
        assert client.result("run", timeout=SECONDS) == "Done."
    client.close()


def test_a_run_rises_while_it_waits_however_many_workers_look(url: str) -> None:
    client, gate = DurableRuntime(url), Gate()
    engine = client.engine
    assert isinstance(engine, DbosEngine)
    enter(client, "patient", "patient", priority=4)
    time.sleep(3.2)
    for number in range(3):
        enter(client, "urgent", f"urgent-{number}", priority=2)
    for _ in range(3):
        engine.raise_priorities(1.0)
    gate.open = True
    with working(url, gate.enter, limits=Limits(worker_concurrency=1)):
        for run_id in ("patient", "urgent-0", "urgent-1", "urgent-2"):
            assert client.result(run_id, timeout=SECONDS) == "Done."
    assert gate.order[0] == "patient"
    client.close()


def test_a_run_that_has_just_come_does_not_rise(url: str) -> None:
    client, gate = DurableRuntime(url), Gate()
    assert isinstance(client.engine, DbosEngine)
    enter(client, "later", "later", priority=4)
    enter(client, "urgent", "urgent", priority=2)
    client.engine.raise_priorities(60.0)
    gate.open = True
    with working(url, gate.enter, limits=Limits(worker_concurrency=1)):
        for run_id in ("later", "urgent"):
            assert client.result(run_id, timeout=SECONDS) == "Done."
    assert gate.order == ["urgent", "later"]
    client.close()


def test_the_limit_costs_one_look_however_many_runs_wait(url: str) -> None:
    engine = DbosEngine(url)
    engine.submit({str(number): {} for number in range(500)})
    assert engine.count_waiting(10) == 10
    assert engine.count_waiting() == 500
    engine.close()
