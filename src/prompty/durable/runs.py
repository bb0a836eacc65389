"""Runs and their segments. Each answer to a pause starts another segment, which is a workflow of its own."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from prompty.durable.engine import Status
from prompty.durable.outcome import get_outcome
from prompty.errors import Cancelled, PromptyError
from prompty.model.event import Done, Event
from prompty.model.paused import Paused

RunState = Literal["waiting", "running", "paused", "done", "failed", "cancelled"]
Segments = list[Status]


class RunEvent(NamedTuple):
    """An event of a run. `position` counts stored events; a delta has the position of the stored event before it."""

    position: int
    event: Event


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSummary:
    """State of a run."""

    id: str
    state: RunState
    segments: int
    worker: str | None
    created: datetime
    ended: datetime | None


Summaries = list[RunSummary]


def segment_id(run_id: str, segment: int) -> str:
    """Return the workflow id of a segment. Repeating an answer leads to the same id, so it starts nothing."""
    return run_id if segment == 0 else f"{run_id}#{segment}"


def get_run_id(workflow_id: str) -> str:
    return workflow_id.partition("#")[0]


def get_segment_number(status: Status) -> int:
    return int(status.id.partition("#")[2] or 0)


def summarize_run(run_id: str, segments: Segments) -> RunSummary:
    last = segments[-1]
    state: RunState = "waiting" if last.state == "waiting" else "running"
    match get_outcome(last):
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


def find_paused_segment(segments: Segments, paused: Paused | None) -> int | None:
    """Return the position of the segment that ended with `paused`, or of the last paused one."""
    pauses = [at for at, status in enumerate(segments) if isinstance(get_outcome(status), Paused)]
    if paused is not None:
        return next((at for at in pauses if get_outcome(segments[at]) == paused), None)
    return pauses[-1] if pauses else None
