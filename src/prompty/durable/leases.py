"""Leases: a worker may act as long as its heartbeat in the database is fresh; then others take its runs over.

A heartbeat sets when the lease expires, by the clock of the database. Before a side effect, a worker compares its own
clock with its last confirmed heartbeat: no query is needed, and a process that was suspended begins nothing. A worker
that lost its lease cancels its runs and comes back under another id. Used by `durable.dbos_engine`, whose tables are
in `durable.dbos_leases`.
"""

import asyncio
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from logging import Logger, getLogger
from typing import Protocol
from uuid import uuid4

from prompty.durable.metrics import WorkerMetrics

LEASE_SECONDS = 10.0
BEATS = 16  # in a lease
SAFE_SHARE = 0.6  # of a lease: a side effect begins only within it
GRACE_SHARE = 0.5  # of a lease: a worker that could not reach the database gives the others as long to beat again
FENCE_SECONDS = 0.05
_ID = re.compile(r"(?s)(.*)~[0-9a-f]{12}")
logger: Logger = getLogger("prompty")


class LeaseStore(Protocol):
    """The leases of all workers. Every method is one transaction, and raises if the database is away."""

    def register(self, id: str, seconds: float, /) -> None: ...

    def renew(self, id: str, seconds: float, /) -> bool:
        """Return False if the worker was declared lost."""
        ...

    def find_expiring(self, seconds: float, /) -> Mapping[str, float]:
        """Return the workers whose lease has expired, or does in so many seconds, and when."""
        ...

    def declare_lost(self, id: str, expired: float, /) -> bool:
        """End the lease of a worker if it has expired. Return False if not, or if another worker has ended it."""
        ...

    def take_over(self) -> int:
        """Queue the running workflows that belong to no worker with a lease. Return how many."""
        ...

    def release(self, id: str, /) -> None:
        """End the lease of a worker that stops, and queue its workflows."""
        ...

    def close(self) -> None: ...


class Lease:
    """The lease of this process. `on_lost` is called with the next id; executions of the last one must end."""

    def __init__(
        self, store: LeaseStore, label: str, seconds: float, metrics: WorkerMetrics, on_lost: Callable[[str], None]
    ) -> None:
        self.id: str = new_worker_id(label)
        self._metrics = metrics
        self._store, self._label, self._seconds, self._on_lost = store, label, seconds, on_lost
        self._confirmed = read_clock()  # when the last confirmed heartbeat began
        self._expiring: Mapping[str, float] = {}
        self._patient_until = 0.0
        self._is_away = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="prompty lease", daemon=True)
        self._join()
        self._thread.start()

    def is_held(self, id: str) -> bool:
        """Return True if this process still has the lease `id` and may begin a side effect."""
        return id == self.id and read_clock() - self._confirmed < SAFE_SHARE * self._seconds

    async def fence(self, id: str) -> None:
        """Return when the lease is held. While the database is away, wait. Cancel if another worker took over."""
        while not self.is_held(id):
            if id != self.id:
                raise asyncio.CancelledError("the worker lost its lease")
            await asyncio.sleep(FENCE_SECONDS)

    def release(self) -> None:
        """Stop the heartbeat, and give the workflows to other workers. Without a database, they wait for the lease."""
        self._stopping.set()
        self._thread.join()
        try:
            self._store.release(self.id)
        except Exception as error:  # whatever the database driver raises
            logger.warning("The worker '%s' could not return its lease: %s", self._label, type(error).__name__)
        self._store.close()

    def _keep(self) -> None:
        while not self._stopping.wait(self._seconds / BEATS):
            try:
                self._beat()
                self._look_after_others()
            except Exception as error:  # whatever the database driver raises
                self._wait_for_others()
                self._report_away(error)
            else:
                self._is_away = False

    def _beat(self) -> None:
        begun = read_clock()
        if begun - self._confirmed > self._seconds:
            self._wait_for_others()
        if self._store.renew(self.id, self._seconds):
            self._confirmed = begun
        else:
            self._come_back()

    def _come_back(self) -> None:
        """Go on as a new worker. Executions of the old id are cancelled, and the fence stops them until then."""
        lost = self.id
        self.id = new_worker_id(self._label)
        self._confirmed = -math.inf
        logger.warning("The worker '%s' lost its lease. Its runs continue on other workers.", lost)
        self._on_lost(self.id)
        self._join()

    def _join(self) -> None:
        begun = read_clock()
        self._store.register(self.id, self._seconds)
        self._confirmed = begun
        self._wait_for_others()

    def _wait_for_others(self) -> None:
        """Nobody could beat while the database was away: give everybody time before anybody is declared lost."""
        self._expiring = {}
        self._patient_until = read_clock() + GRACE_SHARE * self._seconds

    def _look_after_others(self) -> None:
        """Declare workers lost whose lease has expired, if it has not been renewed since the last look.

        The last look may have come just before it expired: waiting for two after it would take as long again.
        """
        if read_clock() < self._patient_until:
            return
        expiring = self._store.find_expiring(self._seconds / BEATS)
        for id, at in expiring.items():
            if self._expiring.get(id) == at and self._store.declare_lost(id, at):
                self._metrics.count("prompty.workers.lost")
        self._expiring = expiring
        if (count := self._store.take_over()) > 0:
            self._metrics.count("prompty.runs.taken_over", count)
            logger.warning("The worker '%s' queued %d runs of workers without a lease.", self._label, count)

    def _report_away(self, error: Exception) -> None:
        if not self._is_away:
            logger.warning("The worker '%s' cannot renew its lease: %s", self._label, type(error).__name__)
        self._is_away = True


def new_worker_id(label: str) -> str:
    """Return an id for one life of a worker."""
    return f"{label}~{uuid4().hex[:12]}"


def get_label(id: str) -> str:
    """Return the label of a worker, for people."""
    match = _ID.fullmatch(id)
    return match[1] if match else id


def read_clock() -> float:
    """Return seconds of a clock that also runs while the machine is suspended, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()
