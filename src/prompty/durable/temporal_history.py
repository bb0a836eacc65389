"""Reads the history of a workflow of Temporal: its record, its finished steps and its end.

The history is the only storage of a run. A step is an activity whose input has its name. Messages are signals; how many
of them a `receive` took is in the memo. Used by `durable.temporal_engine`.
"""

import json
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any, NamedTuple

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent

from prompty.durable.engine import StoredExecution, StoredStep
from prompty.errors import RunRefused
from prompty.model.message import Json

ENCODING = b"json/plain"
STEP, EFFECT, REPEATED = "step", "effect", "repeated"  # keys of the input of an activity
RECEIVED = "received"  # key of the memo
CANCELLED = "cancelled by prompty"  # reason of a termination


class Ending(NamedTuple):
    """How a workflow ended."""

    output: object = None
    error: str | None = None
    is_cancelled: bool = False


class Head(NamedTuple):
    """How a workflow began. It has a worker as soon as one has taken it."""

    record: object
    worker: str | None


def encode(value: object) -> Payload:
    """Return a value as JSON, which every SDK of Temporal reads. The keys stay in their order."""
    return Payload(metadata={"encoding": ENCODING}, data=json.dumps(value, separators=(",", ":")).encode())


def decode(payload: Payload) -> Any:
    """Return the value of a payload. Other encodings are refused unread: they come from others."""
    encoding = payload.metadata["encoding"]
    if encoding != ENCODING:
        raise RunRefused("a value in the history of Temporal", f"its encoding is {encoding.decode(errors='replace')!r}")
    try:
        return json.loads(payload.data)
    except ValueError as error:
        raise RunRefused("a value in the history of Temporal", f"it is not JSON: {error}") from None


async def read_head(events: AsyncIterable[HistoryEvent]) -> Head:
    """Read as far as the first worker."""
    record: object = None
    async for event in events:
        match event.WhichOneof("attributes"):
            case "workflow_execution_started_event_attributes":
                record = _decode_first(event.workflow_execution_started_event_attributes.input.payloads)
            case "workflow_task_started_event_attributes":
                return Head(record, event.workflow_task_started_event_attributes.identity)
    return Head(record, None)


async def read_execution(events: AsyncIterable[HistoryEvent]) -> StoredExecution:
    """Read the record and the finished steps, in the order in which they started."""
    record: Json = {}
    names: dict[int, str] = {}  # by the event that scheduled them
    results: dict[int, object] = {}
    texts: list[str] = []
    drains = taken = 0
    async for event in events:
        match event.WhichOneof("attributes"):
            case "workflow_execution_started_event_attributes":
                record = _decode_first(event.workflow_execution_started_event_attributes.input.payloads)
            case "workflow_execution_signaled_event_attributes":
                texts.append(str(_decode_first(event.workflow_execution_signaled_event_attributes.input.payloads)))
            case "activity_task_scheduled_event_attributes":
                call = _decode_first(event.activity_task_scheduled_event_attributes.input.payloads)
                names[event.event_id] = call[STEP]
            case "activity_task_completed_event_attributes":
                completed = event.activity_task_completed_event_attributes
                results[completed.scheduled_event_id] = _decode_first(completed.result.payloads)
            case "workflow_properties_modified_event_attributes":
                memo = event.workflow_properties_modified_event_attributes.upserted_memo.fields
                if RECEIVED in memo:
                    drains, count = drains + 1, decode(memo[RECEIVED])
                    names[event.event_id] = f"received:{drains}"
                    results[event.event_id] = texts[taken : taken + count]
                    taken += count
    return StoredExecution(record, [StoredStep(names[id], results[id]) for id in sorted(results)])


def read_ending(event: HistoryEvent) -> Ending:
    """Read the last event of a workflow that has ended."""
    match event.WhichOneof("attributes"):
        case "workflow_execution_completed_event_attributes":
            return Ending(output=_decode_first(event.workflow_execution_completed_event_attributes.result.payloads))
        case "workflow_execution_failed_event_attributes":
            return Ending(error=event.workflow_execution_failed_event_attributes.failure.message)
        case "workflow_execution_canceled_event_attributes":
            return Ending(is_cancelled=True)
        case "workflow_execution_terminated_event_attributes":
            reason = event.workflow_execution_terminated_event_attributes.reason
            return Ending(is_cancelled=True) if reason == CANCELLED else Ending(error=f"it was terminated: {reason}")
    return Ending(error=f"it ended with {event.WhichOneof('attributes')}")


def read_memo(fields: Mapping[str, Payload], key: str) -> object:
    return decode(fields[key]) if key in fields else None


def _decode_first(payloads: Iterable[Payload]) -> Any:
    return next((decode(payload) for payload in payloads), None)
