"""Catalog of runs: queries on the tables of DBOS that it has no function for. They read no inputs and no outputs.

A run is a chain of workflows (`id`, `id#1`, …), and the last one says what the run's state is. How a workflow ended is
in its attributes, beside the prompt: DBOS knows only that it has returned.
Used by `durable.dbos_engine`, which passes the system database of DBOS.
"""

import json
import math
import time
from collections.abc import Sequence
from typing import Any

from prompty.durable.dbos_leases import get_tables
from prompty.durable.metrics import PAUSE_AGES, RunCount
from prompty.durable.selection import Outcome, Position, RunState, Selection
from prompty.extras import require
from prompty.model.message import Json

WORKFLOW = "prompty.turn"
PROMPT = "prompt"
OUTCOME = "outcome"
ATTEMPT = "attempt"
_IN_FLIGHT: dict[RunState, list[str]] = {"waiting": ["ENQUEUED", "DELAYED"], "running": ["PENDING"]}
_UNFINISHED: tuple[RunState, ...] = ("waiting", "running", "paused")
_ABORTED: dict[RunState, list[str]] = {
    "cancelled": ["CANCELLED"],
    "failed": ["ERROR"],
    "quarantined": ["MAX_RECOVERY_ATTEMPTS_EXCEEDED"],
}


def select_runs(
    database: Any, selection: Selection, *, limit: int, after: Position | None, oldest_first: bool
) -> list[Position]:
    """Return the positions of the last workflows of runs, the newest first."""
    sa, status = _sqlalchemy(), _schema().workflow_status.c
    query = sa.select(status.created_at, status.workflow_uuid).where(status.name == WORKFLOW)
    if selection.states:
        query = query.where(sa.or_(*(_has_state(state) for state in selection.states)))
    if selection.prompt is not None:
        query = query.where(status.attributes[PROMPT].as_string().in_(selection.prompt_labels()))
    if selection.before is not None:
        moment = int(selection.before.timestamp() * 1000)
        query = query.where(sa.func.coalesce(status.completed_at, status.created_at) <= moment)
    if after is not None:
        here = sa.tuple_(status.created_at, status.workflow_uuid)
        there = sa.tuple_(sa.literal(after.created), sa.literal(after.id))
        query = query.where(here > there if oldest_first else here < there)
    order = [column if oldest_first else column.desc() for column in (status.created_at, status.workflow_uuid)]
    query = query.where(_is_last(database)).order_by(*order).limit(limit)
    with database.engine.begin() as connection:
        return [Position(*row) for row in connection.execute(query)]


def count_runs(database: Any) -> list[RunCount]:
    """Return how many runs wait for a worker, run, or are paused, and since when the oldest of them does."""
    sa, status = _sqlalchemy(), _schema().workflow_status.c
    since = sa.func.coalesce(status.completed_at, status.created_at)
    counted = sa.select(sa.func.count(), sa.func.min(since)).where(status.name == WORKFLOW, _is_last(database))
    counts = []
    with database.engine.begin() as connection:
        for state in _UNFINISHED:
            runs, oldest = connection.execute(counted.where(_has_state(state))).one()
            age = 0.0 if oldest is None else max(0.0, time.time() - oldest / 1000)
            ages = _count_ages(connection, database, runs) if state == "paused" else {}
            counts.append(RunCount(state, runs, age, ages))
    return counts


def _count_ages(connection: Any, database: Any, runs: int) -> dict[str, int]:
    """Return how many paused runs are how old."""
    ages = dict.fromkeys(PAUSE_AGES, 0)
    if not runs:
        return ages
    sa, status = _sqlalchemy(), _schema().workflow_status.c
    waited = time.time() * 1000 - status.completed_at
    age = sa.case(
        *((waited <= seconds * 1000, name) for name, seconds in PAUSE_AGES.items() if seconds < math.inf), else_="older"
    )
    query = sa.select(age, sa.func.count()).where(status.name == WORKFLOW, _is_last(database), _has_state("paused"))
    return ages | dict(connection.execute(query.group_by(sa.literal_column("1"))).all())


def count_versions(database: Any) -> dict[str, dict[str, int]]:
    """Return how many workflows there are of each version of the application, by the state that DBOS has for them."""
    sa, status = _sqlalchemy(), _schema().workflow_status.c
    counted = sa.select(status.application_version, status.status, sa.func.count())
    query = counted.where(status.name == WORKFLOW).group_by(status.application_version, status.status)
    counts: dict[str, dict[str, int]] = {}
    with database.engine.begin() as connection:
        for version, state, count in connection.execute(query):
            counts.setdefault(version or "", {})[state] = count
    return counts


def label_outcome(database: Any, id: str, owner: str | None, outcome: Outcome) -> None:
    """Store how a workflow is about to end, if this execution still owns it. The label counts for this attempt only:
    a worker can die before the end is stored, and the next attempt can end otherwise."""
    sa, table = _sqlalchemy(), _schema().workflow_status
    update = sa.update(table).values(attributes=_get_attributes(database, outcome))
    with database.engine.begin() as connection:
        connection.execute(update.where(table.c.workflow_uuid == id, table.c.owner_xid == owner))


def end_waiting(database: Any, id: str, output: Json) -> bool:
    """End a workflow as failed, as if a worker had executed it. Return False if it doesn't wait in the queue."""
    sa, table, outputs = _sqlalchemy(), _schema().workflow_status, _schema().workflow_output
    text, now = json.dumps(output, separators=(",", ":"), ensure_ascii=False), database._now_ms_sql()
    end = sa.update(table).where(table.c.workflow_uuid == id, table.c.status.in_(_IN_FLIGHT["waiting"]))
    values = {"status": "SUCCESS", "owner_xid": None, "updated_at": now, "completed_at": now}
    with database.engine.begin() as connection:
        if not connection.execute(end.values(**values, attributes=_get_attributes(database, "failed"))).rowcount:
            return False
        insert = database.dialect.insert(outputs).values(workflow_uuid=id, output=text)
        connection.execute(insert.on_conflict_do_update(index_elements=["workflow_uuid"], set_={"output": text}))
        return True


def _get_attributes(database: Any, outcome: Outcome) -> Any:
    """Return the attributes of a workflow with the label for this attempt, as an expression of SQL."""
    sa, table = _sqlalchemy(), _schema().workflow_status
    labels, attempts = table.c.attributes, sa.func.coalesce(table.c.recovery_attempts, 0)
    if database.engine.dialect.name == "sqlite":
        return sa.func.json_set(labels, f"$.{OUTCOME}", outcome, f"$.{ATTEMPT}", attempts)
    return labels.op("||")(sa.func.jsonb_build_object(OUTCOME, sa.cast(outcome, sa.Text), ATTEMPT, attempts))


def delete_workflows(database: Any, ids: Sequence[str]) -> None:
    """Delete workflows with everything stored about them, in one transaction. The function of DBOS passes each id as a
    parameter of its own four times, and takes twice as long."""
    sa, schema = _sqlalchemy(), _schema()
    value: object
    if database.engine.dialect.name == "sqlite":
        listed, value = sa.text("SELECT value FROM json_each(:ids)"), json.dumps(list(ids))
    else:
        listed, value = sa.select(sa.func.unnest(sa.bindparam("ids", type_=sa.ARRAY(sa.Text)))), list(ids)
    tables = (schema.workflow_input, schema.workflow_output, schema.operation_outputs, schema.workflow_status)
    timers = get_tables().timers
    with database.engine.begin() as connection:
        connection.execute(sa.delete(timers).where(timers.c.id.in_(listed)), {"ids": value})
        for table in tables:  # the others refer to the last one, and follow it
            connection.execute(sa.delete(table).where(table.c.workflow_uuid.in_(listed)), {"ids": value})


def _has_state(state: RunState) -> Any:
    sa, status = _sqlalchemy(), _schema().workflow_status.c
    if state in _IN_FLIGHT:
        return status.status.in_(_IN_FLIGHT[state])
    returned = sa.and_(status.status == "SUCCESS", _outcome() == state)
    return sa.or_(status.status.in_(_ABORTED[state]), returned) if state in _ABORTED else returned


def _outcome() -> Any:
    """Return how a workflow that returned has ended: the label of its last attempt, or `done` without one."""
    sa, status = _sqlalchemy(), _schema().workflow_status.c
    labels = status.attributes
    return sa.case(
        (labels[ATTEMPT].as_integer() == sa.func.coalesce(status.recovery_attempts, 0), labels[OUTCOME].as_string()),
        else_="done",
    )


def _is_last(database: Any) -> Any:
    """Return the condition that no other workflow continues this one."""
    sa, table = _sqlalchemy(), _schema().workflow_status
    following = table.alias()
    return ~sa.exists().where(following.c.workflow_uuid == _next_id(database))


def _next_id(database: Any) -> Any:
    sa, status = _sqlalchemy(), _schema().workflow_status.c
    id = status.workflow_uuid
    find = sa.func.instr if database.engine.dialect.name == "sqlite" else sa.func.strpos
    mark = find(id, "#")
    number = sa.cast(sa.func.substr(id, mark + 1), sa.Integer)
    # The name is in it because others can keep workflows in the same database, whose ids have other marks.
    return sa.case(
        (status.name != WORKFLOW, None),
        (mark == 0, id + "#1"),
        else_=sa.func.substr(id, 1, mark) + sa.cast(number + 1, sa.Text),
    )


def _sqlalchemy() -> Any:
    return require("sqlalchemy", extra="durable")


def _schema() -> Any:
    return require("dbos._schemas.system_database", extra="durable").SystemSchema
