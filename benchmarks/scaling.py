"""What a durable turn writes and takes, as docs/explanation/scaling.md tells it: `python -m benchmarks.scaling`.

Of a turn of one answer, and of one of three rounds with four tools each: rows and bytes that stay in the database, on
PostgreSQL also transactions and the bytes of its log, and processor time of the worker. Of 200 turns at once whose
model takes 20 seconds for each answer: processor time and transactions of a turn, with its waiting, and its memory.
"""

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import psycopg
from sqlalchemy import create_engine, text

from prompty import PromptAgent
from prompty.durable import DurableRuntime
from tests.durable.databases import Postgres

T = TypeVar("T")
TURNS = 50
UNDER_WAY = 200
MODEL_SECONDS = 20.0
KINDS = {"1 answer": (0, 0), "3 × 4 tools": (3, 4)}
TABLES = ("workflow_status", "operation_outputs", "streams", "notifications", "workflow_events")


def agent(rounds: int, calls: int) -> PromptAgent:
    script = [[{"call": "look", "arguments": {"at": f"{n}/{at}"}} for at in range(calls)] for n in range(rounds)]
    model = {"id": "m", "provider": "scripted", "options": {"additionalProperties": {"script": [*script, "Done."]}}}
    return PromptAgent.model_validate({"model": model, "instructions": "system:\nBe brief.\nuser:\nLook around."})


async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


async def delay(events: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """A model call that takes its time."""
    await asyncio.sleep(_model_seconds)
    async for event in events:
        yield event


_model_seconds = 0.0


def stored_rows(url: str) -> int:
    """Rows of all tables that a run writes to."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    prefix = "" if url.startswith("sqlite") else "dbos."
    with engine.connect() as connection:
        counts = [connection.execute(text(f"SELECT count(*) FROM {prefix}{table}")).scalar() for table in TABLES]  # noqa: S608  names of our own
    engine.dispose()
    return sum(count or 0 for count in counts)


def stored_bytes(url: str) -> int:
    if url.startswith("sqlite"):
        file = Path(url.partition("///")[2])
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return file.stat().st_size
    return int(one(url, "SELECT pg_database_size(current_database())"))


def one(url: str, query: str) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(query).fetchone()
    return found[0] if found else None


def figures(url: str) -> dict[str, float]:
    found: dict[str, float] = {
        "rows": stored_rows(url),
        "bytes": stored_bytes(url),
        "CPU ms": time.process_time() * 1e3,
    }
    if not url.startswith("sqlite"):
        time.sleep(1.5)  # a session tells of its transactions once in a second
        log = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"
        commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        found |= {"log bytes": float(one(url, log)), "transactions": float(one(url, commits))}
    return found


def main(url: str, kind: str) -> None:
    """Print what one turn of a kind adds, in a process of its own."""
    prompt = agent(*KINDS[kind])
    with DurableRuntime(url, name="bench", tools=[look], pace=delay) as runtime:
        runtime.start(prompt).result()
        before = figures(url)
        begun = time.perf_counter()
        for _ in range(TURNS):
            runtime.start(prompt).result()
        seconds = time.perf_counter() - begun
        after = figures(url)
        each = {name: (after[name] - before[name]) / TURNS for name in after}
        print(json.dumps({**each, "ms": 1e3 * seconds / TURNS, **run_slowly(runtime, prompt, url)}), flush=True)


def run_slowly(runtime: DurableRuntime, prompt: PromptAgent, url: str) -> dict[str, float]:
    """What a turn takes beside others, with a model that takes its time."""
    global _model_seconds
    _model_seconds = MODEL_SECONDS
    started, before = memory(), figures(url)
    runs = [runtime.start(prompt) for _ in range(UNDER_WAY)]
    time.sleep(MODEL_SECONDS / 4)
    kilobytes = (memory() - started) / UNDER_WAY
    for run in runs:
        run.result()
    after = figures(url)
    names = {"CPU ms": "CPU ms, slow model", "transactions": "transactions, slow model"}
    slow = {name: (after[key] - before[key]) / UNDER_WAY for key, name in names.items() if key in after}
    return {**slow, "KB under way": kilobytes}


def memory() -> float:
    """Kilobytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4.0


def measured(name: str, url: str) -> None:
    for kind in KINDS:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.scaling", url, kind],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=280,
        )
        found = json.loads(done.stdout)
        print(f"{name}, {kind}: " + ", ".join(f"{value:,.1f} {unit}" for unit, value in found.items()))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
    else:
        with TemporaryDirectory() as folder:
            measured("SQLite", f"sqlite:///{folder}/runs.db")
        server = Postgres(fsync=True)
        server.start()
        try:
            measured("PostgreSQL", server.database())
        finally:
            server.remove()
