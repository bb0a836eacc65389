"""A sink that writes files: a line for everything as it happens, and one `.tracy` file when it is over.

What a process that dies leaves behind is the lines up to that moment; `prompty trace` reads both.
"""

import os
import re
from datetime import UTC, datetime
from errno import ENOSPC
from json import dumps
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic_core import to_json

from prompty.tracing.names import AGENT_NAME
from prompty.tracing.spans import Span
from prompty.version import __version__

Frame = dict[str, Any]
RUNTIME = "prompty-python"


class _Open:
    """The lines of a trace while it goes on. Once a write fails there are no more: what is there stays readable."""

    def __init__(self, stem: Path, descriptor: int) -> None:
        self.stem, self.frames = stem, dict[str, Frame]()
        self._descriptor: int | None = descriptor
        self._lock = Lock()

    def append(self, line: Frame) -> None:
        written = _bytes(line) + b"\n"
        with self._lock:
            if self._descriptor is None:
                return
            try:
                if os.write(self._descriptor, written) < len(written):
                    raise OSError(ENOSPC, "there is no room for a whole line")
            except OSError:
                self._close()
                raise

    def close(self) -> bool:
        """Write no more; whether everything could be written."""
        with self._lock:
            complete = self._descriptor is not None
            self._close()
            return complete

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class FileSink:
    """Writes every trace into a folder, for nobody but the owner of the process to read."""

    content, immediate = True, True

    def __init__(self, folder: str | Path = "traces", *, wire: bool = False) -> None:
        self.folder, self.wire = Path(folder).absolute(), wire

    def started(self, span: Span, /) -> None:
        opened = self._opened(span)
        if opened is None:
            return
        span.handles[self] = opened
        frame = opened.frames[span.id] = frame_of(span)
        if span.parent:
            opened.frames[span.parent.id].setdefault("__frames", []).append(frame)
        opened.append({"start": {**frame, "parent": span.parent.id if span.parent else None}})

    def ended(self, span: Span, /) -> None:
        opened: _Open | None = span.handles.get(self)
        if opened is None:
            return
        frame, before = frame_of(span), opened.frames[span.id]
        new = {name: value for name, value in frame.items() if before.get(name) != value}
        before |= new
        if span.parent:
            opened.append({"end": {"id": span.id, **new}})
        elif opened.close():
            _finish(opened.stem, before)

    def _opened(self, span: Span) -> _Open | None:
        """The lines of a trace; its root opens them."""
        if span.parent is not None:
            return span.parent.handles.get(self)
        opened = _Open(*_create(self.folder, span))
        opened.append({"runtime": RUNTIME, "version": __version__, "lines": 1})
        return opened


def _finish(stem: Path, root: Frame) -> None:
    """Write the whole trace, all of it or nothing; then the lines are not needed any more."""
    partial = Path(f"{stem}.tracy.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(_bytes({"runtime": RUNTIME, "version": __version__, "trace": root}))
    partial.replace(f"{stem}.tracy")
    Path(f"{stem}.jsonl").unlink()


def _bytes(value: Frame) -> bytes:
    try:
        return to_json(value, inf_nan_mode="null")
    except ValueError:  # half of a character that is written as two
        return dumps(value).encode()


def frame_of(span: Span) -> Frame:
    """A span as it stands in a file, without those inside of it."""
    start = datetime.fromtimestamp(span.start / 1e9, UTC)
    end = None if span.duration is None else datetime.fromtimestamp((span.start + span.duration) / 1e9, UTC)
    took = None if span.duration is None else span.duration / 1e6
    times = {"start": start.isoformat(), "end": end and end.isoformat(), "duration": took}
    frame: Frame = {"name": span.name, "title": span.title, "id": span.id, "__time": times}
    frame |= {name: value for name, value in span.content.items() if name not in frame}
    frame |= {"attributes": dict(span.attributes)} if span.attributes else {}
    frame |= {"error": {"type": span.error[0], "message": span.error[1]}} if span.error else {}
    return frame | ({"__usage": dict(span.usage)} if span.usage else {})


def _create(folder: Path, span: Span) -> tuple[Path, int]:
    """The file of a new trace, which nobody else has."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w-]+", "-", str(span.attributes.get(AGENT_NAME) or span.name))[:80]
    moment = datetime.fromtimestamp(span.start / 1e9).strftime("%Y%m%d.%H%M%S")
    for number in range(1, 10_000):
        stem = folder / f"{name}.{moment}{f'-{number}' if number > 1 else ''}"
        if stem.with_name(f"{stem.name}.tracy").exists():
            continue
        try:
            return stem, os.open(f"{stem}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        except FileExistsError:
            continue
    raise OSError(f"{folder} holds ten thousand traces of one second")
