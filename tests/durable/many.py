"""A database with many ended runs: a few real ones, copied by SQL."""

import time

import sqlalchemy as sa

from prompty import Paused
from prompty.durable import Runs, Worker
from tests.durable.runs import Desk, rounds, scripted

SECONDS = 60
PROMPTS = ("refund.prompty", "triage.prompty", "reply.prompty")
TABLES = ("workflow_status", "workflow_input", "workflow_output", "operation_outputs", "prompty_runs")
# Of each hundred runs, the first is paused, the second has failed, and the others are done.
TEMPLATES = {"paused": "n.i % 100 = 0", "failed": "n.i % 100 = 1", "done": "n.i % 100 > 1"}


def fill(url: str, count: int) -> None:
    """Store `count` runs of two segments, `run-000000` and so on. Each was answered once (but the paused ones), and has
    two model calls and one tool call. They were submitted one after the other, a second apart, the last one now."""
    with Worker(url, tools=[Desk().look], lease=5) as worker:
        _run_templates(worker.runs)
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        for state, chosen in TEMPLATES.items():
            for table in TABLES:
                for segment in ("", "#1") if table != "prompty_runs" else ("",):
                    _copy(connection, table, f"template-{state}", segment, count, chosen)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("ANALYZE"))
    engine.dispose()
    with Runs(url) as runs:
        for state in TEMPLATES:
            if state == "paused":
                runs.cancel("template-paused")
            runs.delete(f"template-{state}")


def _run_templates(runs: Runs) -> None:
    script = rounds("look", 1, 1)
    for state in TEMPLATES:
        agent = scripted(script[:1] * 2 if state == "failed" else script)
        runs.submit(
            agent,
            run_id=f"template-{state}",
            approval={"look": "always"},
            tools=["look"],
            max_iterations=1 if state == "failed" else 5,
        )
    for state in TEMPLATES:
        paused = runs.result(f"template-{state}", timeout=SECONDS)
        assert isinstance(paused, Paused)
        if state != "paused":
            runs.answer(paused, [True])
            until = time.monotonic() + SECONDS
            while runs.get(f"template-{state}").state != state:
                assert time.monotonic() < until
                time.sleep(0.1)


def _copy(connection: sa.Connection, table: str, template: str, segment: str, count: int, chosen: str) -> None:
    """Copy the rows of one segment of a run in one table."""
    dialect = connection.dialect.name
    schema = "" if dialect == "sqlite" else "dbos."
    columns = [
        column["name"] for column in sa.inspect(connection).get_columns(table, schema=schema.rstrip(".") or None)
    ]
    new_id = "printf('run-%06d', n.i)" if dialect == "sqlite" else "'run-' || lpad(n.i::text, 6, '0')"
    values = [_value(name, f"{new_id} || '{segment}'", count) for name in columns]
    numbers = (
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :count)"
        if dialect == "sqlite"
        else "WITH n(i) AS (SELECT * FROM generate_series(0, :count - 1))"
    )
    names = ", ".join(f'"{name}"' for name in columns)
    key = "id" if table == "prompty_runs" else "workflow_uuid"
    select = f"{numbers} SELECT {', '.join(values)} FROM {schema}{table} t, n WHERE t.{key} = :id AND {chosen}"  # noqa: S608  our own names
    connection.execute(
        sa.text(f"INSERT INTO {schema}{table} ({names}) {select}"), {"count": count, "id": template + segment}
    )


def _value(name: str, new_id: str, count: int) -> str:
    match name:
        case "workflow_uuid" | "id":
            return new_id
        case "created_at" | "updated_at" | "completed_at" | "created" | "since":
            return f't."{name}" - ({count} - n.i) * 1000'
        case "prompt":
            return f"CASE n.i % 3 WHEN 0 THEN '{PROMPTS[0]}' WHEN 1 THEN '{PROMPTS[1]}' ELSE '{PROMPTS[2]}' END"
        case "tenant":
            return "CASE n.i % 10 WHEN 0 THEN 'acme' END"
    return f't."{name}"'
