"""File sink: a file for each trace, with a JSON line for each start and end of a span.

The lines survive if the process dies, and `prompty trace` reads them while a trace runs. Tracing must be cheap, so
every value is encoded once, objects are joined from encoded members, and paths are strings.
"""

import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from errno import ENOSPC
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from prompty.safety.write_files import create_folder, open_to_append, refuse_links
from prompty.tracing.names import AGENT_NAME
from prompty.tracing.sanitize import encode, encode_name
from prompty.tracing.spans import Span
from prompty.version import __version__

_NOT_IN_FILE_NAMES = re.compile(r"[^\w-]+")


def _member(name: bytes, value: bytes) -> bytes:
    """Return a member of a JSON object from an encoded name and value."""
    return b"%s:%s" % (name, value)


def _object(members: Iterable[bytes]) -> bytes:
    return b"{%s}" % b",".join(members)


_HEADER = (_member(b'"runtime"', b'"prompty-python"'), _member(b'"version"', encode(__version__)))


class _TraceLog:
    """The lines of a running trace. After a failed write nothing more is written: the lines before it stay valid."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path, self._lock = path, Lock()
        self._descriptor: int | None = descriptor
        self._buffer = b""
        self.append(_object([*_HEADER, b'"lines":1']))

    def append(self, record: bytes, *, buffered: bool = False) -> None:
        """Write a line. A buffered line is written together with the next."""
        with self._lock:
            if self._descriptor is None:
                return
            data = b"%s%s\n" % (self._buffer, record)
            self._buffer = data if buffered else b""
            if buffered:
                return
            try:
                if os.write(self._descriptor, data) < len(data):
                    raise OSError(ENOSPC, "no space left for a whole line")
            except OSError:
                self._close()
                raise

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _Frame(NamedTuple):
    """A span in a file. `recorded` names the values that were written with its start."""

    log: _TraceLog
    recorded: frozenset[str]


class FileSink:
    """Writes each trace into a folder, readable only by the owner of the process."""

    content = immediate = True

    def __init__(self, folder: str | Path = "traces", *, wire: bool = False) -> None:
        refuse_links(folder)  # a link that leads elsewhere is an error before anything runs, not a missing trace
        self.folder: str = os.path.abspath(folder)
        self.wire = wire
        self._last_name = ""  # so that a process with many traces per second does not try it again

    def _create_log(self, span: Span) -> tuple[str, int]:
        """Create the file of a new trace. Return its path and its descriptor."""
        name = _NOT_IN_FILE_NAMES.sub("-", str(span.attributes.get(AGENT_NAME) or span.name))[:80]
        plain = f"{name}.{time.strftime('%Y%m%d.%H%M%S', time.localtime(span.start / 1e9))}"
        for stem in (plain, f"{plain}-{span.trace.id[:8]}")[self._last_name == plain :]:
            self._last_name = plain
            path = f"{self.folder}/{stem}.jsonl"
            with suppress(FileExistsError):
                return path, _open_new(path)
        raise FileExistsError(path)

    def started(self, span: Span, /) -> None:
        parent: _Frame | None = span.parent.handles.get(self) if span.parent else None
        if span.parent and parent is None:
            return
        log = parent.log if parent else _TraceLog(*self._create_log(span))
        span.handles[self] = _Frame(log, frozenset(span.written))
        parent_id = b'"%s"' % span.parent.id.encode() if span.parent else b"null"
        start = [
            _member(b'"name"', encode_name(span.name)),
            _encode_id(span.id),
            *_encode_values(span.written),
            _member(b'"parent"', parent_id),
            _member(b'"title"', encode_name(span.title)),
            _encode_time(span),
        ]
        log.append(_object([_member(b'"start"', _object(start))]))

    def ended(self, span: Span, /) -> None:
        frame: _Frame | None = span.handles.get(self)
        if frame is None:
            return
        new = {name: value for name, value in span.written.items() if name not in frame.recorded}
        end = [_encode_id(span.id), *_encode_end(span), *_encode_values(new)]
        # The end of a model call, and of the trace, is written at once; other ends are written with the next start.
        is_buffered = span.parent is not None and span.name != "execute"
        frame.log.append(_object([_member(b'"end"', _object(end))]), buffered=is_buffered)
        if span.parent is None:
            frame.log.close()


def find_trace_file(span: Span) -> Path | None:
    """Return the file that a file sink has written, or will write, for the trace of a span."""
    for sink, frame in span.handles.items():
        if isinstance(sink, FileSink):
            return Path(frame.log.path)
    return None


def _encode_values(written: dict[str, bytes]) -> list[bytes]:
    return [_member(encode_name(name), value) for name, value in written.items()]


def _encode_id(span_id: str) -> bytes:
    return b'"id":"%s"' % span_id.encode()


def _encode_end(span: Span) -> list[bytes]:
    """Return the members that are known at a span's end, except for recorded values."""
    members = [_member(b'"title"', encode_name(span.title)), _encode_time(span)]
    if span.attributes:
        members.append(_member(b'"attributes"', encode(span.attributes)))
    if span.error:
        members.append(_member(b'"error"', encode({"type": span.error[0], "message": span.error[1]})))
    if span.usage:
        members.append(_member(b'"__usage"', encode(span.usage)))
    return members


def _encode_time(span: Span) -> bytes:
    start, end, duration = _format_time(span.start), "null", "null"
    if span.duration is not None:
        end, duration = f'"{_format_time(span.start + span.duration)}"', str(span.duration / 1e6)
    return f'"__time":{{"start":"{start}","end":{end},"duration":{duration}}}'.encode()


def _format_time(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}+00:00"


def _open_new(path: str) -> int:
    try:
        return open_to_append(path, new=True)
    except FileNotFoundError:
        create_folder(Path(path).parent)
        return open_to_append(path, new=True)
