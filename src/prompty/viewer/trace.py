"""A recorded trace in memory: frames in tree order, parents before children.

The list is flat, because a trace can be deeper than recursion allows. A file can contain anything, so the type of every
value is checked.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Literal

from prompty.errors import PromptyError
from prompty.model.message import Json
from prompty.model.notebook import NotebookView

FrameStatus = Literal["ok", "failed", "unfinished"]

MODEL_CALL = "execute"
TOOL_CALL = "execute_tool"
_MAX_LEVELS = 100
_TOO_DEEP = f"… (nested deeper than {_MAX_LEVELS} levels)"
_EARLIEST = datetime.min.replace(tzinfo=UTC)


class TraceUnreadable(PromptyError, ValueError):
    """A recorded trace is missing or invalid. `place` is the file, with the line if it is known."""

    def __init__(self, place: str, cause: str, fix: str) -> None:
        super().__init__(f"{place}: {cause}\n    {fix}")
        self.place = place
        self.cause = cause
        self.fix = fix


@dataclass(kw_only=True, slots=True)
class Frame:
    """One span. `parent` is a position in the list of frames; `usage` and `cost` include the frames below."""

    id: str
    name: str
    title: str
    parent: int | None = None
    depth: int = 0
    start: datetime | None = None
    duration: float | None = None
    finished: bool = True
    signature: str = ""
    attributes: Json = field(default_factory=dict)
    content: Json = field(default_factory=dict)
    """`inputs`, `result` and `wire`, if they were recorded."""
    error: dict[str, str] | None = None
    usage: dict[str, int] = field(default_factory=dict)
    cost: Decimal | None = None
    cost_is_partial: bool = False

    @property
    def status(self) -> FrameStatus:
        if self.error is not None:
            return "failed"
        return "ok" if self.finished else "unfinished"


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RecordedTrace(NotebookView):
    """The frames of one file, at least one."""

    path: Path
    runtime: str
    frames: list[Frame]

    def __repr__(self) -> str:
        return f"<RecordedTrace {self.path.name!r}, {len(self.frames)} spans>"

    @property
    def root(self) -> Frame:
        return self.frames[0]

    def count(self, name: str) -> int:
        return sum(frame.name == name for frame in self.frames)


def flatten(roots: list[Json]) -> list[Frame]:
    """Return the frames of these trees, parents before children, siblings by start time."""
    pending: list[tuple[Json, int | None, int]] = [(root, None, 0) for root in reversed(roots)]
    frames: list[Frame] = []
    ids: set[str] = set()
    while pending:
        fields, parent, depth = pending.pop()
        position = len(frames)
        frame = _parse_frame(fields, parent, depth)
        if not frame.id or frame.id in ids:
            frame.id = f"{frame.id}-{position}"
        ids.add(frame.id)
        frames.append(frame)
        pending += [(child, position, depth + 1) for child in reversed(_get_children(fields))]
    return frames


def _get_children(fields: Json) -> list[Json]:
    frames = fields.get("__frames")
    children = [child for child in frames if isinstance(child, dict)] if isinstance(frames, list) else []
    return sorted(
        children, key=lambda child: _parse_time(object_or_empty(child.get("__time")).get("start")) or _EARLIEST
    )


def _parse_frame(fields: Json, parent: int | None, depth: int) -> Frame:
    time = object_or_empty(fields.get("__time"))
    start, end = _parse_time(time.get("start")), _parse_time(time.get("end"))
    name = str(fields.get("name") or "unnamed")
    return Frame(
        id=str(fields.get("id") or ""),
        name=name,
        title=str(fields.get("title") or name),
        parent=parent,
        depth=depth,
        start=start,
        duration=_parse_duration(time.get("duration"), start, end),
        finished=end is not None or _is_number(time.get("duration")),
        signature=str(fields.get("signature") or ""),
        attributes=object_or_empty(_limit(fields.get("attributes"))),
        content={key: _limit(fields[key]) for key in ("inputs", "result", "wire") if key in fields},
        error=_parse_error(fields.get("error")),
        usage=_parse_counts(fields.get("__usage")),
    )


def _limit(value: object, levels: int = _MAX_LEVELS) -> object:
    """Return the value without infinite numbers and truncated below `levels`, so that it can be written as JSON."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        return _TOO_DEEP
    if isinstance(value, dict):
        return {key: _limit(item, levels - 1) for key, item in value.items()}
    return [_limit(item, levels - 1) for item in value]


def object_or_empty(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _parse_time(value: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return time.replace(tzinfo=UTC) if time and time.tzinfo is None else time


def _parse_duration(value: object, start: datetime | None, end: datetime | None) -> float | None:
    """Return milliseconds, as recorded or computed from start and end."""
    if isinstance(value, int | float) and _is_number(value):
        return max(0.0, float(value))
    return max(0.0, (end - start).total_seconds() * 1000) if start and end else None


def _parse_error(value: object) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        return {"type": "Error", "message": str(_limit(value))}
    return {"type": str(_limit(value.get("type", "Error"))), "message": str(_limit(value.get("message", "")))}


def _parse_counts(value: object) -> dict[str, int]:
    return {
        name: count for name, count in object_or_empty(value).items() if isinstance(count, int) and _is_number(count)
    }


def format_transcript(frame: Frame) -> Iterator[str]:
    content = frame.content
    inputs = content.get("inputs")
    messages = inputs.get("messages") if isinstance(inputs, dict) else None
    if isinstance(messages, list) and messages and all(map(_is_message, messages)):
        for message in messages:
            yield from _format_message(message)
    elif "inputs" in content:
        yield from _format_value("arguments" if frame.name == TOOL_CALL else "inputs", inputs)
    if "result" in content:
        result = content["result"]
        yield from _format_message(result) if _is_message(result) else _format_value("result", result)


def _is_message(value: object) -> bool:
    role, content = object_or_empty(value).get("role"), object_or_empty(value).get("content")
    return isinstance(role, str) and isinstance(content, str | list)


def _format_message(value: object) -> Iterator[str]:
    message = object_or_empty(value)
    role, content, calls = str(message.get("role")), message.get("content"), message.get("tool_calls")
    if reasoning := message.get("reasoning"):
        yield from _format_value("reasoning", reasoning)
    for part in content if isinstance(content, list) else [{"kind": "text", "value": content}]:
        yield from _format_value(role, _format_part(object_or_empty(part)))
    for call in calls if isinstance(calls, list) else []:
        function = object_or_empty(object_or_empty(call).get("function"))
        yield f"{role} calls {function.get('name')}: {function.get('arguments')}"


def _format_part(part: Json) -> object:
    if part.get("kind") == "text":
        return part.get("value")
    size = len(str(part.get("value") or ""))
    return f"[{part.get('kind')} {part.get('name') or part.get('mediaType') or ''}, {size:,} characters]"


def _format_value(name: str, value: object) -> Iterator[str]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    first, *rest = text.split("\n")
    yield f"{name}: {first}"
    yield from (f"    {line}" for line in rest)


def format_duration(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "did not finish"
    if milliseconds < 1:
        return f"{milliseconds:.2f} ms"
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 59_950:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {seconds:02} s"


def format_tokens(usage: dict[str, int]) -> str:
    """Format input and output tokens like `1,204 → 56`. Return "" if none were counted."""
    if not usage:
        return ""
    return f"{usage.get('input_tokens', 0):,} → {usage.get('output_tokens', 0):,}"


def format_cost(frame: Frame) -> str:
    """Format dollars, with `≥` if a price is unknown. Return "" if all are unknown."""
    if frame.cost is None:
        return ""
    cost = frame.cost
    decimals = 2 if cost >= 1 or cost == 0 else max(2, 1 - cost.adjusted())  # two significant digits of a small sum
    return f"{'≥ ' if frame.cost_is_partial else ''}${cost:.{decimals}f}"
