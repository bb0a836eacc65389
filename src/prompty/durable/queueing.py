"""The queue of runs that wait for a worker: a capability of an engine.

It has a limit, so that a submitter learns early that workers cannot keep up. A run of low priority rises while it
waits, so that a stream of urgent runs does not starve it. Used by `durable.runtime`. The queries for DBOS are in
`durable.dbos_queue`.
"""

from typing import Protocol, runtime_checkable

from prompty.durable.engine import Engine, lacks
from prompty.errors import QueueFull
from prompty.model.message import Json

AGEING_SECONDS = 60.0  # of waiting, after which a run goes before those of the priority above
LOOK_SECONDS = 15.0


@runtime_checkable
class HasQueue(Protocol):
    """An engine with a queue in which workflows have their places."""

    def enqueue(
        self, id: str, record: Json, /, *, prompt: str = "", priority: int | None = None, tenant: str | None = None
    ) -> None:
        """Like `Engine.start`. The smallest priority goes first, and each tenant has a queue of its own. A worker
        starts what has no tenant at once."""
        ...

    def count_waiting(self, most: int | None = None, /) -> int:
        """Return how many workflows wait for a worker, but count no further than `most`."""
        ...

    def raise_priorities(self, seconds: float, /) -> None:
        """Raise the priority of waiting workflows by one for every so many seconds since they were queued."""
        ...


def check_room(engine: Engine, most: int, run_id: str) -> None:
    """Raise QueueFull if so many runs wait already, unless this run is one of those that exist."""
    if not isinstance(engine, HasQueue):
        raise lacks(engine, "count what waits", "Leave out max_waiting.")
    if engine.count_waiting(most) >= most and engine.status(run_id) is None:
        raise QueueFull(engine.count_waiting(), most)
