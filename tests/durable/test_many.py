"""Many ended runs: pages, one run, one state and the gauges are found at once, and pruning lets work go on.

The PostgreSQL is the one of the distribution with its default settings, so it compiles queries that it thinks are slow.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from prompty.durable import Runs
from prompty.durable.database import create_engine
from prompty.durable.runs import ENDED
from tests.durable.databases import STOCK, Databases, StockPostgres
from tests.durable.many import fill
from tests.durable.runs import Desk, rounds, scripted, working
from tests.soak import SOAK, Keep

pytestmark = [pytest.mark.process, pytest.mark.timing, pytest.mark.nightly]

RUNS = 100_000 if SOAK else 5_000
SECONDS = 0.5  # of a query, at the database
PRUNED = 1500  # workflows a second
MINUTE = timedelta(minutes=1)
PRUNE = """
import sys, time
from datetime import timedelta
from prompty.durable import Runs

with Runs(sys.argv[1]) as runs:
    begun = time.perf_counter()
    counts = [runs.prune(timedelta(minutes=1), prompt="refund"), runs.prune(timedelta(minutes=1))]
    print(sum(counts), time.perf_counter() - begun)
"""


@pytest.fixture(params=["sqlite", "stock-postgres"])
def url(request: pytest.FixtureRequest, databases: Databases) -> Iterator[str]:
    if request.param == "sqlite":
        yield databases.sqlite()
        return
    if STOCK is None:
        pytest.skip("no PostgreSQL of the distribution is installed")
    server = StockPostgres()
    try:
        with psycopg.connect(server.url("postgres")) as connection:
            assert connection.execute("SELECT pg_jit_available(), current_setting('jit')").fetchone() == (True, "on")
        yield server.url("runs")
    finally:
        server.remove()


class Clock:
    """The time that statements take at the database."""

    def __init__(self, engine: sa.Engine) -> None:
        self.seconds = 0.0
        self._begun = 0.0
        sa.event.listen(engine, "before_cursor_execute", self._begin)
        sa.event.listen(engine, "after_cursor_execute", self._end)

    def _begin(self, *_: object) -> None:
        self._begun = time.perf_counter()

    def _end(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begun

    def measure(self, query: Callable[[], object]) -> float:
        self.seconds = 0.0
        assert query()
        return round(self.seconds, 4)


def test_many_ended_runs_are_listed_shown_counted_and_pruned(url: str, keep: Keep) -> None:
    fill(url, RUNS)
    with Runs(url) as runs:
        clock = Clock(runs.table.engine)
        wanted = runs._select(None, "refund", None, MINUTE)._replace(states=ENDED)
        seconds = {
            "list": clock.measure(lambda: len(runs.list(limit=100)) == 100),
            "list_paused": clock.measure(lambda: {run.state for run in runs.list("paused", limit=50)} == {"paused"}),
            "list_failed": clock.measure(lambda: len(runs.list("failed", prompt="triage", limit=10)) == 10),
            "list_tenant": clock.measure(lambda: len(runs.list(tenant="acme", prefix="run-0", limit=100)) == 100),
            "show": clock.measure(lambda: runs.get("run-000100").state == "paused"),
            "scrape": clock.measure(lambda: [count.runs for count in runs.count_runs()] == [0, 0, RUNS // 100, 0]),
            "first_chunk_of_prune": clock.measure(
                lambda: len(runs.table.find(wanted, limit=500, oldest_first=True)) == 500
            ),
        }
    figures = prune_beside_work(url)
    keep(database=url.partition(":")[0], runs=RUNS, seconds=seconds, **figures)
    assert max(seconds.values()) < SECONDS
    assert figures["pruned_per_second"] > PRUNED


def prune_beside_work(url: str) -> dict[str, Any]:
    """Prune while a worker runs one turn after the other. Return the rate, and the slowest turns."""
    with working(url, Desk().look) as worker:
        alone = run_turns(worker.runs, "alone", lambda turns: turns == 5)
        process = subprocess.Popen([sys.executable, "-c", PRUNE, url], stdout=subprocess.PIPE, text=True)  # noqa: S603  our own code
        beside = run_turns(worker.runs, "beside", lambda _: process.poll() is not None)
        printed, _ = process.communicate(timeout=300)
        pruned, seconds = printed.split()
        left = {run.state for run in worker.runs.list(prefix="run-", older_than=10 * MINUTE)}
        assert left == {"paused"}, "paused runs stay"
    slowest = {"slowest_turn_alone": round(max(alone), 2), "slowest_turn_beside_pruning": round(max(beside), 2)}
    return {"pruned_per_second": round(2 * int(pruned) / float(seconds)), "turns_beside": len(beside), **slowest}


def run_turns(runs: Runs, name: str, is_enough: Callable[[int], bool]) -> list[float]:
    """Run turns until there are enough, and return the seconds of each."""
    seconds: list[float] = []
    while not is_enough(len(seconds)):
        begun = time.perf_counter()
        run_id = runs.submit(scripted(rounds("look", 1, 1)), run_id=f"{name}{len(seconds)}", tools=["look"])
        assert runs.result(run_id, timeout=60) == "Done."
        seconds.append(time.perf_counter() - begun)
    return seconds


def test_no_query_of_lists_gauges_and_pruning_reads_all_runs(databases: Databases) -> None:
    """Whatever the planner of SQLite chooses, it is an index."""
    url = databases.sqlite()
    with Runs(url) as runs:
        runs.submit(scripted(["Hi."]), run_id="mine", tenant="acme")
        statements: list[tuple[str, Any]] = []
        sa.event.listen(
            runs.table.engine,
            "before_cursor_execute",
            lambda _, __, statement, values, *___: statements.append((statement, values)),
        )
        runs.list(limit=10)
        for state in ("paused", "waiting", "running", "failed"):
            runs.list(state, limit=10)
        runs.list(prompt="a", tenant="acme", prefix="m", older_than=MINUTE, limit=10)
        runs.count_runs()
        runs.prune(MINUTE)
        runs.prune(MINUTE, prompt="a", state="failed")
    engine = create_engine(url)
    with engine.connect() as connection:
        for statement, values in statements:
            if statement.startswith("SELECT") and "FROM" in statement:
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
                details = [row[3] for row in plan if row[3].startswith("SCAN") and "USING" not in row[3]]
                assert not [detail for detail in details if "(subquery" not in detail and "CONSTANT" not in detail], (
                    statement
                )
    engine.dispose()
