"""Several clients of one process and other processes on one SQLite file: nobody loses what another one wrote.

A process has its locks on a file together, and closing any descriptor of the file drops all of them. Two clients of a
process and a second process then deleted each other's write-ahead log.
"""

import multiprocessing
from pathlib import Path

import pytest

from prompty.durable import Runs
from tests.durable.runs import Desk, rounds, scripted, working

PROCESSES = multiprocessing.get_context("spawn")


def submit(url: str, run_id: str) -> list[str]:
    """What another process does: leave a run, and list all of them."""
    with Runs(url) as other:
        other.submit(scripted(["Hi."]), run_id=run_id)
        return sorted(run.id for run in other.list())


@pytest.mark.process
def test_two_clients_of_a_process_and_a_second_process_keep_each_others_runs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with PROCESSES.Pool(1) as pool, Runs(url) as first:
        first.submit(scripted(["Hi."]), run_id="a1")
        with Runs(url) as second:
            second.submit(scripted(["Hi."]), run_id="b1")
            assert pool.apply(submit, (url, "other1")) == ["a1", "b1", "other1"]
            first.submit(scripted(["Hi."]), run_id="a2")
            everything = ["a1", "a2", "b1", "other1", "other2"]
            assert pool.apply(submit, (url, "other2")) == everything
            assert sorted(run.id for run in second.list()) == everything
        assert sorted(run.id for run in first.list()) == everything
    with Runs(url) as later:
        assert sorted(run.id for run in later.list()) == everything


@pytest.mark.process
def test_a_client_beside_a_worker_of_its_process_loses_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with PROCESSES.Pool(1) as pool, working(url, Desk().look) as worker:
        worker.runs.submit(scripted(rounds("look", 1, 1)), run_id="a", tools=["look"])
        with Runs(url) as client:
            client.submit(scripted(["Hi."]), run_id="b")
        pool.apply(submit, (url, "other"))
        results = {id: worker.runs.result(id, timeout=60) for id in ("a", "b", "other")}
    assert results == {"a": "Done.", "b": "Hi.", "other": "Hi."}
