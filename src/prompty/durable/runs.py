"""Runs and their segments. Each answer to a pause starts another segment, which is a workflow of its own."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import count
from typing import NamedTuple

from prompty.durable.engine import Engine, Status
from prompty.durable.envelope import SCHEMA
from prompty.durable.outcome import QUARANTINE_REASON, RunOutcome, get_outcome
from prompty.durable.selection import Outcome, Position, RunState
from prompty.errors import Cancelled, RunRefused
from prompty.model.event import Done, Event
from prompty.model.message import Usage
from prompty.model.paused import Paused

Segments = list[Status]
Ids = list[str]
_SEGMENTS = 8  # most runs have fewer, and one query finds them


class RunEvent(NamedTuple):
    """An event of a run. `position` counts stored events; a delta has the position of the stored event before it."""

    position: int
    event: Event


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSummary:
    """State of a run. It is in this state since `since`. `reason` says why it is refused, or why no worker of this
    release takes it. Tokens and cost are known of runs that are done or paused. `cursor` is its place in the list."""

    id: str
    state: RunState
    prompt: str | None
    segments: int
    worker: str | None
    created: datetime
    since: datetime
    ended: datetime | None
    tokens: int | None = None
    cost: Decimal | None = None
    reason: str | None = None
    tenant: str | None = None
    cursor: str


Summaries = list[RunSummary]


def segment_id(run_id: str, segment: int) -> str:
    """Return the workflow id of a segment. Repeating an answer leads to the same id, so it starts nothing."""
    return run_id if segment == 0 else f"{run_id}#{segment}"


def get_run_id(workflow_id: str) -> str:
    return workflow_id.partition("#")[0]


def get_segment_number(workflow_id: str) -> int:
    return int(workflow_id.partition("#")[2] or 0)


def get_segment_ids(engine: Engine, run_id: str) -> list[str]:
    """Return the workflow ids of a run. They are asked for by name: a search by prefix would read all runs."""
    ids: list[str] = []
    for start in count(0, _SEGMENTS):
        asked = [segment_id(run_id, number) for number in range(start, start + _SEGMENTS)]
        found = {status.id for status in engine.find(asked)}
        ids += [id for id in asked if id in found]
        if len(found) < len(asked):
            break
    return ids


def summarize_run(last: Status, created: datetime, version: str) -> RunSummary:
    """Summarize a run by its last segment. Workers of this release run workflows of this `version`."""
    state: RunState = "waiting" if last.state == "waiting" else "running"
    reason = explain_version(last.version) if last.ended is None and last.version != version else None
    outcome: RunOutcome | None = None
    try:
        outcome = get_outcome(last)
    except RunRefused as error:
        state, reason = "refused", error.cause
    else:
        state = get_state(outcome) if outcome is not None else state
    if last.state == "quarantined":
        state, reason = "quarantined", QUARANTINE_REASON
    return RunSummary(
        id=get_run_id(last.id),
        state=state,
        prompt=last.prompt,
        segments=get_segment_number(last.id) + 1,
        worker=last.worker,
        created=created,
        since=last.ended or last.created,
        ended=last.ended,
        tokens=_count_tokens(outcome),
        cost=outcome.cost if isinstance(outcome, Done) else None,
        reason=reason,
        tenant=last.tenant,
        cursor=Position(round(last.created.timestamp() * 1000), last.id).to_cursor(),
    )


def get_state(outcome: RunOutcome) -> RunState:
    return get_label(outcome) or "done"


def get_label(outcome: RunOutcome) -> Outcome | None:
    """Return the label that an engine keeps of an outcome. A result has none."""
    match outcome:
        case Done():
            return None
        case Paused():
            return "paused"
        case Cancelled():
            return "cancelled"
    return "failed"


def _count_tokens(outcome: RunOutcome | None) -> int | None:
    match outcome:
        case Done():
            usage = outcome.usage
        case Paused():
            usage = Usage(**outcome.usage)  # type: ignore[arg-type]  # checked when it was read
        case _:
            return None
    counts = [count for count in (usage.input_tokens, usage.output_tokens) if count is not None]
    return sum(counts) if counts else None


def explain_version(version: str) -> str:
    """Return which worker runs a workflow of another version."""
    kind, _, schema = version.rpartition("-")
    if kind != "prompty" or not (schema.isascii() and schema.isdecimal()):
        return f"needs a worker of the application {version!r}"
    release = "a later release" if int(schema) > SCHEMA else "an earlier release"
    return f"needs a worker of {release} (schema {schema}; this one runs schema {SCHEMA})"


def find_paused_segment(segments: Segments, paused: Paused | None) -> int | None:
    """Return the position of the segment that ended with `paused`, or of the last paused one."""
    pauses = [at for at, status in enumerate(segments) if isinstance(get_outcome(status), Paused)]
    if paused is not None:
        return next((at for at in pauses if get_outcome(segments[at]) == paused), None)
    return pauses[-1] if pauses else None
