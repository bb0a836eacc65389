"""Outcome of a segment, and its stored form: a result, a pause or an error.

A result is stored without its messages: they are in the steps, and `durable.replay` puts them together. The database
would hold each conversation twice.
"""

from decimal import Decimal
from typing import Any

from prompty.durable.codec import error_from, error_to_json
from prompty.durable.engine import Status
from prompty.durable.envelope import seal, unseal
from prompty.errors import Cancelled, PromptyError, RunBroken, RunRefused
from prompty.model.event import Done, Event, RunCancelled, RunFailed, RunPaused
from prompty.model.message import Json, Usage
from prompty.model.paused import Paused

QUARANTINE_REASON = "its workers died one after the other while they executed it"
RunOutcome = Done | Paused | PromptyError


def outcome_to_json(outcome: RunOutcome) -> Json:
    if isinstance(outcome, Paused):
        return seal({"paused": outcome.to_json()})
    if isinstance(outcome, PromptyError):
        return seal({"error": error_to_json(outcome)})
    return seal(
        {
            "result": outcome.result,
            "usage": outcome.usage.to_json(),
            "cost": None if outcome.cost is None else str(outcome.cost),
            "iterations": outcome.iterations,
        }
    )


def get_outcome(status: Status) -> RunOutcome | None:
    """Return the outcome of a segment, or None while it is queued or running."""
    if status.state in ("waiting", "running"):
        return None
    if status.state == "cancelled":
        return Cancelled("the run was cancelled")
    if status.state == "quarantined":
        return RunBroken(f"the run '{status.id}' is quarantined: {QUARANTINE_REASON}\n    Find out why, then retry it.")
    if status.state == "broken":
        return RunBroken(f"the run '{status.id}' broke: {status.error}")
    place = f"the outcome of the run '{status.id}'"
    value: Any = unseal(status.output, place)
    try:
        if "paused" in value:
            return Paused.from_json(value["paused"])
        return error_from(value["error"], place) if "error" in value else _done_from(value)
    except RunRefused:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RunRefused(place, f"it cannot be read: {error}") from error


def _done_from(value: dict[str, Any]) -> Done:
    return Done(
        result=value["result"],
        messages=(),
        usage=Usage(**value["usage"]),
        cost=None if value["cost"] is None else Decimal(value["cost"]),
        iterations=value["iterations"],
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
