"""Runs that wait inside a tool cost their worker next to nothing, and are still cancelled soon.

400 runs with PROMPTY_SOAK=1, 40 otherwise. An idle worker on a database of its own is measured in the same seconds.
"""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.context import SpawnProcess
from pathlib import Path

import psycopg
import pytest

from prompty import tool
from prompty.durable import Runs, Worker
from tests.durable.databases import Databases
from tests.durable.runs import rounds, scripted
from tests.durable.shop import until
from tests.durable.worker import note
from tests.soak import SOAK, Keep

pytestmark = pytest.mark.process

RUNS = 400 if SOAK else 40
MEASURED_SECONDS = 30 if SOAK else 8
TOOL_SECONDS = 60 if SOAK else 40
MOST_OF_A_CORE = 0.10
MOST_TRANSACTIONS = 80
LONGEST_CANCEL = 3.0
PROCESSES = multiprocessing.get_context("spawn")
TICKS = os.sysconf("SC_CLK_TCK")


def work(url: str, log: Path) -> None:
    """Work until killed."""

    @tool
    async def wait(at: str) -> str:
        """Wait for a long time."""
        note(log, "begin")
        try:
            await asyncio.sleep(TOOL_SECONDS)
        except asyncio.CancelledError:
            note(log, "cancelled")
            raise
        return at

    Worker(url, name="one", tools=[wait]).open()
    note(log, "open")
    with suppress(KeyboardInterrupt):
        signal.pause()


@contextmanager
def working(url: str, log: Path) -> Iterator[SpawnProcess]:
    log.touch()
    process = PROCESSES.Process(target=work, args=(url, log))
    process.start()
    try:
        until(lambda: count(log, "open") == 1)
        yield process
    finally:
        process.kill()
        process.join()


def count(log: Path, line: str) -> int:
    return log.read_text().splitlines().count(line)


def cpu_seconds(process: SpawnProcess) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def transactions(url: str) -> int:
    """Return how many transactions a database has ended. It is asked through another one."""
    server, _, name = url.rpartition("/")
    with psycopg.connect(f"{server}/postgres") as connection:
        query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"
        [ended] = connection.execute(query, (name,)).fetchone() or [0]
        return int(ended)


@pytest.mark.timing
@pytest.mark.nightly
def test_runs_that_wait_in_a_tool_cost_no_more_than_an_idle_worker(
    databases: Databases, tmp_path: Path, keep: Keep
) -> None:
    busy, idle = databases.postgres(), databases.postgres()
    client = Runs(busy)
    for number in range(RUNS):
        client.submit(scripted(rounds("wait", 1, 1)), run_id=f"run{number}", tools=["wait"])
    with working(busy, tmp_path / "busy") as worker, working(idle, tmp_path / "idle") as other:
        until(lambda: count(tmp_path / "busy", "begin") == RUNS)
        time.sleep(2)  # the steps before the tool are written
        before = [(cpu_seconds(process), transactions(url)) for process, url in ((worker, busy), (other, idle))]
        time.sleep(MEASURED_SECONDS)
        after = [(cpu_seconds(process), transactions(url)) for process, url in ((worker, busy), (other, idle))]
        (core, rate), (idle_core, idle_rate) = (
            ((cpu - cpu_before) / MEASURED_SECONDS, (ended - ended_before) / MEASURED_SECONDS)
            for (cpu, ended), (cpu_before, ended_before) in zip(after, before, strict=True)
        )
        cancelled = time.monotonic()
        client.cancel("run0")
        until(lambda: count(tmp_path / "busy", "cancelled") == 1)
        cancel_seconds = time.monotonic() - cancelled
        assert count(tmp_path / "busy", "cancelled") == 1, "the others go on"
    client.close()
    keep(
        runs=RUNS,
        percent_of_a_core={"waiting": round(100 * core, 1), "idle": round(100 * idle_core, 1)},
        transactions_per_second={"waiting": round(rate, 1), "idle": round(idle_rate, 1)},
        cancel_seconds=round(cancel_seconds, 2),
    )
    assert core < MOST_OF_A_CORE
    assert rate < MOST_TRANSACTIONS
    assert cancel_seconds < LONGEST_CANCEL


def test_an_execution_whose_run_was_cancelled_and_retried_at_once_ends(databases: Databases, tmp_path: Path) -> None:
    """Nobody sees the moment in which it was cancelled, but it is another execution's now."""
    url, log = databases.sqlite(), tmp_path / "log"
    client = Runs(url)
    with working(url, log):
        client.submit(scripted(rounds("wait", 1, 1)), run_id="run", tools=["wait"])
        until(lambda: count(log, "begin") == 1)
        client.cancel("run")
        client.retry("run")
        until(lambda: count(log, "cancelled") == 1)
    client.close()
