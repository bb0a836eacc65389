"""The queue of runs: its limit, its order, and tenants with limits of their own."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from prompty import Paused, tool
from prompty.durable import Limits, Runs
from prompty.errors import QueueFull
from tests.batch.folder import until
from tests.durable.databases import Databases
from tests.durable.runs import scripted, working

SECONDS = 30.0
DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.database)]


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, databases: Databases) -> str:
    return databases.new(request.param)


@pytest.fixture
def client(url: str) -> Iterator[Runs]:
    with Runs(url, max_waiting=3) as runs:
        yield runs


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


def enter(runs: Runs, name: str, run_id: str, **options: object) -> None:
    agent = scripted([[{"call": "enter", "arguments": {"at": name}}], "Done."])
    runs.submit(agent, run_id=run_id, tools=["enter"], **options)  # type: ignore[arg-type]  # options of submit


def test_a_full_queue_refuses_new_runs_and_says_how_many_wait(client: Runs, url: str) -> None:
    for number in range(3):
        client.submit(scripted(["Done."]), run_id=str(number), tenant="a" if number else None)
    with pytest.raises(QueueFull, match=r"the limit is 3\n.*raise Runs\(max_waiting=") as full:
        client.submit(scripted(["Done."]), run_id="late")
    assert full.value.waiting == 3
    assert "raise --max-waiting" in full.value.for_command_line()
    assert len(client.list()) == 3
    client.submit(scripted(["Done."]), run_id="1")  # it is in the queue already
    with working(url):
        for number in range(3):
            assert client.result(str(number), timeout=SECONDS) == "Done."
        assert client.result(client.submit(scripted(["Done."]), run_id="late"), timeout=SECONDS) == "Done."


def test_runs_that_execute_do_not_count_as_waiting(client: Runs, url: str) -> None:
    gate = Gate()
    with working(url, gate.enter):
        for number in range(3):
            enter(client, "a", str(number))
        until(lambda: len(gate.inside) == 3)
        enter(client, "a", "another")
        gate.open = True
        assert client.result("another", timeout=SECONDS) == "Done."


def test_submitters_at_the_same_time_do_not_exceed_the_limit_together(url: str, client: Runs) -> None:
    def submit(number: int) -> bool:
        try:
            client.submit(scripted(["Done."]), run_id=str(number))
        except QueueFull:
            return False
        return True

    with ThreadPoolExecutor(10) as pool:  # more than the client has connections
        accepted = list(pool.map(submit, range(20)))
    assert sum(accepted) == 3
    assert len(client.list("waiting")) == 3


def test_answers_are_accepted_while_the_queue_is_full(client: Runs, url: str) -> None:
    gate = Gate()
    gate.open = True
    with working(url, gate.enter):
        enter(client, "a", "asked", approval="always")
        assert isinstance(client.result("asked", timeout=SECONDS), Paused)
    for number in range(3):
        client.submit(scripted(["Done."]), run_id=str(number))
    client.answer("asked", [True])
    with working(url, gate.enter):
        assert client.result("asked", timeout=SECONDS) == "Done."


def test_the_smallest_priority_goes_first(url: str) -> None:
    gate = Gate()
    gate.open = True
    with Runs(url) as client:
        for priority in (4, 2, 3):
            enter(client, str(priority), f"run-{priority}", priority=priority)
        with working(url, gate.enter, limits=Limits(worker_concurrency=1)):
            for priority in (4, 2, 3):
                assert client.result(f"run-{priority}", timeout=SECONDS) == "Done."
    assert gate.order == ["2", "3", "4"]


def test_each_tenant_has_its_own_limit_and_none_waits_for_another(url: str) -> None:
    gate = Gate()
    with Runs(url) as client:
        for number in range(6):
            enter(client, "big", f"big-{number}", tenant="big")
        enter(client, "small", "small", tenant="small")
        enter(client, "none", "none")
        with working(url, gate.enter, limits=Limits(tenant_concurrency=2)):
            until(lambda: sorted(gate.inside) == ["big", "big", "none", "small"])
            time.sleep(1.5)  # nobody else comes in
            assert sorted(gate.inside) == ["big", "big", "none", "small"]
            gate.open = True
            for number in range(6):
                assert client.result(f"big-{number}", timeout=SECONDS) == "Done."
    assert gate.most["big"] == 2


def test_what_follows_a_pause_counts_for_its_tenant_too(url: str) -> None:
    gate = Gate()
    with working(url, gate.enter, limits=Limits(tenant_concurrency=1)) as worker:
        runs = worker.runs
        for run_id in ("first", "second"):
            enter(runs, "a", run_id, tenant="a", approval="always")
        for run_id in ("first", "second"):
            until(partial(lambda run_id: runs.get(run_id).state == "paused", run_id))
            runs.answer(run_id, [True])
        until(lambda: gate.inside == ["a"])
        time.sleep(1.5)
        assert gate.inside == ["a"]
        gate.open = True
        for run_id in ("first", "second"):
            assert runs.result(run_id, timeout=SECONDS) == "Done."
    assert gate.most == {"a": 1}
