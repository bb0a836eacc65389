"""Leases: a worker may act as long as its heartbeat in the database is fresh; then others take its runs over.

A heartbeat sets when the lease expires, by the clock of the database. Before a side effect, a worker compares its own
clock with its last confirmed heartbeat: no query is needed, and a process that was suspended begins nothing. Exactly
one other worker gets the claim on one whose lease has expired, and queues its runs. Used by `durable.worker`.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Set
from logging import Logger, getLogger
from uuid import uuid4

import sqlalchemy as sa

from prompty.durable.database import LEASES, create_engine, get_clock_sql
from prompty.durable.metrics import WorkerMetrics
from prompty.durable.performer import read_clock

LEASE_SECONDS = 10.0
BEATS = 16  # in a lease
SAFE_SHARE = 0.6  # of a lease: a side effect begins only within it
GRACE_SHARE = 0.5  # of a lease: a worker that could not reach the database gives the others as long to beat again
FENCE_SECONDS = 0.05
logger: Logger = getLogger("prompty")


class Leases:
    """The leases of all workers. Each method is one statement, on a connection of its own beside the load of the runs,
    and raises if the database is unreachable."""

    def __init__(self, url: str, seconds: float) -> None:
        limit = int(seconds * 500)  # milliseconds: a process that hangs must not keep its locks
        session = f"-c statement_timeout={limit} -c idle_in_transaction_session_timeout={limit}"
        options = {"connect_timeout": 2, "tcp_user_timeout": limit, "options": session}
        engine = create_engine(url, pool_size=1, **(options if url.startswith("postgresql") else {}))
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._now = sa.cast(get_clock_sql(engine), sa.Double) / 1000.0
        self._seconds = seconds

    def register(self, id: str) -> float:
        """Begin a lease, and return the time of the database."""
        values = sa.select(sa.literal(id), self._now + self._seconds, sa.false())
        insert = LEASES.insert().from_select(["id", "expires", "lost"], values).returning(LEASES.c.expires)
        with self._engine.connect() as connection:
            return float(connection.execute(insert).scalar_one()) - self._seconds

    def renew(self, id: str) -> float | None:
        """Renew a lease, and return the time of the database, or None if the worker was declared lost."""
        beat = LEASES.update().where(LEASES.c.id == id, ~LEASES.c.lost).values(expires=self._now + self._seconds)
        with self._engine.connect() as connection:
            expires = connection.execute(beat.returning(LEASES.c.expires)).scalar()
        return None if expires is None else float(expires) - self._seconds

    def claim_lost(self) -> list[str]:
        """Declare workers lost whose lease has expired, and return them. For the time of a lease nobody else gets them;
        then the claim has expired as well, unless `remove` was called."""
        with self._engine.connect() as connection:
            found = connection.execute(
                sa.select(LEASES.c.id, LEASES.c.expires).where(LEASES.c.expires < self._now)
            ).all()
            return [id for id, expires in found if self._claim(connection, id, expires)]

    def _claim(self, connection: sa.Connection, id: str, expires: float) -> bool:
        same = LEASES.update().where(LEASES.c.id == id, LEASES.c.expires == expires)
        return connection.execute(same.values(expires=self._now + self._seconds, lost=True)).rowcount == 1

    def declare_lost(self, owners: Set[str]) -> None:
        """Declare those lost that have no lease. They woke up, and took a run before they noticed."""
        with self._engine.connect() as connection:
            known = set(connection.execute(sa.select(LEASES.c.id)).scalars())
            for id in owners - known:
                row = sa.select(sa.literal(id), sa.literal(0.0), sa.true()).where(~sa.exists().where(LEASES.c.id == id))
                connection.execute(LEASES.insert().from_select(["id", "expires", "lost"], row))

    def remove(self, id: str) -> None:
        """Forget a worker whose runs are queued."""
        with self._engine.connect() as connection:
            connection.execute(LEASES.delete().where(LEASES.c.id == id))

    def close(self) -> None:
        self._engine.dispose()


class Lease:
    """The lease of one life of a worker. A thread renews it and looks after the others from `start` to `stop`, or until
    it is lost: then it calls `on_lost`, and no fence lets anything pass again.

    `find_owners` returns the owners of all running workflows, and is asked once in a lease. `take_over` queues those of
    a lost worker, and returns how many.
    """

    def __init__(
        self,
        leases: Leases,
        label: str,
        seconds: float,
        metrics: WorkerMetrics,
        *,
        find_owners: Callable[[], Set[str]],
        take_over: Callable[[str], int],
        on_lost: Callable[[], None],
    ) -> None:
        self.id: str = f"{label}~{uuid4().hex[:12]}"
        self._leases, self._label, self._seconds, self._metrics = leases, label, seconds, metrics
        self._find_owners, self._take_over, self._on_lost = find_owners, take_over, on_lost
        self._confirmed = read_clock()  # when the last confirmed heartbeat began
        self._ahead = leases.register(self.id) - time.time()  # seconds that the clock of the database is ahead
        self._patient_until = self._confirmed + GRACE_SHARE * seconds
        self._swept = self._confirmed
        self._is_away = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="prompty lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_held(self) -> bool:
        """Return True if a side effect may begin."""
        return read_clock() - self._confirmed < SAFE_SHARE * self._seconds

    @property
    def is_lost(self) -> bool:
        return self._confirmed == -math.inf

    async def fence(self) -> None:
        """Return when the lease is held. Wait for an unreachable database. Cancel if another worker took over."""
        while not self.is_held():
            if self.is_lost:
                raise asyncio.CancelledError("the worker lost its lease")
            await asyncio.sleep(FENCE_SECONDS)

    def read_time(self) -> float:
        """Return the time by the clock of the database, in seconds since 1970, as of the last heartbeat."""
        return time.time() + self._ahead

    def stop(self) -> None:
        """Stop the heartbeat. The lease stays until it is removed or expires. If it is lost, `on_lost` may go on."""
        self._stopping.set()
        while self._thread.is_alive() and not self.is_lost:
            self._thread.join(FENCE_SECONDS)

    def _keep(self) -> None:
        while not self._stopping.wait(self._seconds / BEATS):
            try:
                self._beat()
                if self.is_lost:
                    self._on_lost()
                    return
                self._look_after_others()
            except Exception as error:  # whatever the database driver raises
                self._wait_for_others()
                self._report_away(error)
            else:
                self._is_away = False

    def _beat(self) -> None:
        begun = read_clock()
        now = self._leases.renew(self.id)
        if now is None:
            logger.warning("The worker '%s' lost its lease. Its runs continue on other workers.", self.id)
            self._confirmed = -math.inf
            return
        if read_clock() - self._confirmed > GRACE_SHARE * self._seconds:
            self._wait_for_others()
        self._confirmed, self._ahead = begun, now - time.time()

    def _wait_for_others(self) -> None:
        """No worker could beat while the database was unreachable: give all of them time before one counts as lost."""
        self._patient_until = read_clock() + GRACE_SHARE * self._seconds

    def _look_after_others(self) -> None:
        if (now := read_clock()) < self._patient_until:
            return
        if now - self._swept > self._seconds:
            self._swept = now
            self._leases.declare_lost(self._find_owners())
        for lost in self._leases.claim_lost():
            self._metrics.count("prompty.workers.lost")
            if count := self._take_over(lost):
                self._metrics.count("prompty.runs.taken_over", count)
                logger.warning("The worker '%s' queued %d runs of '%s', which is lost.", self._label, count, lost)
            self._leases.remove(lost)

    def _report_away(self, error: Exception) -> None:
        if not self._is_away:
            logger.warning("The worker '%s' cannot renew its lease: %s", self._label, type(error).__name__)
        self._is_away = True
