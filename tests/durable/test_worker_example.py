"""`examples/worker` loses no job, no payment and no approval, however its processes end.

100 kills and 20 suspensions with PROMPTY_SOAK=1, a tenth of them otherwise. The database is PostgreSQL.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from tests.durable.databases import Databases
from tests.durable.fleet import EXAMPLE, LEASE, Fleet, fleet_of
from tests.durable.own import until
from tests.durable.stopping import is_stopped
from tests.soak import SOAK, Keep

pytestmark = pytest.mark.process

KILLS, STOPS = (100, 20) if SOAK else (10, 2)
AT_ONCE = 12
NEIGHBOURS = 20
MOST_DELAY = 1.5  # times of what neighbours take without a poison job


@pytest.fixture
def fleet(databases: Databases, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_of(databases.postgres(), tmp_path) as found:
        yield found


def test_jobs_survive_kills_and_suspensions(fleet: Fleet, keep: Keep) -> None:
    begun, chance = time.monotonic(), random.Random(5)  # noqa: S311  not for secrets
    events = ["kill"] * KILLS + ["stop"] * STOPS
    chance.shuffle(events)
    for _ in range(3):
        fleet.launch()
    fleet.launch("suspects", 2)
    for event in events:
        until_time = time.monotonic() + chance.uniform(1.0, 4.0)
        busy: list[ForkServerProcess] = []
        while time.monotonic() < until_time or not busy:  # a process that starts has nothing to lose
            fleet.keep_busy(AT_ONCE)
            fleet.answer_all()
            busy = [one for one in fleet.processes if fleet.count_running(one)]
            time.sleep(0.2)
        victim = chance.choice(busy)
        assert victim.pid is not None
        if event == "kill":
            os.kill(victim.pid, signal.SIGKILL)
            victim.join()
            fleet.replace_dead()
        else:
            os.kill(victim.pid, signal.SIGSTOP)
            until(partial(is_stopped, victim))
            fleet.quiet_since = time.time() + 1000
            time.sleep(chance.uniform(1.6, 2.4) * LEASE)
            os.kill(victim.pid, signal.SIGCONT)
            fleet.quiet_since = time.time()
    innocents = [one["id"] for one in fleet.jobs.list_jobs(fleet.client, "poison", 1000)]
    assert innocents == []
    fleet.finish(fleet.ids)
    keep(kills=KILLS, stops=STOPS, **fleet.check(), seconds=round(time.monotonic() - begun))


def test_a_job_that_kills_its_workers_leaves_its_neighbours_alone(fleet: Fleet, keep: Keep) -> None:
    for _ in range(2):
        fleet.launch()
    fleet.launch("suspects", 1)
    fleet.submit("warm")
    fleet.finish(["warm"])
    seconds = []
    for name in ("a", "b"):
        ids = [fleet.submit(f"{name}{number}") for number in range(NEIGHBOURS)]
        begun = time.monotonic()
        if name == "b":
            fleet.submit("poison")
            fleet.ids.remove("poison")
        left = list(ids)
        while left:
            fleet.replace_dead()
            fleet.answer_all()
            left = [id for id in left if fleet.state(id) != "done"]
            time.sleep(0.3)
        seconds.append(time.monotonic() - begun)
    while fleet.state("poison") != "poison":
        fleet.replace_dead()
        fleet.answer_all()
        time.sleep(0.3)
    quarantined = time.monotonic() - begun
    assert [one["id"] for one in fleet.jobs.list_jobs(fleet.client, "poison")] == ["poison"]
    fleet.check()
    keep(
        neighbours=NEIGHBOURS,
        seconds={"alone": round(seconds[0], 1), "with_poison": round(seconds[1], 1)},
        deaths=fleet.deaths,
        quarantined_after_seconds=round(quarantined, 1),
    )
    if SOAK:
        assert seconds[1] < MOST_DELAY * seconds[0]


def test_an_outage_of_the_model_is_over_by_a_retry(fleet: Fleet) -> None:
    fleet.launch()
    fleet.model.is_down = True
    fleet.submit("a")
    until(lambda: fleet.state("a") == "failed")
    fleet.model.is_down = False
    fleet.jobs.retry(fleet.client, "a")
    fleet.finish(["a"])
    assert fleet.check()["model_calls"] == 5


def test_a_job_that_was_cancelled_goes_on_where_it_was(fleet: Fleet) -> None:
    fleet.launch()
    fleet.model.seconds = 3.0
    fleet.submit("running")
    until(lambda: bool(fleet.model.requests))
    fleet.jobs.cancel(fleet.client, "running")
    assert fleet.state("running") == "cancelled"
    fleet.model.seconds = 0.0
    fleet.submit("paused")
    until(lambda: fleet.state("paused") == "paused")
    fleet.jobs.cancel(fleet.client, "paused")
    assert fleet.state("paused") == "cancelled"
    for id in ("running", "paused"):
        fleet.jobs.retry(fleet.client, id)
    fleet.finish(["running", "paused"])
    fleet.check()


def test_a_deadline_ends_a_job_that_runs_and_one_that_is_paused(fleet: Fleet) -> None:
    fleet.launch()
    fleet.submit("first")
    until(lambda: fleet.state("first") == "paused")
    fleet.submit("paused", deadline=10)
    until(lambda: fleet.state("paused") == "paused")
    fleet.model.seconds = 60
    fleet.submit("running", deadline=2)
    for id in ("running", "paused"):
        until(lambda id=id: fleet.state(id) == "failed")  # type: ignore[misc]  # a default binds it
        assert "did not end before its deadline" in fleet.jobs.show(fleet.client, id)["error"]


def test_sigterm_and_a_restart_of_the_database_lose_nothing(databases: Databases, fleet: Fleet) -> None:
    first, _ = fleet.launch(), fleet.launch()
    for number in range(12):
        fleet.submit(f"t{number}")
    until(lambda: fleet.count_running(first) > 0)
    first.terminate()
    first.join(60)
    assert first.exitcode == 0
    fleet.finish(fleet.ids)
    for number in range(4):
        fleet.submit(f"r{number}")
    until(lambda: any(fleet.count_running(process) for process in fleet.processes))
    databases.server.stop()
    databases.server.start()
    fleet.finish(fleet.ids)
    assert (fleet.asked, fleet.check()["jobs"]) == (0, 16)


def test_a_job_that_takes_longer_than_a_worker_may_take_to_stop_goes_on_elsewhere(fleet: Fleet) -> None:
    fleet.settings |= {"JOBS_DRAIN": "1"}
    first = fleet.launch()
    fleet.submit("a")
    until(lambda: fleet.state("a") == "paused")
    fleet.model.is_held.set()
    fleet.answer_all()
    until(lambda: "a/3" in fleet.model.requests)
    first.terminate()
    first.join(60)
    assert (first.exitcode, fleet.state("a")) == (0, "waiting")
    fleet.model.is_held.clear()
    fleet.launch()
    fleet.finish(["a"])
    assert (fleet.asked, fleet.check()["jobs"]) == (0, 1)


def test_the_commands_of_its_page_work(fleet: Fleet) -> None:
    fleet.settings |= {"JOBS_TOOLS": "tools"}
    fleet.launch()
    assert run("submit", "refund.prompty", '{"order": "A-17"}', "--id", "r") == "r\n"
    until(lambda: '"id": "r#1", "state": "paused"' in run("list", "--state", "paused"))
    assert '"amount": 40' in run("show", "r")
    run("answer", "r", "[true]")
    until(lambda: "I paid 40 euros back for the order A-17." in run("show", "r"))


def run(*words: str) -> str:
    """Run a command of the example, and return what it prints."""
    command = [sys.executable, "jobs.py", *words]
    return subprocess.run(command, cwd=EXAMPLE, check=True, capture_output=True, text=True, timeout=60).stdout  # noqa: S603  our own words
