"""Two hundred runs that version 0.1.0 left in flight end under workers of this version, which replace one another."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from prompty import Paused
from prompty.durable import DurableRuntime
from prompty.durable.envelope import seal, unseal
from prompty.durable.suite import wait_until
from prompty.memory import SqliteMemory
from tests.artefacts.stored import TOOLS
from tests.artefacts.test_old_runs import SECRETS, Restore, every_database, restored as restored
from tests.soak import Keep

pytestmark = [pytest.mark.database, pytest.mark.slow]

IN_FLIGHT = ("running", "running-idempotent", "running-streamed", "queued", "queued-secret", "paused")
COPIES = 33  # with the originals, 204 runs
LATER = "prompty-9"  # a version that no worker here has
TABLES = ("workflow_status", "workflow_input", "workflow_output", "operation_outputs", "streams")


@every_database
def test_every_run_in_flight_ends_or_is_named(kind: str, restored: Restore, tmp_path: Path, keep: Keep) -> None:
    url = restored(kind)
    copies = copy_runs(url)
    runs = {*copies, *IN_FLIGHT}
    assert len(runs) >= 200
    strange = {id for id in copies if id.endswith("-1") and not id.startswith("paused")}  # a paused one needs no worker
    mark_version(url, strange)
    for worker in ("one", "two"):  # each is stopped while runs go on, and the next one takes its place
        with open_worker(url, tmp_path, worker) as runtime:
            before = count_done(runtime, runs)
            wait_until(lambda runtime=runtime, before=before: count_done(runtime, runs) > before + 20)  # type: ignore[misc]  # bound here
    with open_worker(url, tmp_path, "three") as runtime:
        for run_id in sorted(runs - strange):
            assert finish(runtime, run_id) in ("Recovered.", "Run at last.", "Open.", "Settled.")
        ends = Counter(run.state for run in runtime.list(limit=1000) if run.id in runs)
        named = {run.id: run.reason for run in runtime.list(limit=1000) if run.id in strange}
    assert ends["done"] == len(runs) - len(strange)
    assert named.keys() == strange
    assert all(reason and "9" in reason for reason in named.values()), named
    keep(runs=len(runs), done=ends["done"], named=len(named), workers=3)


def finish(runtime: DurableRuntime, run_id: str) -> object:
    """Wait for a run, and say yes to whatever it asks."""
    result = runtime.result(run_id, timeout=60)
    while isinstance(result, Paused):
        runtime.answer(result, [True] * len(result.pending))
        result = runtime.result(run_id, timeout=60)
    return result


def count_done(runtime: DurableRuntime, runs: set[str]) -> int:
    return sum(run.state in ("done", "paused") and run.id in runs for run in runtime.list(limit=1000))


def open_worker(url: str, folder: Path, name: str) -> DurableRuntime:
    memory = SqliteMemory(folder / "sessions.db")
    return DurableRuntime(url, name=name, lease=2, tools=TOOLS, memory=memory, secrets=SECRETS)


def copy_runs(url: str) -> list[str]:
    """Copy the rows of each run in flight under other ids, as if there had been more of them."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    metadata = sa.MetaData()
    metadata.reflect(engine, schema="dbos" if engine.dialect.name == "postgresql" else None, only=list(TABLES))
    ids = []
    with engine.begin() as connection:
        for original in IN_FLIGHT:
            for number in range(COPIES):
                ids.append(f"{original}-copy-{number}")
                for table in metadata.sorted_tables:
                    rows = (
                        connection.execute(sa.select(table).where(table.c.workflow_uuid == original)).mappings().all()
                    )
                    for row in rows:
                        connection.execute(table.insert().values(rename_row(dict(row), original, ids[-1])))
    engine.dispose()
    return ids


def mark_version(url: str, ids: set[str]) -> None:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    place = "dbos.workflow_status" if engine.dialect.name == "postgresql" else "workflow_status"
    with engine.begin() as connection:
        for id in ids:
            change = f"UPDATE {place} SET application_version = :version WHERE workflow_uuid = :id"  # noqa: S608  our table
            connection.execute(sa.text(change), {"version": LATER, "id": id})
    engine.dispose()


def rename_row(row: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return a row of another run. Values are sealed, so they are sealed again."""
    row["workflow_uuid"] = new
    if "function_name" in row:
        row["function_name"] = row["function_name"].replace(f":{old}:", f":{new}:")
    for column in ("inputs", "output", "value"):
        if isinstance(row.get(column), str):
            row[column] = json.dumps(rename(json.loads(row[column]), old, new))
    return row


def rename(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict) and value.keys() == {"prompty", "sum", "value"}:
        return seal(rename(unseal(value, old), old, new))
    if isinstance(value, dict):
        return {key.replace(f"{old}:", f"{new}:"): rename(entry, old, new) for key, entry in value.items()}
    if isinstance(value, list):
        return [rename(entry, old, new) for entry in value]
    if isinstance(value, str) and (value == old or value.startswith(f"{old}:")):
        return new + value[len(old) :]
    return value
