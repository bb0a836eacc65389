"""A database with many ended runs: a few real ones, copied by SQL."""

import sqlalchemy as sa

from prompty.durable import DurableRuntime
from tests.durable.runs import Desk, rounds, scripted, working

SECONDS = 60
TABLES = ("workflow_status", "workflow_input", "workflow_output", "operation_outputs")


def fill(url: str, count: int) -> None:
    """Store `count` runs: one in a hundred failed, one in a hundred is paused, and the others are done. Each has one
    model call and one tool call; they started one after the other, a second apart, and the last one started now."""
    with working(url, Desk().look) as runtime:
        _run_templates(runtime)
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        for remainder, template in ((0, "template-paused"), (1, "template-failed"), (None, "template-done")):
            for table in TABLES:
                _copy(connection, table, template, count, remainder)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("ANALYZE"))
    engine.dispose()


def _run_templates(runtime: DurableRuntime) -> None:
    script = rounds("look", 1, 1)
    runtime.start(scripted(script), run_id="template-done").result(timeout=SECONDS)
    runtime.start(scripted(script), run_id="template-paused", approval="always").result(timeout=SECONDS)
    failing = runtime.start(scripted(script[:1] * 2), run_id="template-failed", max_iterations=1)
    for _ in failing.events():
        pass


def _copy(connection: sa.Connection, table: str, template: str, count: int, remainder: int | None) -> None:
    """Copy the rows of one run in one table, under the ids `run-000001` and so on."""
    dialect = connection.dialect.name
    schema = "" if dialect == "sqlite" else "dbos."
    columns = [
        column["name"] for column in sa.inspect(connection).get_columns(table, schema=schema.rstrip(".") or None)
    ]
    shifted = {"created_at", "updated_at", "completed_at"} if table == "workflow_status" else set()
    new_id = "printf('run-%06d', n.i)" if dialect == "sqlite" else "'run-' || lpad(n.i::text, 6, '0')"
    values = [_value(name, new_id, shifted, count) for name in columns]
    chosen = "n.i % 100 = " + str(remainder) if remainder is not None else "n.i % 100 > 1"
    numbers = (
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :count)"
        if dialect == "sqlite"
        else "WITH n(i) AS (SELECT * FROM generate_series(0, :count - 1))"
    )
    names = ", ".join(f'"{name}"' for name in columns)
    select = f"{numbers} SELECT {', '.join(values)} FROM {schema}{table} t, n WHERE t.workflow_uuid = :id AND {chosen}"  # noqa: S608  our own names
    insert = f"INSERT INTO {schema}{table} ({names}) {select}"
    connection.execute(sa.text(insert), {"count": count, "id": template})


def _value(name: str, new_id: str, shifted: set[str], count: int) -> str:
    if name == "workflow_uuid":
        return new_id
    return f't."{name}" - ({count} - n.i) * 1000' if name in shifted else f't."{name}"'
