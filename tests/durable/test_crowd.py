"""A thousand runs that wait for a person: they hold no slot and no process, and anybody can answer them later."""

import multiprocessing
import time
from pathlib import Path

import pytest

from prompty import Paused
from prompty.durable import Limits, Runs
from tests.durable.databases import Databases
from tests.durable.runs import Desk, rounds, scripted, working

pytestmark = [pytest.mark.process, pytest.mark.nightly]

RUNS = 1000
SECONDS = 240
PROCESSES = multiprocessing.get_context("spawn")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_thousand_paused_runs_hold_nothing_and_are_answered_from_elsewhere(
    kind: str, databases: Databases, tmp_path: Path
) -> None:
    url = databases.new(kind)
    with working(url, Desk().look) as worker:
        agent = scripted(rounds("look", 1, 1))
        for number in range(RUNS):
            worker.runs.submit(agent, run_id=f"run{number}", tools=["look"], approval="always")
        until_all(worker.runs, "paused")
    with working(url, Desk().look, limits=Limits(worker_concurrency=1)) as worker:
        assert len(worker.runs.list("paused")) == RUNS
        begun = time.monotonic()
        assert worker.runs.result(worker.runs.submit(scripted(["Here."])), timeout=30) == "Here."
        assert time.monotonic() - begun < 10, "a paused run holds the one slot"
    # no worker is there: the answers wait, each once however often it is given
    with PROCESSES.Pool(1) as pool:
        answered = pool.apply(answer, (url, ["run0", "run1", "run0", "run1"]))
    assert answered == ["waiting", "waiting"]
    desk = Desk()
    with working(url, desk.look) as worker:
        assert [worker.runs.result(run, timeout=60) for run in ("run0", "run1")] == ["Done.", "Done."]
        with PROCESSES.Pool(1) as pool:
            pool.apply(answer, (url, ["run0", "run1"]))
        assert len(worker.runs.list("paused")) == RUNS - 2
        assert {run.segments for run in worker.runs.list("done")} == {1, 2}
    assert desk.seen == ["0/0", "0/0"]


def answer(url: str, runs: list[str]) -> list[str]:
    """What another process does: say yes, and see what comes of it."""
    with Runs(url) as client:
        for run_id in runs:
            client.answer(run_id, [True])
        states = {run.id: run.state for run in client.list()}
    return [states[run_id] for run_id in sorted(set(runs))]


def until_all(runs: Runs, state: str) -> None:
    end = time.monotonic() + SECONDS
    while runs.list("waiting", limit=1) or runs.list("running", limit=1):
        assert time.monotonic() < end, "not all runs came to their pause"
        time.sleep(0.5)
    assert {run.state for run in runs.list()} == {state}
    assert isinstance(runs.result("run0"), Paused)
