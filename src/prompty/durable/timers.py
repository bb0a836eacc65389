"""Timers of runs: a capability of an engine, for deadlines, for pauses that time out, and for notices of pauses.

A timer is a row with a moment. Every worker asks once a second for those that are due, with one query for all runs.
Used by `durable.expiry` and `durable.webhook`. The timers of DBOS databases are in `durable.dbos_timers`.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from prompty.errors import RequestError
from prompty.model.message import Json

TimerKind = Literal["deadline", "pause", "notice"]


class Timer(NamedTuple):
    """What becomes due: the deadline of a run, the end of the pause in which a workflow ended, or its notice."""

    id: str
    kind: TimerKind


class Claim(NamedTuple):
    """A timer that is due, and how often it has been claimed, with this time."""

    timer: Timer
    attempts: int


class Timers(Protocol):
    """Timers in the database of an engine. Times are seconds since 1970, by the clock of the database."""

    def read_clock(self) -> float:
        """Return the time of the database. Only the first call asks it."""
        ...

    def set(self, timer: Timer, at: float, /) -> None:
        """Set a timer, unless it is set already."""
        ...

    def claim(self, kinds: Sequence[TimerKind], limit: int, /) -> list[Claim]:
        """Return timers that are due. Each becomes due again a few seconds later, unless it is dropped: the worker that
        claimed it can die, or its run can be on its way to another state. The wait of a notice doubles each time."""
        ...

    def drop(self, timer: Timer, /) -> None: ...

    def end_waiting(self, id: str, output: Json, /) -> bool:
        """End a workflow as failed, with this output. Return False if it doesn't wait in the queue."""
        ...


@runtime_checkable
class HasTimers(Protocol):
    """An engine with timers. With a name it is a worker, which looks after them."""

    name: str | None

    @property
    def timers(self) -> Timers: ...


def get_timers(engine: object) -> Timers:
    """Return the timers of an engine. Raise RequestError if it has none."""
    if not isinstance(engine, HasTimers):
        raise RequestError(
            f"{type(engine).__name__} has no timers",
            "Leave out deadline, pause_timeout and on_pause, or use DbosEngine.",
        )
    return engine.timers
