"""A sink that writes files: a line for everything as it happens, and one `.tracy` file when it is over.

What a process that dies leaves behind is the lines up to that moment; `prompty trace` reads both. Being watched must
cost little, so JSON is made once and put together as bytes, and paths are plain text.
"""

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from errno import ENOSPC
from functools import lru_cache
from json import dumps
from pathlib import Path
from threading import Lock

from pydantic_core import to_json

from prompty.tracing.names import AGENT_NAME
from prompty.tracing.spans import Span
from prompty.version import __version__

# The last usual name of a folder: a busy process has many traces in a second, and need not try that one again.
_recent: dict[str, str] = {}
_NOT_A_NAME = re.compile(r"[^\w-]+")
HEAD = to_json({"runtime": "prompty-python", "version": __version__})


class _Open:
    """The lines of a trace while it goes on. Once a write fails there are no more: what is there stays readable."""

    def __init__(self, stem: str, descriptor: int) -> None:
        self.stem, self._lock = stem, Lock()
        self._descriptor: int | None = descriptor
        self._waiting = b""
        self.append(HEAD[:-1] + b',"lines":1}\n')

    def append(self, line: bytes, *, later: bool = False) -> None:
        """Write a line; one that can wait, together with the next."""
        with self._lock:
            if self._descriptor is None:
                return
            line = self._waiting + line
            self._waiting = line if later else b""
            if later:
                return
            try:
                if os.write(self._descriptor, line) < len(line):
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


@dataclass(eq=False, slots=True)
class _Frame:
    """A span as it is written: what was `known` of it at its start, what is at its `end`, and those `inside` of it."""

    opened: _Open
    known: frozenset[str]
    began: bytes
    start: bytes
    end: bytes
    inside: "list[_Frame]" = field(default_factory=list)

    def close(self, end: bytes) -> None:
        """Put those inside into the end, in their order; what still runs is there as it began."""
        inside = b",".join([one.whole() for one in self.inside])
        self.end = end[:-1] + (b',"__frames":[' + inside + b"]}" if inside else b"}")
        self.inside.clear()

    def whole(self) -> bytes:
        return self.start[:-1] + b"," + self.end[1:]


class FileSink:
    """Writes every trace into a folder, for nobody but the owner of the process to read."""

    content, immediate = True, True

    def __init__(self, folder: str | Path = "traces", *, wire: bool = False) -> None:
        self.folder, self.wire = os.path.abspath(folder), wire

    def started(self, span: Span, /) -> None:
        above: _Frame | None = span.parent.handles.get(self) if span.parent else None
        if span.parent and above is None:
            return
        opened = above.opened if above else _Open(*_create(self.folder, span))
        start = b'{"name":%s,"id":"%s"%s}' % (_name(span.name), span.id.encode(), _joined(span.written))
        began = b'"__time":{"start":"%s",' % _moment(span.start).encode()
        end = b'{"title":%s,%s"end":null,"duration":null}}' % (_name(span.title), began)
        frame = span.handles[self] = _Frame(opened, frozenset(span.written), began, start, end)
        if above:
            above.inside.append(frame)
        parent = b'"%s"' % span.parent.id.encode() if span.parent else b"null"
        opened.append(b'{"start":%s,"parent":%s,%s}\n' % (start[:-1], parent, end[1:]))

    def ended(self, span: Span, /) -> None:
        frame: _Frame | None = span.handles.get(self)
        if frame is None:
            return
        new = {name: value for name, value in span.written.items() if name not in frame.known}
        end = _ending(span, frame.began)[:-1] + _joined(new) + b"}"
        frame.close(end)
        if span.parent:
            # What was done stays done: it is enough to have it in the file before the next thing begins.
            frame.opened.append(b'{"end":{"id":"%s",%s}\n' % (span.id.encode(), end[1:]), later=span.name != "execute")
        elif frame.opened.close():
            _finish(frame.opened.stem, frame.whole())


def _joined(written: dict[str, bytes]) -> bytes:
    return b"".join([b",%s:%s" % (_name(name), value) for name, value in written.items()])


@lru_cache(maxsize=256)
def _name(name: str) -> bytes:
    """Names and titles, which are the same again and again."""
    return _bytes(name)


def _ending(span: Span, began: bytes) -> bytes:
    """What is known of a span at its end, but for what it shows."""
    took = span.duration or 0
    until = f'"end":"{_moment(span.start + took)}","duration":{took / 1e6}}}'.encode()
    parts = [b'{"title":', _name(span.title), b",", began, until]
    if span.attributes:
        parts += b',"attributes":', _bytes(span.attributes)
    if span.error:
        parts += b',"error":', _bytes(dict(zip(("type", "message"), span.error, strict=True)))
    if span.usage:
        parts += b',"__usage":', _bytes(span.usage)
    return b"".join([*parts, b"}"])


def _moment(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{_second(seconds)}.{rest // 1000:06d}+00:00"


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _finish(stem: str, trace: bytes) -> None:
    """Write the whole trace, all of it or nothing; then the lines are not needed any more."""
    descriptor = os.open(f"{stem}.tracy.partial", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(HEAD[:-1] + b',"trace":' + trace + b"}")
    os.replace(f"{stem}.tracy.partial", f"{stem}.tracy")
    os.unlink(f"{stem}.jsonl")


def _bytes(value: object) -> bytes:
    try:
        return to_json(value, inf_nan_mode="null")
    except ValueError:  # half of a character that is written as two
        return dumps(value).encode()


def _create(folder: str, span: Span) -> tuple[str, int]:
    """The file of a new trace, which nobody else has."""
    name = _NOT_A_NAME.sub("-", str(span.attributes.get(AGENT_NAME) or span.name))[:80]
    moment = time.strftime("%Y%m%d.%H%M%S", time.localtime(span.start / 1e9))
    usual = f"{folder}/{name}.{moment}"
    for stem in (usual, f"{usual}-{span.trace.id[:8]}")[_recent.get(folder) == usual :]:
        _recent[folder] = usual
        with suppress(FileExistsError):
            descriptor = _opened(f"{stem}.jsonl")
            if not os.path.exists(f"{stem}.tracy"):  # asked when nobody else can finish one of that name any more
                return stem, descriptor
            os.close(descriptor)
            os.unlink(f"{stem}.jsonl")
    raise FileExistsError(f"{stem}.jsonl")


def _opened(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, flags, 0o600)
