"""What a segment comes to, as JSON: a result, a pause, or a failure."""

from dataclasses import asdict
from decimal import Decimal
from typing import Any

from prompty.durable.answers import error_from, error_to_json
from prompty.durable.engine import Status
from prompty.durable.values import opened, sealed
from prompty.errors import Cancelled, PromptyError, RunBroken, RunRefused
from prompty.model.event import Done, Event, RunCancelled, RunFailed, RunPaused
from prompty.model.message import Json
from prompty.model.paused import Paused
from prompty.model.reply import Usage
from prompty.pipeline.messages import message_from

End = Done | Paused | PromptyError


def end_to_json(end: End) -> Json:
    if isinstance(end, Paused):
        return sealed({"paused": end.to_json()})
    if isinstance(end, PromptyError):
        return sealed({"error": error_to_json(end)})
    return sealed(
        {
            "result": end.result,
            "messages": [message.to_json() for message in end.messages],
            "usage": asdict(end.usage),
            "cost": None if end.cost is None else str(end.cost),
            "iterations": end.iterations,
        }
    )


def end_of(status: Status) -> End | None:
    """What a segment came to; None while it runs."""
    if status.state in ("waiting", "running"):
        return None
    if status.state == "cancelled":
        return Cancelled("the run was cancelled")
    if status.state == "broken":
        cause = status.error or f"its worker died {status.recovered} times, so it was given up"
        return RunBroken(f"the run '{status.id}' broke: {cause}")
    place = f"the end of the run '{status.id}'"
    value: Any = opened(status.output, place)
    try:
        if "paused" in value:
            return Paused.from_json(value["paused"])
        return error_from(value["error"], place) if "error" in value else _done(value)
    except RunRefused:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RunRefused(place, f"it cannot be read: {error}") from error


def _done(value: dict[str, Any]) -> Done:
    return Done(
        result=value["result"],
        messages=tuple(message_from(message) for message in value["messages"]),
        usage=Usage(**value["usage"]),
        cost=None if value["cost"] is None else Decimal(value["cost"]),
        iterations=value["iterations"],
    )


def event_of(end: End) -> Event:
    """The event that tells of an end."""
    match end:
        case Done():
            return end
        case Paused():
            return RunPaused(end)
        case Cancelled():
            return RunCancelled(end.reason)
    return RunFailed(str(end))
