"""Find and read recorded traces, and add up their tokens and costs.

A finished trace is one JSON document (`.tracy`). The trace of a run in progress, or of a killed process, is a list of
start and end events (`.jsonl`). Both become the same list of frames.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path

from prompty.model.agent import Model, PromptAgent
from prompty.model.message import Json, Usage
from prompty.model.reply import Reply
from prompty.pricing import get_pricer
from prompty.safety.json import read_deep_json
from prompty.viewer.trace import MODEL_CALL, Frame, RecordedTrace, TraceUnreadable, flatten

MAX_BYTES = 256 * 1024 * 1024
_TIMESTAMP = re.compile(r"\.(\d{8}\.\d{6})(?=\D|$)")
_RECORD_AGAIN = "Copy the original file again, or record the run again."
_USAGE_ATTRIBUTES = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
    "cache_write_1h_tokens": "prompty.usage.cache_creation_1h.input_tokens",
}
_PRICE_LIST_NAMES = {"azure.ai.openai": "azure"}  # by the name in telemetry


def find_traces(folder: str | Path) -> list[Path]:
    """Return the traces in a folder, newest first. If a run has both files, return only the finished one."""
    files = [file for file in Path(folder).iterdir() if file.is_file()]
    finished = [file for file in files if file.suffix == ".tracy"]
    stems = {file.stem for file in finished}
    running = [file for file in files if file.suffix == ".jsonl" and _TIMESTAMP.search(file.stem)]
    return sorted([*finished, *(file for file in running if file.stem not in stems)], key=_get_time, reverse=True)


def _get_time(file: Path) -> tuple[str, int, str]:
    """Return a sort key: the time in the name, because copying a file changes its own times."""
    stat = file.stat()
    stamp = _TIMESTAMP.search(file.stem)
    local = datetime.fromtimestamp(stat.st_mtime, UTC).astimezone()
    return (stamp[1] if stamp else f"{local:%Y%m%d.%H%M%S}", stat.st_mtime_ns, file.name)


def read_trace(path: str | Path) -> RecordedTrace:
    """Read one trace, finished or not."""
    file = Path(path)
    data = _read_bytes(file)
    header, roots = _parse_events(file, data) if file.suffix == ".jsonl" else _parse_document(file, data)
    frames = flatten(roots)
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
            str(file), f"the file cannot be read: {error.strerror}", "Name a .tracy or .jsonl file that exists."
        ) from error


def _parse_document(file: Path, data: bytes) -> tuple[Json, list[Json]]:
    try:
        document = read_deep_json(data)
    except ValueError as error:
        raise TraceUnreadable(str(file), f"the trace is damaged: {error}", _RECORD_AGAIN) from error
    root = document.get("trace") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(root, dict):
        raise TraceUnreadable(
            str(file), "this is not a trace: it has no object `trace`", "Name a file that prompty recorded."
        )
    return document, [root]


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
    counts = {name: frame.attributes.get(key) for name, key in _USAGE_ATTRIBUTES.items()}
    return {name: count for name, count in counts.items() if isinstance(count, int) and not isinstance(count, bool)}


def _add_costs(frames: list[Frame]) -> None:
    """Price the model calls and add up the costs. A sum is partial if the price of a call is unknown.

    Traces are priced when they are read, because price lists change.
    """
    for frame in reversed(frames):
        if frame.name == MODEL_CALL:
            if (cost := _get_cost(frame)) is not None:
                frame.cost = cost
            frame.cost_is_partial = frame.cost is None and frame.error is None
        if frame.parent is not None:
            parent = frames[frame.parent]
            parent.cost_is_partial = parent.cost_is_partial or frame.cost_is_partial
            if frame.cost is not None:
                parent.cost = frame.cost + (parent.cost or Decimal(0))


def _get_cost(frame: Frame) -> Decimal | None:
    provider = str(frame.attributes.get("gen_ai.provider.name") or "")
    usage = Usage(**{name: count for name, count in frame.usage.items() if name in _USAGE_ATTRIBUTES})
    for attribute in ("gen_ai.response.model", "gen_ai.request.model"):
        model = str(frame.attributes.get(attribute) or "")
        if provider and model:
            cost = _get_price(_PRICE_LIST_NAMES.get(provider, provider), model)(Reply(usage=usage))
            if cost is not None:
                return cost
    return None


@cache
def _get_price(provider: str, model: str) -> Callable[[Reply], Decimal | None]:
    return get_pricer(PromptAgent(model=Model(id=model, provider=provider)), required=False)
