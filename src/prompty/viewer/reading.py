"""Recorded traces on disk: which there are, and what is in them.

A finished trace is one JSON document (`.tracy`); one that runs, or whose process was killed, is a list of lines
(`.jsonl`) that say what started and what ended. Both become the same list of frames.
"""

import re
from datetime import UTC, datetime
from pathlib import Path

from prompty.model.message import Json
from prompty.viewer.deep_json import loads
from prompty.viewer.frames import flatten
from prompty.viewer.totals import add_costs, add_usage
from prompty.viewer.trace import Trace, TraceUnreadable

MAXIMUM_BYTES = 256 * 1024 * 1024
_STAMP = re.compile(r"\.(\d{8}\.\d{6})(?=\D|$)")
_COPY = "Copy the file again from where it was written, or record the run again."


def find_traces(folder: str | Path) -> list[Path]:
    """The traces of a folder, newest first; of a run with both files only the finished one."""
    found = [file for file in Path(folder).iterdir() if file.is_file()]
    finished = [file for file in found if file.suffix == ".tracy"]
    stems = {file.stem for file in finished}
    running = [file for file in found if file.suffix == ".jsonl" and _STAMP.search(file.stem)]
    return sorted([*finished, *(file for file in running if file.stem not in stems)], key=_age, reverse=True)


def _age(file: Path) -> tuple[str, int, str]:
    """When a trace was recorded, by its name: copying a file changes its times."""
    written = file.stat()
    stamp = _STAMP.search(file.stem)
    local = datetime.fromtimestamp(written.st_mtime, UTC).astimezone()
    return (stamp[1] if stamp else f"{local:%Y%m%d.%H%M%S}", written.st_mtime_ns, file.name)


def read_trace(path: str | Path) -> Trace:
    """Read one trace, finished or not."""
    file = Path(path)
    data = _bytes_of(file)
    header, roots = _from_lines(file, data) if file.suffix == ".jsonl" else _from_document(file, data)
    frames = flatten(roots)
    add_usage(frames)
    add_costs(frames)
    return Trace(
        path=file, runtime=f"{header.get('runtime', 'unknown')} {header.get('version', '')}".strip(), frames=frames
    )


def _bytes_of(file: Path) -> bytes:
    try:
        size = file.stat().st_size
        if size > MAXIMUM_BYTES:
            raise TraceUnreadable(
                str(file),
                f"the trace has {size / 1e6:,.0f} MB, and no more than {MAXIMUM_BYTES / 1e6:,.0f} MB are read",
                "Record less: trace without contents, or one turn per file.",
            )
        return file.read_bytes()
    except OSError as error:
        raise TraceUnreadable(
            str(file), f"the file cannot be read: {error.strerror}", "Name a .tracy or .jsonl file that exists."
        ) from error


def _from_document(file: Path, data: bytes) -> tuple[Json, list[Json]]:
    try:
        document = loads(data)
    except ValueError as error:
        raise TraceUnreadable(str(file), f"the trace is damaged: {error}", _COPY) from error
    root = document.get("trace") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(root, dict):
        raise TraceUnreadable(
            str(file), "this is no trace: it has no object `trace`", "Name a file that prompty wrote."
        )
    return document, [root]


def _from_lines(file: Path, data: bytes) -> tuple[Json, list[Json]]:
    header, *events = _events(file, data)
    if header.get("lines") != 1:
        raise TraceUnreadable(
            f"{file}:1", "this is no trace of a kind known here: `lines` is not 1", "Update prompty, or name a trace."
        )
    roots = _replayed(events)
    if not roots:
        raise TraceUnreadable(
            str(file), "nothing has started in this trace yet", "Look again when the run is on its way."
        )
    return header, roots


def _events(file: Path, data: bytes) -> list[Json]:
    """The lines. What is written is cut off by a crash, so the last line may be half a one."""
    lines = data.rstrip(b"\n").split(b"\n")
    events: list[Json] = []
    for number, line in enumerate(lines, 1):
        try:
            event = loads(line)
        except ValueError as error:
            if number == len(lines) > 1:
                break
            raise TraceUnreadable(f"{file}:{number}", f"the line is damaged: {error}", _COPY) from error
        if not isinstance(event, dict):
            raise TraceUnreadable(f"{file}:{number}", "the line is no JSON object", _COPY)
        events.append(event)
    return events


def _replayed(events: list[Json]) -> list[Json]:
    """The frames that had started, with what their ends told of them, as trees."""
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
            ended.update(_merged(ended, end))
    return roots


def _key(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _merged(frame: Json, end: Json) -> Json:
    """What an end says beside a start; attributes and times are joined, all else is replaced."""
    added = {name: value for name, value in end.items() if name not in ("id", "parent", "__frames")}
    for name in ("attributes", "__time"):
        before, after = frame.get(name), added.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            added[name] = {**before, **after}
    return added
