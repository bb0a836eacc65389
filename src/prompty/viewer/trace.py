"""Find and read recorded traces, and add up their tokens and costs.

A trace is a file of start and end events, one in each line. That of a run in progress, or of a killed process, has
spans without an end.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from prompty.errors import PromptyError
from prompty.model.agent import Model, PromptAgent
from prompty.model.citation import describe_source, parse_citations, parse_provider_calls
from prompty.model.message import Json, Reply, Usage
from prompty.pricing import get_pricer
from prompty.safety.html import Row, write_table
from prompty.safety.json import read_deep_json
from prompty.tracing import names

Price = Callable[[Reply], Decimal | None]
FrameStatus = Literal["ok", "failed", "unfinished"]

MODEL_CALL = "execute"
TOOL_CALL = "execute_tool"
_MAX_LEVELS = 100
MOST_FRAMES = 200  # in a notebook's table
_TOO_DEEP = f"… (nested deeper than {_MAX_LEVELS} levels)"
_EARLIEST = datetime.min.replace(tzinfo=UTC)
MAX_BYTES = 256 * 1024 * 1024
_TIMESTAMP = re.compile(r"\.(\d{8}\.\d{6})(?=\D|$)")
_RECORD_AGAIN = "Copy the original file again, or record the run again."
_PRICE_LIST_NAMES = {"azure.ai.openai": "azure"}  # by the name in telemetry


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
class RecordedTrace:
    """The frames of one file, at least one."""

    path: Path
    runtime: str
    frames: list[Frame]

    def __repr__(self) -> str:
        return f"<RecordedTrace {self.path.name!r}, {len(self.frames)} spans>"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        counted = [
            f"{count:,} {noun}{'' if count == 1 else 's'}"
            for noun, count in (("model call", self.count(MODEL_CALL)), ("tool call", self.count(TOOL_CALL)))
        ]
        rows = [(self.path.name, " · ".join(counted)), *map(_describe_frame, self.frames[:MOST_FRAMES])]
        left = len(self.frames) - MOST_FRAMES
        return write_table([*rows, ("…", f"{left:,} more spans" if left > 0 else "")])

    @property
    def root(self) -> Frame:
        return self.frames[0]

    def count(self, name: str) -> int:
        return sum(frame.name == name for frame in self.frames)


def _describe_frame(frame: Frame) -> Row:
    error = (frame.error or {}).get("message", "")
    status = "" if frame.status == "ok" else f"{frame.status} {error}".strip()
    facts = (format_duration(frame.duration), format_tokens(frame.usage), format_cost(frame), status)
    return "  " * min(frame.depth, 20) + frame.title, " · ".join(filter(None, facts))


def find_cached_shares(trace: RecordedTrace) -> dict[str, float]:
    """Return the share of the input that providers read from their caches, by prompt and version."""
    usages: dict[str, Usage] = {}
    for frame in trace.frames:
        version = str(frame.attributes.get(names.PROMPT_VERSION) or "")
        if frame.name == MODEL_CALL and version:
            name = f"{frame.attributes.get(names.PROMPT_NAME) or 'prompt'}@{version[:8]}"
            read, total = frame.usage.get("cache_read_tokens"), frame.usage.get("input_tokens")
            usages[name] = usages.get(name, Usage()) + Usage(input_tokens=total, cache_read_tokens=read)
    return {name: usage.cached_share for name, usage in usages.items() if usage.cached_share is not None}


def _flatten(roots: list[Json]) -> list[Frame]:
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
    children: list[Json] = fields["__frames"]  # type: ignore[assignment]  # `_build_trees` has made it
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
    for done in parse_provider_calls(message.get("providerCalls")):
        yield from _format_value(f"provider ran {done.tool}, {done.status}", done.error or done.input)
    for citation in parse_citations(message.get("citations")):
        yield from _format_value("source", describe_source(citation))


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


def find_traces(folder: str | Path) -> list[Path]:
    """Return the traces in a folder, newest first. The names of other files have no time."""
    files = [file for file in Path(folder).glob("*.jsonl") if file.is_file() and _TIMESTAMP.search(file.stem)]
    return sorted(files, key=_get_time, reverse=True)


def _get_time(file: Path) -> tuple[str, int, str]:
    """Return a sort key: first the time in the name, because copying a file changes its own times."""
    stamp = _TIMESTAMP.search(file.stem)
    return stamp[1] if stamp else "", file.stat().st_mtime_ns, file.name


def read_trace(path: str | Path) -> RecordedTrace:
    """Read one trace, finished or not: a file, or the newest one in a folder."""
    file = Path(path)
    if file.is_dir() and (traces := find_traces(file)):
        file = traces[0]
    data = _read_bytes(file)
    header, roots = _parse_events(file, data)
    frames = _flatten(roots)
    _add_usage(frames)
    _add_costs(frames)
    runtime = f"{header.get('runtime', 'unknown')} {header.get('version', '')}".strip()
    return RecordedTrace(path=file, runtime=runtime, frames=frames)


def _read_bytes(file: Path) -> bytes:
    try:
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise TraceUnreadable(
                str(file),
                f"the trace has {size / 1e6:,.0f} MB, but the limit is {MAX_BYTES / 1e6:,.0f} MB",
                "Record less: trace without content, or only one turn.",
            )
        return file.read_bytes()
    except OSError as error:
        raise TraceUnreadable(
            str(file), f"the file cannot be read: {error.strerror}", "Name a .jsonl file that exists."
        ) from error


def _parse_events(file: Path, data: bytes) -> tuple[Json, list[Json]]:
    header, *events = _read_lines(file, data)
    if header.get("lines") != 1:
        raise TraceUnreadable(
            f"{file}:1", "this is not a trace of a known version: `lines` is not 1", "Update prompty, or name a trace."
        )
    roots = _build_trees(events)
    if not roots:
        raise TraceUnreadable(str(file), "no span has started in this trace yet", "Try again when the run has started.")
    return header, roots


def _read_lines(file: Path, data: bytes) -> list[Json]:
    """Parse each line. A last line that a crash truncated is ignored."""
    lines = data.rstrip(b"\n").split(b"\n")
    events: list[Json] = []
    for number, line in enumerate(lines, 1):
        try:
            event = read_deep_json(line)
        except ValueError as error:
            if number == len(lines) > 1:
                break
            raise TraceUnreadable(f"{file}:{number}", f"the line is damaged: {error}", _RECORD_AGAIN) from error
        if not isinstance(event, dict):
            raise TraceUnreadable(f"{file}:{number}", "the line is not a JSON object", _RECORD_AGAIN)
        events.append(event)
    return events


def _build_trees(events: list[Json]) -> list[Json]:
    """Return the started frames as trees, merged with the fields of their ends."""
    known: dict[object, Json] = {}
    roots: list[Json] = []
    for event in events:
        start, end = event.get("start"), event.get("end")
        if isinstance(start, dict):
            frame: Json = {**start, "__frames": []}
            siblings = known.get(_key(start.get("parent")), {}).get("__frames", roots)
            siblings.append(frame)  # type: ignore[attr-defined]  # a list: made one line above, for every frame
            known[_key(start.get("id"))] = frame
        elif isinstance(end, dict) and (ended := known.get(_key(end.get("id")))) is not None:
            ended.update(_merge_end(ended, end))
    return roots


def _key(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _merge_end(frame: Json, end: Json) -> Json:
    """Return the fields that an end adds to its start: attributes and times are merged, others replaced."""
    added = {name: value for name, value in end.items() if name not in ("id", "parent", "__frames")}
    for name in ("attributes", "__time"):
        before, after = frame.get(name), added.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            added[name] = {**before, **after}
    return added


def _add_usage(frames: list[Frame]) -> None:
    """Fill in missing token counts: from the attributes of a model call, or as the sum of the frames below."""
    sums: list[dict[str, int]] = [{} for _ in frames]
    for position in reversed(range(len(frames))):
        frame = frames[position]
        frame.usage = frame.usage or _parse_usage(frame) or sums[position]
        if frame.parent is not None:
            above = sums[frame.parent]
            above.update({name: above.get(name, 0) + count for name, count in frame.usage.items()})


def _parse_usage(frame: Frame) -> dict[str, int]:
    if frame.name != MODEL_CALL:
        return {}
    counts = {name: frame.attributes.get(key) for name, key in names.USAGE.items()}
    return {name: count for name, count in counts.items() if isinstance(count, int) and not isinstance(count, bool)}


def _add_costs(frames: list[Frame]) -> None:
    """Price the model calls and add up the costs. A sum is partial if the price of a call is unknown.

    Traces are priced when they are read, because price lists change.
    """
    get_price = cache(_get_price)
    for frame in reversed(frames):
        if frame.name == MODEL_CALL:
            if (cost := _get_cost(frame, get_price)) is not None:
                frame.cost = cost
            frame.cost_is_partial = frame.cost is None and frame.error is None
        if frame.parent is not None:
            parent = frames[frame.parent]
            parent.cost_is_partial = parent.cost_is_partial or frame.cost_is_partial
            if frame.cost is not None:
                parent.cost = frame.cost + (parent.cost or Decimal(0))


def _get_cost(frame: Frame, get_price: Callable[[str, str], Price]) -> Decimal | None:
    provider = str(frame.attributes.get(names.PROVIDER_NAME) or "")
    tokens: dict[str, Any] = {name: count for name, count in frame.usage.items() if name in names.USAGE}
    requests = {
        name.removeprefix(names.REQUESTS_PREFIX): count if type(count) is int else None
        for name, count in frame.attributes.items()
        if name.startswith(names.REQUESTS_PREFIX)
    }
    usage = Usage(**tokens, requests=requests)
    for attribute in (names.RESPONSE_MODEL, names.REQUEST_MODEL):
        model = str(frame.attributes.get(attribute) or "")
        if provider and model:
            cost = get_price(_PRICE_LIST_NAMES.get(provider, provider), model)(Reply(usage=usage))
            if cost is not None:
                return cost
    return None


def _get_price(provider: str, model: str) -> Price:
    return get_pricer(PromptAgent(model=Model(id=model, provider=provider)), required=False)
