"""Outcome of a segment, and its stored form: a result, a pause or an error.

A result is stored without its messages: they are in the steps, and `durable.replay` puts them together. The database
would hold each conversation twice.
"""

from decimal import Decimal
from typing import Any

from dbos import PortableWorkflowError, WorkflowStatus

from prompty.durable.codec import error_from
from prompty.durable.envelope import seal, unseal
from prompty.durable.record import Record, record_from
from prompty.errors import Cancelled, PromptyError, RunBroken, RunRefused
from prompty.model.citation import parse_citations, parse_provider_calls
from prompty.model.event import Done, Event, RunCancelled, RunFailed, RunPaused
from prompty.model.message import Json, Usage
from prompty.model.paused import Paused

QUARANTINE = "prompty-quarantine"  # a queue that nobody listens to
QUARANTINE_REASON = "its workers died one after the other while they executed it"
RunOutcome = Done | Paused | PromptyError


def outcome_to_json(outcome: Done | Paused) -> Json:
    if isinstance(outcome, Paused):
        return seal({"paused": outcome.to_json()})
    return seal(
        {
            "result": outcome.result,
            "usage": outcome.usage.to_json(),
            "cost": None if outcome.cost is None else str(outcome.cost),
            "iterations": outcome.iterations,
            "citations": [citation.to_json() for citation in outcome.citations],
            "provider_calls": [call.to_json() for call in outcome.provider_calls],
        }
    )


def read_record(status: WorkflowStatus) -> Record:
    """Return the record of a workflow, which must have been loaded with its input."""
    arguments: Any = status.input
    stored = arguments["args"][0] if isinstance(arguments, dict) and arguments.get("args") else None
    return record_from(stored, f"the record of the run '{status.workflow_id}'")


def get_outcome(status: WorkflowStatus) -> RunOutcome | None:
    """Return the outcome of a segment, or None while it waits or runs. It must have been loaded."""
    match status.status:
        case "ENQUEUED" if status.queue_name == QUARANTINE:
            return _quarantined(status)
        case "ENQUEUED" | "PENDING" | "DELAYED":
            return None
        case "CANCELLED":
            return Cancelled("the run was cancelled")
        case "SUCCESS":
            return _read_output(status)
        case "ERROR":
            return _read_error(status)
    return _quarantined(status)


def _quarantined(status: WorkflowStatus) -> RunBroken:
    id = status.workflow_id
    return RunBroken(f"the run '{id}' is quarantined: {QUARANTINE_REASON}\n    Find out why, then retry it.")


def _read_output(status: WorkflowStatus) -> RunOutcome:
    place = f"the outcome of the run '{status.workflow_id}'"
    value: Any = unseal(status.output, place)
    try:
        return Paused.from_json(value["paused"]) if "paused" in value else _done_from(value)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RunRefused(place, f"it cannot be read: {error}") from error


def _read_error(status: WorkflowStatus) -> PromptyError:
    error: Any = status.error
    if isinstance(error, PortableWorkflowError) and error.data:
        return error_from(error.data, f"the outcome of the run '{status.workflow_id}'")
    # DBOS returns an error that it cannot decode as the raw text.
    cause = "its row is not JSON, may be a pickle, and was not read" if isinstance(error, str) else str(error)
    return RunBroken(f"the run '{status.workflow_id}' broke: {cause}")


def _done_from(value: dict[str, Any]) -> Done:
    return Done(
        result=value["result"],
        messages=(),
        usage=Usage(**value["usage"]),
        cost=None if value["cost"] is None else Decimal(value["cost"]),
        iterations=value["iterations"],
        citations=parse_citations(value["citations"]),
        provider_calls=parse_provider_calls(value["provider_calls"]),
    )


def get_final_event(outcome: RunOutcome) -> Event:
    match outcome:
        case Done():
            return outcome
        case Paused():
            return RunPaused(outcome)
        case Cancelled():
            return RunCancelled(outcome.reason)
    return RunFailed(str(outcome))
