"""The database of durable runs: its tables, and `prompty_runs` with one row for each run.

DBOS has the workflows, and is the truth about what executes. The row of a run has what people ask for: lists, filters,
gauges and pruning read it by an index, and never look at what has ended. Our tables are in the schema of DBOS, so one
grant is for all. Times are milliseconds of the database's clock.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import sqlalchemy as sa
from dbos import DBOS
from sqlalchemy.dialects import postgresql, sqlite

from prompty.concurrency import FileLock
from prompty.errors import RequestError, RunRefused
from prompty.safety.redaction import mask_url

T = TypeVar("T")
RowState = Literal["open", "paused", "done", "failed", "cancelled", "quarantined"]
POOL_SIZE = 5
CREATION_SECONDS = 30.0
IDLE_MILLISECONDS = 5000
UNREACHABLE_SECONDS = 0.5  # between two attempts while the database is unreachable
NOTICED: tuple[RowState, ...] = ("paused", "failed", "quarantined")
NOTICE_MILLISECONDS = 1000  # until DBOS has the state as well
_CREATING = 7166020281  # the lock of whoever creates tables
_PASSING = ("08", "53", "57P", "40P01", "25P03")  # codes of PostgreSQL: away, full, restarted, deadlock, idle too long
_LAST = "\U0010ffff"

METADATA = sa.MetaData(schema="dbos")
_id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")  # whose order finds prefixes

RUNS = sa.Table(
    "prompty_runs",
    METADATA,
    sa.Column("id", _id, primary_key=True),
    sa.Column("prompt", sa.Text, nullable=False),
    sa.Column("tenant", sa.Text),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("created", sa.BigInteger, nullable=False),
    sa.Column("since", sa.BigInteger, nullable=False),
    sa.Column("segments", sa.Integer, nullable=False),
    sa.Column("answer", sa.Text),  # a digest of the answer to the last pause
    sa.Column("tokens", sa.BigInteger),
    sa.Column("cost", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Column("deaths", sa.Integer, nullable=False),  # of workers in a row, while they executed it
    sa.Column("marked_by", sa.Text),  # the worker that executes it after a death
    sa.Column("taken_over", sa.BigInteger),
    sa.Column("notice_due", sa.BigInteger),
    sa.Column("notice_attempts", sa.Integer, nullable=False),
)
LEASES = sa.Table(
    "prompty_leases",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("expires", sa.Double, nullable=False),
    sa.Column("lost", sa.Boolean, nullable=False),
)
_WORKFLOWS = {  # tables of DBOS, of which we read in what format a row is
    name: sa.Table(
        name,
        sa.MetaData(schema=METADATA.schema),
        sa.Column("workflow_uuid", sa.Text),
        sa.Column("serialization", sa.Text),
    )
    for name in ("workflow_status", "operation_outputs", "streams")
}
_has_tenant, _has_notice = RUNS.c.tenant.is_not(None), RUNS.c.notice_due.is_not(None)
# A run is in its state since it was created, or later: so the order of creation also finds what is old.
sa.Index("prompty_runs_created", RUNS.c.created, RUNS.c.id)
sa.Index("prompty_runs_state", RUNS.c.state, RUNS.c.created, RUNS.c.id)
sa.Index("prompty_runs_prompt", RUNS.c.prompt, RUNS.c.created, RUNS.c.id)
_columns = (RUNS.c.tenant, RUNS.c.created, RUNS.c.id)
sa.Index("prompty_runs_tenant", *_columns, postgresql_where=_has_tenant, sqlite_where=_has_tenant)
sa.Index("prompty_runs_notice", RUNS.c.notice_due, postgresql_where=_has_notice, sqlite_where=_has_notice)


def check_url(url: str) -> None:
    """Raise RequestError for anything but a database that DBOS can use."""
    if not url.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
        raise RequestError(f"unsupported database URL {mask_url(url)!r}", "Use sqlite:///runs.db or postgresql://…")


def prepare(url: str) -> None:
    """Create the file of a SQLite database, if there is none: private, and with a write-ahead log. A file that exists
    stays closed: closing any descriptor of it drops the locks that this process holds for its other connections."""
    if not url.startswith("sqlite:"):
        return
    path = _get_path(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def migrate(url: str, role: str | None = None) -> None:
    """Create the tables of DBOS and ours, or bring them up to date. Any number of processes may do it at once, and one
    that may create nothing is fine if they are there. `role` is a role of PostgreSQL that may use them."""
    check_url(url)
    with explain_outage(url), _lock_tables(url):
        prepare(url)
        DBOS.migrate(url)
        engine = create_engine(url, pool_size=1)
        try:
            _create_tables(engine)
        finally:
            engine.dispose()
        if role is not None:
            DBOS.migrate(url, application_role=role)  # again, for the tables that are there now


def _create_tables(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        if _has_tables(connection):
            return
        if is_postgres(engine):  # two workers that start together
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATING)))
        METADATA.create_all(connection)


def ensure_tables(url: str) -> None:
    """Create the tables if they are missing. To look costs a client less than `migrate`."""
    check_url(url)
    if url.startswith("sqlite:") and not _get_path(url).exists():
        migrate(url)
        return
    engine = create_engine(url, pool_size=1)
    try:
        with explain_outage(url), engine.connect() as connection:
            is_ready = _has_tables(connection)
    except RequestError as error:
        if "does not exist" not in error.cause:  # DBOS creates a database that is missing
            raise
        is_ready = False
    finally:
        engine.dispose()
    if not is_ready:
        migrate(url)


def _has_tables(connection: sa.Connection) -> bool:
    schema = METADATA.schema if is_postgres(connection.engine) else None
    found = sa.inspect(connection).get_table_names(schema=schema)
    return {table.name for table in METADATA.tables.values()} <= set(found)


def _get_path(url: str) -> Path:
    return Path(url.partition("///")[2])


@contextmanager
def _lock_tables(url: str) -> Iterator[None]:
    """Let one process at a time create the tables of a SQLite file: DBOS fails if another one does so as well."""
    if not url.startswith("sqlite:"):
        yield
        return
    path = _get_path(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + CREATION_SECONDS
    while True:
        try:
            lock = FileLock(path.with_name(f"{path.name}.tables.lock"), remove=True)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                raise
        time.sleep(0.02)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def explain_outage(url: str) -> Iterator[None]:
    """Raise a sentence if the database cannot be used, instead of what its driver raises."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        cause = str(error.orig).strip().partition("\n")[0]
        raise RequestError(
            f"the database {mask_url(url)!r} cannot be used: {cause}", "Check the URL, and that the server runs."
        ) from error


def create_engine(url: str, *, pool_size: int = POOL_SIZE, **arguments: object) -> sa.Engine:
    """Return a pool of connections. `DBOSClient` can use it, too."""
    if not url.startswith("sqlite:"):
        engine = sa.create_engine(
            sa.make_url(url).set(drivername="postgresql+psycopg"),
            pool_size=pool_size,
            max_overflow=0,
            pool_pre_ping=True,
            connect_args={"application_name": "prompty", **arguments},
        )
        sa.event.listen(engine, "connect", _set_up_postgres)
        return engine
    engine = sa.create_engine(url, pool_size=pool_size, max_overflow=0, connect_args=arguments)
    sa.event.listen(engine, "connect", _set_up_sqlite)
    return engine.execution_options(schema_translate_map={METADATA.schema: None})


def _set_up_postgres(connection: Any, _: object) -> None:
    """A process that hangs in a transaction must not keep its locks."""
    connection.execute(f"SET idle_in_transaction_session_timeout = {IDLE_MILLISECONDS}")
    connection.commit()  # or the pool would undo it


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = "IMMEDIATE"
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute("PRAGMA foreign_keys = ON")


def is_postgres(engine: sa.Engine) -> bool:
    return engine.dialect.name == "postgresql"


def get_clock_sql(engine: sa.Engine) -> sa.ColumnElement[int]:
    """Return the time of the database in milliseconds, as an expression of SQL."""
    if is_postgres(engine):
        return sa.literal_column("(extract(epoch from clock_timestamp()) * 1000)::bigint", sa.BigInteger)
    return sa.literal_column("cast((julianday('now') - 2440587.5) * 86400000 as integer)", sa.BigInteger)


class RunRow(NamedTuple):
    """What the database knows of a run. `open` is a run that waits for a worker, or that one executes."""

    id: str
    prompt: str
    tenant: str | None
    state: RowState
    created: int
    since: int
    segments: int
    answer: str | None
    tokens: int | None
    cost: str | None
    reason: str | None
    deaths: int
    marked_by: str | None
    taken_over: int | None
    notice_due: int | None
    notice_attempts: int


class RunFilter(NamedTuple):
    """Which runs are wanted: in one of these states (or any), and so on. `before` is when they got into their state."""

    states: Sequence[RowState] = ()
    prompts: Sequence[str] = ()
    tenant: str | None = None
    prefix: str | None = None
    before: int | None = None
    ids: Sequence[str] | None = None

    def get_conditions(self) -> Iterator[sa.ColumnElement[bool]]:
        column = RUNS.c
        if self.states:
            yield column.state == self.states[0] if len(self.states) == 1 else column.state.in_(self.states)
        if self.prompts:
            yield column.prompt.in_(self.prompts)
        if self.tenant is not None:
            yield column.tenant == self.tenant
        if self.prefix:
            yield sa.and_(column.id >= self.prefix, column.id < self.prefix + _LAST)
        if self.before is not None:
            yield sa.and_(column.created <= self.before, column.since <= self.before)
        if self.ids is not None:
            yield column.id.in_(self.ids)


class RunTable:
    """The rows of all runs. Each method is one transaction, which waits while the database is unreachable; or a part
    of the transaction of the `connection` that it gets."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.now: sa.ColumnElement[int] = get_clock_sql(engine)
        self.notifies: bool = False  # whether `change` leaves a notice for `durable.notices`

    def transact(self, query: Callable[[sa.Connection], T], connection: sa.Connection | None = None) -> T:
        """Run queries in one transaction. While the database is unreachable, wait for it as DBOS does."""
        while connection is None:
            try:
                with self.engine.begin() as own:
                    return query(own)
            except sa.exc.DBAPIError as error:
                if not _is_passing(error):
                    raise
                time.sleep(UNREACHABLE_SECONDS)
        return query(connection)

    def read_clock(self) -> float:
        """Return the time of the database in seconds since 1970."""
        return self.transact(lambda connection: connection.execute(sa.select(self.now)).scalar_one()) / 1000

    def insert(self, id: str, prompt: str, tenant: str | None, connection: sa.Connection) -> bool:
        """Add an open run. Return False if there is one of this id."""
        values = {"id": id, "prompt": prompt, "tenant": tenant, "state": "open", "segments": 1}
        counts = {"created": self.now, "since": self.now, "deaths": 0, "notice_attempts": 0}
        insert = (postgresql if is_postgres(self.engine) else sqlite).insert(RUNS).values(**values, **counts)
        # SQLite takes the lock of a writer now, so what the transaction reads after this is up to date.
        return connection.execute(insert.on_conflict_do_nothing().returning(RUNS.c.id)).first() is not None

    def get(self, id: str, connection: sa.Connection | None = None) -> RunRow | None:
        found = self.find(RunFilter(ids=[id]), limit=1, connection=connection)
        return found[0] if found else None

    def find(
        self,
        wanted: RunFilter,
        *,
        limit: int,
        after: RunRow | None = None,
        oldest_first: bool = False,
        connection: sa.Connection | None = None,
    ) -> list[RunRow]:
        """Return runs in the order of their creation, the newest first: all, or those `after` one of them."""
        created, id = RUNS.c.created, RUNS.c.id
        query = sa.select(RUNS).where(*wanted.get_conditions())
        if after is not None:
            here, there = sa.tuple_(created, id), sa.tuple_(sa.literal(after.created), sa.literal(after.id))
            query = query.where(here > there if oldest_first else here < there)
        order = (created, id) if oldest_first else (created.desc(), id.desc())
        query = query.order_by(*order).limit(limit)
        return self.transact(lambda own: [RunRow(*row) for row in own.execute(query)], connection)

    def change(
        self,
        id: str,
        state: RowState,
        *,
        segment: int,
        was: Sequence[RowState] = (),
        tokens: int | None = None,
        cost: Decimal | None = None,
        reason: str | None = None,
        connection: sa.Connection | None = None,
    ) -> bool:
        """Note that a run, whose last workflow is `segment`, gets into a state. Return True if it did so now, so that
        whoever counts it counts it once. An end that was noted stays: `cancelled` is one before the worker has stopped.

        By default an open or paused run can end, an open one can pause, and a paused one goes on (`open`). A worker
        that begins a segment after a pause notes `open` before it receives the answer: no answer is accepted later.
        """
        was = was or (("paused",) if state == "open" else ("open",) if state == "paused" else ("open", "paused"))
        before = segment if state == "paused" else segment + 1  # a pause adds the segment that follows it
        values: dict[str, object] = {"state": state, "since": self.now, "segments": segment + 1, "reason": reason}
        is_noticed = self.notifies and state in NOTICED
        values |= {"notice_due": self.now + NOTICE_MILLISECONDS if is_noticed else None, "notice_attempts": 0}
        if state == "paused":
            values["answer"] = None
        if tokens is not None:
            values["tokens"] = tokens
        if cost is not None:
            values["cost"] = str(cost)
        change = RUNS.update().where(RUNS.c.id == id, RUNS.c.segments == before, RUNS.c.state.in_(was)).values(values)
        return self.transact(lambda own: own.execute(change).rowcount == 1, connection)

    def update(self, id: str, connection: sa.Connection | None = None, **values: object) -> bool:
        """Set columns of a row, for example `deaths`. Return False if there is no such run."""
        change = RUNS.update().where(RUNS.c.id == id).values(values)
        return self.transact(lambda own: own.execute(change).rowcount == 1, connection)

    def check_format(
        self, kind: Literal["workflow_status", "operation_outputs", "streams"], ids: Sequence[str]
    ) -> None:
        """Raise RunRefused if DBOS has a row of these workflows that is no JSON. A row chooses its own format, and a
        pickle can run any code when it is read."""
        table = _WORKFLOWS[kind].c
        is_foreign = sa.and_(table.workflow_uuid.in_(ids), table.serialization != "portable_json")
        query = sa.select(table.workflow_uuid).where(is_foreign).limit(1)
        found = self.transact(lambda own: own.execute(query).scalar())
        if found is not None:
            raise RunRefused(f"a row of the run '{found}'", "it is not JSON, may be a pickle, and was not read")

    def delete(self, ids: Sequence[str]) -> None:
        self.transact(lambda own: own.execute(RUNS.delete().where(RUNS.c.id.in_(ids))))

    def count(self, state: RowState, most: int | None = None, connection: sa.Connection | None = None) -> int:
        """Return how many runs have a state, but count no further than `most`."""
        some = sa.select(RUNS.c.id).where(RUNS.c.state == state).limit(most).subquery()
        query = sa.select(sa.func.count()).select_from(some)
        return self.transact(lambda own: own.execute(query).scalar_one(), connection)

    def measure(self, state: RowState, without: Sequence[str] = ()) -> tuple[int, float]:
        """Return how many runs have a state, and for how many seconds the oldest has. Only they are read."""
        where = [RUNS.c.state == state, *([RUNS.c.id.not_in(without)] if without else [])]
        query = sa.select(sa.func.count(), self.now - sa.func.min(RUNS.c.since)).where(*where)
        runs, oldest = self.transact(lambda own: own.execute(query).one())
        return runs, max(0.0, (oldest or 0) / 1000)


def _is_passing(error: sa.exc.DBAPIError) -> bool:
    """Return whether the database is unreachable or busy, so that the same query may succeed later."""
    code = getattr(error.orig, "sqlstate", None)
    if error.connection_invalidated or (code is not None and code.startswith(_PASSING)):
        return True
    if isinstance(error.orig, sqlite3.Error):
        return "database is locked" in str(error.orig)
    return code is None and isinstance(error, sa.exc.OperationalError)  # it could not connect
