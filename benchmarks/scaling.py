"""Figures of docs/explanation/scaling.md and of "A durable turn" on docs/explanation/performance.md:
`python -m benchmarks.scaling [RUNS]`.

Each part runs in a process of its own, on both databases:

- `turns`: of a turn of one answer, and of one of three rounds with four tools each, through a worker that executes
  eight at once: turns per second, processor time, rows and bytes that stay; on PostgreSQL transactions, updated rows,
  and bytes of the log, right after a checkpoint (with full pages) and later.
- `slow`: of 200 such turns at once whose model takes 20 seconds for each answer: processor time and transactions of a
  turn, with its waiting, its memory, and the connections of the worker.
- `idle`: processor time, transactions and connections of a worker without runs.
- `kept`: seconds of lists, a scrape and pruning beside RUNS runs that have ended, 100,000 if not given.
"""

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import psycopg
from sqlalchemy import create_engine, text

from prompty import PromptAgent
from prompty.durable import Limits, Runs, Worker
from tests.durable.databases import Postgres
from tests.durable.many import PROMPTS, fill

T = TypeVar("T")
TURNS = 50
AT_ONCE = 8
UNDER_WAY = 200
MODEL_SECONDS = 20.0
IDLE_SECONDS = 20.0
KEPT = 100_000
KINDS = {"1 answer": (0, 0), "3 × 4 tools": (3, 4)}
TABLES = (
    *("workflow_status", "workflow_input", "workflow_output", "operation_outputs", "prompty_runs"),
    *("streams", "notifications", "workflow_events"),
)
COUNTERS = """
SELECT json_build_object(
    'transactions', (SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()),
    'log bytes', (SELECT wal_bytes FROM pg_stat_wal),
    'full pages', (SELECT wal_fpi FROM pg_stat_wal),
    'updates of workflow_status', (SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'workflow_status'),
    'of these in place', (SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'workflow_status'),
    'updates of prompty_runs', (SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'prompty_runs'))
"""
CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def agent(rounds: int, calls: int) -> PromptAgent:
    script = [[{"call": "look", "arguments": {"at": f"{n}/{at}"}} for at in range(calls)] for n in range(rounds)]
    model = {"id": "m", "provider": "scripted", "script": [*script, "Done."]}
    return PromptAgent.model_validate({"model": model, "instructions": "system:\nBe brief.\nuser:\nLook around."})


async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


async def delay(events: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Delay a model call."""
    await asyncio.sleep(_model_seconds)
    async for event in events:
        yield event


_model_seconds = 0.0


def run_turns(runs: Runs, prompt: PromptAgent, count: int) -> None:
    for run_id in [runs.submit(prompt, tools=["look"]) for _ in range(count)]:
        assert runs.result(run_id) == "Done."


def count_rows(url: str) -> int:
    """Return the rows of all tables that a run writes to."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    prefix = "" if url.startswith("sqlite") else "dbos."
    with engine.connect() as connection:
        counts = [connection.execute(text(f"SELECT count(*) FROM {prefix}{table}")).scalar() for table in TABLES]  # noqa: S608  names of our own
    engine.dispose()
    return sum(count or 0 for count in counts)


def count_bytes(url: str) -> int:
    if url.startswith("sqlite"):
        file = Path(url.partition("///")[2])
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return file.stat().st_size
    return int(query(url, "SELECT pg_database_size(current_database())"))


def query(url: str, statement: str) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        found = cursor.fetchone() if cursor.description else None
    return found[0] if found else None


def read_counters(url: str) -> dict[str, float]:
    """Return what PostgreSQL counts. A session reports its transactions once in a second."""
    if url.startswith("sqlite"):
        return {}
    time.sleep(1.5)
    return {name: float(value) for name, value in query(url, COUNTERS).items()}


def read_figures(url: str) -> dict[str, float]:
    return {"rows": count_rows(url), "bytes": count_bytes(url), **read_counters(url)}


def subtract(after: dict[str, float], before: dict[str, float], count: float) -> dict[str, float]:
    return {name: (after[name] - before[name]) / count for name in after}


def measure_turns(url: str, kind: str) -> dict[str, float]:
    """Return what one turn of a kind adds."""
    prompt = agent(*KINDS[kind])
    with Worker(url, tools=[look], pace=delay, limits=Limits(worker_concurrency=AT_ONCE)), Runs(url) as runs:
        run_turns(runs, prompt, AT_ONCE)
        if not url.startswith("sqlite"):
            query(url, "CHECKPOINT")
        before = read_figures(url)
        busy, begun = time.process_time(), time.perf_counter()
        run_turns(runs, prompt, TURNS)
        seconds, busy = time.perf_counter() - begun, time.process_time() - busy
        first = read_figures(url)
        run_turns(runs, prompt, TURNS)
        second = read_counters(url)
        return {
            **subtract(first, before, TURNS),
            "turns per second": TURNS / seconds,
            "CPU ms": 1e3 * busy / TURNS,
            **{f"{name}, later": value for name, value in subtract(second, first, TURNS).items()},
        }


def measure_slow_turns(url: str, kind: str) -> dict[str, float]:
    """Return what a turn takes beside others, with a model that takes its time."""
    global _model_seconds
    prompt = agent(*KINDS[kind])
    with Worker(url, tools=[look], pace=delay) as worker:
        run_turns(worker.runs, prompt, AT_ONCE)
        _model_seconds = MODEL_SECONDS
        started, before, busy = read_memory(), read_counters(url), time.process_time()
        ids = [worker.runs.submit(prompt, tools=["look"]) for _ in range(UNDER_WAY)]
        time.sleep(MODEL_SECONDS / 2)
        kilobytes, connections = read_memory() - started, count_connections(url)
        for run_id in ids:
            worker.runs.result(run_id)
        busy = time.process_time() - busy
        used = subtract(read_counters(url), before, UNDER_WAY)
        found = {"CPU ms": 1e3 * busy / UNDER_WAY, "KB under way": kilobytes / UNDER_WAY, "connections": connections}
        return {**found, **{name: used[name] for name in ("transactions",) if used}}


def measure_idle(url: str, _: str) -> dict[str, float]:
    """Return what a worker without runs takes in a second."""
    with Worker(url, tools=[look]) as worker:
        run_turns(worker.runs, agent(3, 4), AT_ONCE)
        time.sleep(5)
        before, busy, begun = read_counters(url), time.process_time(), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        seconds, busy = time.perf_counter() - begun, time.process_time() - busy
        used = subtract(read_counters(url), before, seconds + 1.5)
        return {
            "% of a core": 100 * busy / seconds,
            "connections": count_connections(url),
            **{f"{name} per second": used[name] for name in ("transactions", "log bytes") if used},
        }


def measure_kept(url: str, count: str) -> dict[str, float]:
    """Return the seconds of queries beside many ended runs of two segments, and how fast they are deleted."""
    fill(url, int(count))
    with Runs(url) as runs:
        runs.list("running", limit=1)  # connect
        found = {
            name: take_seconds(asked)
            for name, asked in {
                "list": lambda: runs.list(limit=100),
                "list paused": lambda: runs.list("paused", limit=100),
                "list of a prompt": lambda: runs.list(prompt=PROMPTS[0], older_than=timedelta(hours=1), limit=100),
                "show": lambda: (runs.get("run-000100"), list(runs.events("run-000100"))),
                "scrape": runs.count_runs,
            }.items()
        }
        begun = time.perf_counter()
        deleted = runs.prune(timedelta(hours=1), prompt=PROMPTS[0])
        return {**found, "workflows pruned per second": 2 * deleted / (time.perf_counter() - begun)}


def take_seconds(asked: Callable[[], object]) -> float:
    begun = time.perf_counter()
    asked()
    return time.perf_counter() - begun


def count_connections(url: str) -> float:
    return 0.0 if url.startswith("sqlite") else float(query(url, CONNECTIONS))


def read_memory() -> float:
    """Return the kilobytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4.0


PARTS: dict[str, Callable[[str, str], dict[str, float]]] = {
    "turns": measure_turns,
    "slow": measure_slow_turns,
    "idle": measure_idle,
    "kept": measure_kept,
}


def measure(name: str, new_database: Callable[[], str], kept: int) -> None:
    pairs = [("turns", kind) for kind in KINDS] + [("slow", kind) for kind in KINDS]
    for part, kind in [*pairs, ("idle", ""), ("kept", str(kept))]:
        command = [sys.executable, "-m", "benchmarks.scaling", part, new_database(), kind]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=1800)
        found = json.loads(done.stdout.splitlines()[-1])
        shown = ", ".join(f"{value:,.3g} {unit}" for unit, value in found.items())
        print(f"{name}, {part} {kind}: {shown}", flush=True)


def main(kept: int) -> None:
    with TemporaryDirectory() as folder:
        numbers = iter(range(100))
        measure("SQLite", lambda: f"sqlite:///{folder}/runs{next(numbers)}.db", kept)
    server = Postgres(fsync=True)
    server.start()
    try:
        measure("PostgreSQL", server.database, kept)
    finally:
        server.remove()


if __name__ == "__main__":
    match sys.argv[1:]:
        case [part, url, kind]:
            print(json.dumps(PARTS[part](url, kind)), flush=True)
        case [kept]:
            main(int(kept))
        case _:
            main(KEPT)
