"""Queries on the queues of DBOS. The indexes of DBOS for waiting workflows answer them."""

from collections.abc import Sequence
from typing import Any

from prompty.extras import require

PRIORITY = "priority"  # the attribute with the priority that a workflow was queued with


def count_waiting(database: Any, queues: Sequence[str], most: int | None) -> int:
    """Return how many workflows wait, but count no further than `most`."""
    sa, status = _sqlalchemy(), _workflows().c
    waiting = sa.select(sa.literal(1)).where(status.queue_name.in_(queues), status.status == "ENQUEUED")
    query = sa.select(sa.func.count()).select_from((waiting if most is None else waiting.limit(most)).subquery())
    with database.engine.connect() as connection:
        return int(connection.execute(query).scalar())


def raise_priorities(database: Any, queues: Sequence[str], seconds: float) -> None:
    """Compute priorities from how long workflows have waited. Workers can do it at once: the outcome is the same."""
    sa, table = _sqlalchemy(), _workflows()
    queued, now = table.c.attributes[PRIORITY].as_integer(), sa.cast(database._now_ms_sql(), sa.BigInteger)
    risen = queued - (now - table.c.created_at) // sa.literal(max(int(seconds * 1000), 1))
    wanted = sa.case((risen > 0, risen), else_=0)
    waiting = (table.c.queue_name.in_(queues), table.c.status == "ENQUEUED", table.c.priority > 0)
    update = sa.update(table).values(priority=wanted).where(*waiting, wanted < table.c.priority, queued > 0)
    with database.engine.begin() as connection:
        connection.execute(update)


def _sqlalchemy() -> Any:
    return require("sqlalchemy", extra="durable")


def _workflows() -> Any:
    return require("dbos._schemas.system_database", extra="durable").SystemSchema.workflow_status
