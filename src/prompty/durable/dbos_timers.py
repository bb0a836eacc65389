"""Timers in a table beside those of DBOS. Workers ask it once a second, and its index answers."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from prompty.durable.catalog import end_waiting
from prompty.durable.dbos_leases import get_clock_sql, get_tables
from prompty.durable.leases import read_clock
from prompty.durable.timers import Claim, Timer, TimerKind
from prompty.extras import require
from prompty.model.message import Json

CLAIM_SECONDS = 5.0


@cache
def _sql() -> Any:
    return require("sqlalchemy", extra="durable")


class DbosTimers:
    """The timers in the system database of DBOS."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self._now = get_clock_sql(database.engine)
        self._ahead: float | None = None  # the database's clock, compared with ours

    def read_clock(self) -> float:
        if self._ahead is None:
            self._when_there(self._ask_clock)
        assert self._ahead is not None  # noqa: S101  it was asked
        return read_clock() + self._ahead

    def _ask_clock(self) -> None:
        with self._database.engine.connect() as connection:
            self._compare_clock(connection)

    def _compare_clock(self, connection: Any) -> None:
        self._ahead = connection.execute(_sql().select(self._now)).scalar() - read_clock()

    def _when_there(self, query: Callable[[], None]) -> None:
        """Run a query, and wait while the database is away: a run that asks goes on afterwards."""
        require("dbos._sys_db", extra="durable").db_retry(sys_db=self._database)(query)()

    def set(self, timer: Timer, at: float, /) -> None:
        insert = self._database.dialect.insert(get_tables().timers).values(
            id=timer.id, kind=timer.kind, at=at, attempts=0
        )

        def store() -> None:
            with self._database.engine.begin() as connection:
                connection.execute(insert.on_conflict_do_nothing())

        self._when_there(store)

    def claim(self, kinds: Sequence[TimerKind], limit: int, /) -> list[Claim]:
        sql, timers = _sql(), get_tables().timers
        columns = (timers.c.id, timers.c.kind, timers.c.at, timers.c.attempts)
        due = sql.select(*columns).where(timers.c.at <= self._now, timers.c.kind.in_(kinds))
        claimed = []
        with self._database.engine.connect() as connection:  # first without a lock: there is seldom any
            self._compare_clock(connection)
            found = connection.execute(due.order_by(timers.c.at).limit(limit)).all()
        for id, kind, at, attempts in found:
            wait = CLAIM_SECONDS * (2**attempts if kind == "notice" else 1)
            same = (timers.c.id == id, timers.c.kind == kind, timers.c.at == at)  # or another worker was first
            with self._database.engine.begin() as connection:
                later = timers.update().where(*same).values(at=self._now + wait, attempts=attempts + 1)
                if connection.execute(later).rowcount:
                    claimed.append(Claim(Timer(id, kind), attempts + 1))
        return claimed

    def drop(self, timer: Timer, /) -> None:
        timers = get_tables().timers
        with self._database.engine.begin() as connection:
            connection.execute(timers.delete().where(timers.c.id == timer.id, timers.c.kind == timer.kind))

    def end_waiting(self, id: str, output: Json, /) -> bool:
        return end_waiting(self._database, id, output)
