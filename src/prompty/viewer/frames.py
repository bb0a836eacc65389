"""From the objects of a file to frames. A file may hold anything, so nothing in it is trusted to have its type."""

from datetime import UTC, datetime
from math import isfinite

from prompty.model.message import Json
from prompty.viewer.trace import Frame

_LEVELS = 100
_TOO_DEEP = f"… (nested deeper than {_LEVELS} levels)"
_EARLIEST = datetime.min.replace(tzinfo=UTC)


def flatten(roots: list[Json]) -> list[Frame]:
    """The frames of trees, parents before children, siblings in the order they started."""
    waiting: list[tuple[Json, int | None, int]] = [(root, None, 0) for root in reversed(roots)]
    frames: list[Frame] = []
    taken: set[str] = set()
    while waiting:
        fields, parent, depth = waiting.pop()
        position = len(frames)
        frame = _frame(fields, parent, depth)
        if not frame.id or frame.id in taken:
            frame.id = f"{frame.id}-{position}"
        taken.add(frame.id)
        frames.append(frame)
        waiting += [(child, position, depth + 1) for child in reversed(_children(fields))]
    return frames


def _children(fields: Json) -> list[Json]:
    listed = fields.get("__frames")
    children = [child for child in listed if isinstance(child, dict)] if isinstance(listed, list) else []
    return sorted(children, key=lambda child: _moment(_object(child.get("__time")).get("start")) or _EARLIEST)


def _frame(fields: Json, parent: int | None, depth: int) -> Frame:
    time = _object(fields.get("__time"))
    start, end = _moment(time.get("start")), _moment(time.get("end"))
    name = str(fields.get("name") or "unnamed")
    return Frame(
        id=str(fields.get("id") or ""),
        name=name,
        title=str(fields.get("title") or name),
        parent=parent,
        depth=depth,
        start=start,
        duration=_duration(time.get("duration"), start, end),
        finished=end is not None or _is_number(time.get("duration")),
        signature=str(fields.get("signature") or ""),
        attributes=_object(bounded(fields.get("attributes"))),
        content={key: bounded(fields[key]) for key in ("inputs", "result", "wire") if key in fields},
        error=_error(fields.get("error")),
        usage=_counts(fields.get("__usage")),
    )


def bounded(value: object, levels: int = _LEVELS) -> object:
    """A value that can be written as JSON again and drawn: not endlessly deep, no infinite numbers."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        return _TOO_DEEP
    if isinstance(value, dict):
        return {key: bounded(one, levels - 1) for key, one in value.items()}
    return [bounded(one, levels - 1) for one in value]


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _moment(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def _duration(value: object, start: datetime | None, end: datetime | None) -> float | None:
    """Milliseconds, as recorded or between the times."""
    if isinstance(value, int | float) and _is_number(value):
        return max(0.0, float(value))
    return max(0.0, (end - start).total_seconds() * 1000) if start and end else None


def _error(value: object) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        return {"type": "Error", "message": str(bounded(value))}
    return {"type": str(bounded(value.get("type", "Error"))), "message": str(bounded(value.get("message", "")))}


def _counts(value: object) -> dict[str, int]:
    return {name: count for name, count in _object(value).items() if isinstance(count, int) and _is_number(count)}
