"""Tables of leases and takeovers beside those of DBOS, on a connection of their own.

Times are seconds of the database's clock. A workflow is taken over in the way of DBOS: it is queued again, and its
`owner_xid` is cleared, so nothing that the old execution writes is accepted.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from prompty.durable.probation import QUARANTINE_DEATHS
from prompty.extras import require

SCHEMA_NAME = "dbos"
REMEMBER_SECONDS = 24 * 3600.0  # a lost worker
WARN_LEASES = 2
QUARANTINED = "MAX_RECOVERY_ATTEMPTS_EXCEEDED"  # the word of DBOS


class Tables(NamedTuple):
    """Our tables, and the one of DBOS that has the workflows."""

    metadata: Any
    workers: Any
    takeovers: Any
    timers: Any
    workflows: Any


@cache
def _sql() -> Any:
    return require("sqlalchemy", extra="durable")


@cache
def get_tables() -> Tables:
    sql = _sql()
    system = require("dbos._schemas.system_database", extra="durable").SystemSchema
    metadata = sql.MetaData(schema=system.metadata_obj.schema)
    workers = sql.Table(
        "prompty_workers",
        metadata,
        sql.Column("id", sql.Text, primary_key=True),
        sql.Column("seconds", sql.Double, nullable=False),
        sql.Column("expires", sql.Double, nullable=False),
        sql.Column("lost", sql.Double),
    )
    takeovers = sql.Table(
        "prompty_takeovers",
        metadata,
        sql.Column("id", sql.Text, primary_key=True),
        sql.Column("at", sql.Double, nullable=False),
        sql.Column("warn_until", sql.Double, nullable=False),
        sql.Column("deaths", sql.Integer, nullable=False),  # in a row, while it executed, without a finished step
        sql.Column("marked_by", sql.Text),  # the worker that executes it
    )
    timers = sql.Table(
        "prompty_timers",
        metadata,
        sql.Column("id", sql.Text, primary_key=True),
        sql.Column("kind", sql.Text, primary_key=True),
        sql.Column("at", sql.Double, nullable=False, index=True),
        sql.Column("attempts", sql.Integer, nullable=False),
    )
    return Tables(metadata, workers, takeovers, timers, system.workflow_status)


def create_tables(engine: Any) -> None:
    """Create the tables that are missing. A role that may create nothing is fine if they are there."""
    with engine.connect() as connection:
        is_postgres = connection.dialect.name == "postgresql"
        existing = _sql().inspect(connection).get_table_names(schema=SCHEMA_NAME if is_postgres else None)
        if {table.name for table in get_tables().metadata.tables.values()} <= set(existing):
            return
    with engine.begin() as connection:
        if is_postgres:  # two workers that start together
            connection.execute(_sql().text("SELECT pg_advisory_xact_lock(7166020281)"))
        get_tables().metadata.create_all(connection)


def is_taken_over(engine: Any, id: str) -> bool:
    """Return True if a workflow was taken over so recently that the last process may still be in a side effect."""
    takeovers = get_tables().takeovers.c
    query = _sql().select(takeovers.id).where(takeovers.id == id, takeovers.warn_until > get_clock_sql(engine))
    with engine.connect() as connection:
        return connection.execute(query).first() is not None


def find_claim(engine: Any, id: str) -> tuple[str | None, int]:
    """Return the worker that claimed a workflow, and how many workers in a row died while they executed it."""
    workflows, takeovers = get_tables().workflows, get_tables().takeovers
    joined = workflows.outerjoin(takeovers, takeovers.c.id == workflows.c.workflow_uuid)
    query = _sql().select(workflows.c.executor_id, takeovers.c.deaths).select_from(joined)
    with engine.connect() as connection:
        found = connection.execute(query.where(workflows.c.workflow_uuid == id)).first()
        return (None, 0) if found is None else (found[0], found[1] or 0)


def mark_execution(engine: Any, id: str, worker_id: str | None) -> None:
    """Note that a worker executes a workflow whose worker died, or with None that it is cleared."""
    takeovers = get_tables().takeovers
    values = {"marked_by": worker_id, **({} if worker_id else {"deaths": 0})}
    with engine.begin() as connection:
        connection.execute(takeovers.update().where(takeovers.c.id == id).values(values))


def get_clock_sql(engine: Any) -> Any:
    """Return the time of the database in seconds, as an expression of SQL."""
    is_postgres = engine.dialect.name == "postgresql"
    clock = "extract(epoch from clock_timestamp())" if is_postgres else "(julianday('now') - 2440587.5) * 86400.0"
    return _sql().literal_column(clock, _sql().Double)


class DbosLeases:
    """The store of leases. A pool of its own keeps the heartbeat apart from the load of the runs."""

    def __init__(self, engine: Any, queue: str, workflow: str, version: str, seconds: float) -> None:
        sql = _sql()
        self._is_postgres = engine.dialect.name == "postgresql"
        arguments: dict[str, Any] = {"timeout": seconds / 2}
        if self._is_postgres:
            arguments = {"connect_timeout": 2, "tcp_user_timeout": int(seconds * 500)}
        own = sql.create_engine(engine.url, pool_size=1, max_overflow=0, pool_pre_ping=True, connect_args=arguments)
        if self._is_postgres:
            sql.event.listen(own, "connect", _limit_statements(seconds))
        self._engine = own.execution_options(**engine.get_execution_options())
        self._statement = self._engine.execution_options(isolation_level="AUTOCOMMIT")  # one, without BEGIN and COMMIT
        self._now = get_clock_sql(engine)
        self._queue, self._workflow, self._version = queue, workflow, version

    def register(self, id: str, seconds: float, /) -> None:
        workers, takeovers = get_tables().workers, get_tables().takeovers
        with self._engine.begin() as connection:
            connection.execute(workers.delete().where(workers.c.lost < self._now - REMEMBER_SECONDS))
            connection.execute(takeovers.delete().where(takeovers.c.at < self._now - REMEMBER_SECONDS))
            connection.execute(workers.insert().values(id=id, seconds=seconds, expires=self._now + seconds))

    def renew(self, id: str, seconds: float, /) -> bool:
        workers = get_tables().workers
        beat = workers.update().where(workers.c.id == id, workers.c.lost.is_(None))
        with self._statement.connect() as connection:
            return bool(connection.execute(beat.values(expires=self._now + seconds)).rowcount)

    def find_expiring(self, seconds: float, /) -> Mapping[str, float]:
        workers = get_tables().workers.c
        soon = workers.expires < self._now + seconds
        query = _sql().select(workers.id, workers.expires).where(workers.lost.is_(None), soon)
        with self._statement.connect() as connection:
            return dict(connection.execute(query).all())

    def declare_lost(self, id: str, expired: float, /) -> bool:
        workers = get_tables().workers
        same = (
            workers.c.id == id,
            workers.c.lost.is_(None),
            workers.c.expires == expired,
            workers.c.expires < self._now,
        )
        with self._statement.connect() as connection:
            return bool(connection.execute(workers.update().where(*same).values(lost=self._now)).rowcount)

    def take_over(self) -> int:
        workers, workflows = get_tables().workers, get_tables().workflows
        held = _sql().exists().where(workers.c.id == workflows.c.executor_id, workers.c.lost.is_(None))
        with self._statement.connect() as connection:  # first without a lock: there is seldom any
            if connection.execute(self._select_running(~held).limit(1)).first() is None:
                return 0
        with self._engine.begin() as connection:
            # A process that was stopped in a transaction still has a row locked; it is left for the next look.
            found = connection.execute(self._select_running(~held).with_for_update(skip_locked=True)).all()
            return sum(self._queue_again(connection, id, executor, is_lost=True) for id, executor in found)

    def release(self, id: str, /) -> None:
        workers, workflows = get_tables().workers, get_tables().workflows
        with self._engine.begin() as connection:
            connection.execute(workers.delete().where(workers.c.id == id))
            found = connection.execute(self._select_running(workflows.c.executor_id == id)).all()
            for workflow, executor in found:
                self._queue_again(connection, workflow, executor, is_lost=False)

    def close(self) -> None:
        self._engine.dispose()

    def _select_running(self, condition: Any) -> Any:
        workflows = get_tables().workflows.c
        ours = (workflows.name == self._workflow, workflows.application_version == self._version)
        return (
            _sql()
            .select(workflows.workflow_uuid, workflows.executor_id)
            .where(workflows.status == "PENDING", *ours, condition)
        )

    def _queue_again(self, connection: Any, id: str, executor: str | None, *, is_lost: bool) -> bool:
        """Queue a workflow, unless it has gone elsewhere meanwhile."""
        sql, workflows = _sql(), get_tables().workflows
        same = (workflows.c.workflow_uuid == id, workflows.c.status == "PENDING", workflows.c.executor_id == executor)
        values = {
            "status": "ENQUEUED",
            "owner_xid": None,
            "started_at_epoch_ms": None,
            "updated_at": sql.cast(self._now * 1000, sql.BigInteger),
            "queue_name": sql.func.coalesce(workflows.c.queue_name, self._queue),
        }
        deaths = self._count_deaths(connection, id, executor) if is_lost else 0
        if deaths >= QUARANTINE_DEATHS:
            values = {
                "status": QUARANTINED,
                "owner_xid": None,
                "queue_name": None,
                "completed_at": values["updated_at"],
            }
        if connection.execute(workflows.update().where(*same).values(values)).rowcount == 0:
            return False
        if is_lost:
            self._note_takeover(connection, id, executor, deaths)
        return True

    def _count_deaths(self, connection: Any, id: str, executor: str | None) -> int:
        """Return the deaths with this one. Only the first counts for a run that may not have executed a step."""
        takeovers = get_tables().takeovers.c
        query = _sql().select(takeovers.deaths, takeovers.marked_by).where(takeovers.id == id)
        found = connection.execute(query).first()
        if found is None or found[0] == 0:
            return 1
        return int(found[0]) + int(found[1] == executor)

    def _note_takeover(self, connection: Any, id: str, executor: str | None, deaths: int) -> None:
        sql, workers, takeovers = _sql(), get_tables().workers, get_tables().takeovers
        seconds = connection.execute(sql.select(workers.c.seconds).where(workers.c.id == executor)).scalar() or 0.0
        times = {"at": self._now, "warn_until": self._now + WARN_LEASES * seconds}
        connection.execute(takeovers.delete().where(takeovers.c.id == id))
        connection.execute(takeovers.insert().values(id=id, deaths=deaths, **times))


def _limit_statements(seconds: float) -> Any:
    """Return a listener that ends the sessions of a process that hangs: it would hold its locks."""
    milliseconds = int(seconds * 500)

    def limit(connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET statement_timeout = {milliseconds}")
            cursor.execute(f"SET idle_in_transaction_session_timeout = {milliseconds}")
        connection.commit()

    return limit
