"""Runs and their segments: a run that was paused and answered goes on in another workflow of the engine."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from prompty.durable.ends import end_of
from prompty.durable.engine import Status
from prompty.errors import Cancelled, PromptyError
from prompty.model.event import Done, Event
from prompty.model.paused import Paused

RunState = Literal["waiting", "running", "paused", "done", "failed", "cancelled"]
Segments = list[Status]


class RunEvent(NamedTuple):
    """Something that happened in a run. `position` counts what a run keeps; words of a model have the position of what
    was before them."""

    position: int
    event: Event


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSummary:
    """How a run stands."""

    id: str
    state: RunState
    segments: int
    worker: str | None
    created: datetime
    ended: datetime | None


Summaries = list[RunSummary]


def segment_id(run_id: str, segment: int) -> str:
    """The workflow of a segment. The same answer leads to the same one, so giving it twice starts it once."""
    return run_id if segment == 0 else f"{run_id}#{segment}"


def run_of(id: str) -> str:
    """The run that a workflow belongs to."""
    return id.partition("#")[0]


def number_of(status: Status) -> int:
    """Which segment a workflow is."""
    return int(status.id.partition("#")[2] or 0)


def summary_of(run_id: str, segments: Segments) -> RunSummary:
    """How a run stands, by its segments."""
    last = segments[-1]
    end = end_of(last)
    state: RunState = "waiting" if last.state == "waiting" else "running"
    match end:
        case Done():
            state = "done"
        case Paused():
            state = "paused"
        case Cancelled():
            state = "cancelled"
        case PromptyError():
            state = "failed"
    created, worker = segments[0].created, last.worker
    return RunSummary(id=run_id, state=state, segments=len(segments), worker=worker, created=created, ended=last.ended)


def answered_segment(segments: Segments, paused: Paused | None) -> int | None:
    """Which pause an answer is to: the one that was given, else the last one."""
    pauses = [at for at, status in enumerate(segments) if isinstance(end_of(status), Paused)]
    if paused is not None:
        return next((at for at in pauses if end_of(segments[at]) == paused), None)
    return pauses[-1] if pauses else None
