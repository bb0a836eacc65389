"""Streamed replies (§8.6): bytes to server-sent events, events to deltas, deltas to a reply.

Pure, so sync and async code share it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol, TypeVar

from prompty.errors import ModelError, Refused, StreamCut
from prompty.model.citation import shift_citation
from prompty.model.delta import CitationAdded, Delta, TextDelta, ToolCallDelta
from prompty.model.message import Json, Reply, ToolCall
from prompty.safety.json import is_json_object
from prompty.wire.json_bytes import MALFORMED, PARAGRAPH, as_object, as_text, find_page, malformed, read_bytes

MAX_EVENT_BYTES = 64_000_000
MAX_EVENTS = 200_000  # of one answer; an empty line counts as one
MAX_LINES = 3 * MAX_EVENTS  # an event has a name, data, and an empty line
MAX_CALLS = 1_000  # of one answer
_MARKED = b"\xef\xbb\xbfdata:"  # some servers start a stream with a byte order mark
T = TypeVar("T")


class EventReader:
    """Collects bytes and returns complete events, without `[DONE]` and comments. Takes linear time, even if an event
    arrives in many chunks."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # pieces of the incomplete line
        self._data: list[bytes] = []  # data lines of the incomplete event
        self._size = 0
        self._lines = self._events = 0
        self.is_done: bool = False  # the end mark has arrived

    def feed(self, chunk: bytes) -> list[dict[str, object]]:
        """Return the events that these bytes complete."""
        self._size += len(chunk)
        if self._size > MAX_EVENT_BYTES:
            raise ModelError(f"an event of more than {MAX_EVENT_BYTES:,} bytes")
        self._lines += max(chunk.count(b"\n"), chunk.count(b"\r"))
        if self._lines > MAX_LINES:
            raise ModelError(f"the stream has more than {MAX_LINES:,} lines")
        self._line.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        lines = b"".join(self._line).splitlines(keepends=True)
        # a lone carriage return at the end may be the first half of a line break
        self._line = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        return self._read(lines)

    def _read(self, lines: list[bytes]) -> list[dict[str, object]]:
        events, has_ended = [], False
        for line in lines:
            if line.startswith((b"data:", _MARKED)):
                self._data.append(line.partition(b":")[2].strip())
            elif line in (b"\n", b"\r\n", b"\r"):
                self._events += 1
                if self._events > MAX_EVENTS:
                    raise ModelError(f"the stream has more than {MAX_EVENTS:,} events and empty lines")
                has_ended = True
                if self._data:
                    events += self._end_event()
        if has_ended:
            self._size = sum(map(len, self._line))
        return events

    def _end_event(self) -> list[dict[str, object]]:
        data, self._data = b"\n".join(self._data), []
        if data == b"[DONE]":
            self.is_done = True
            return []
        if not data:
            return []
        event = read_bytes(data)
        return [event] if isinstance(event, dict) else []

    def finish(self) -> list[dict[str, object]]:
        """Return the last event if the bytes ended without a blank line. An incomplete one is dropped."""
        lines, self._line = b"".join(self._line).splitlines(keepends=True), []
        try:
            return self._read([*lines, b"\n"])
        except ModelError:
            return []


def sort_by_index(items: list[T], indexes: Sequence[int | None]) -> list[T]:
    """Return streamed items in the order of their indexes, as in the whole answer. If indexes repeat or one is missing,
    keep the order of arrival."""
    if len(items) < 2 or not all(isinstance(index, int) for index in indexes):
        return items
    return [item for _, _, item in sorted(zip(indexes, range(len(items)), items, strict=True), key=lambda one: one[:2])]


class Decoder(Protocol):
    """Decodes the events of one stream. Its reply equals that of the same answer without a stream."""

    def feed(self, event: Json, /) -> list[Delta]:
        """Return the deltas of one event."""
        ...

    def finish(self) -> Reply:
        """Return the whole reply. Raise StreamCut if the stream ended early."""
        ...


@dataclass
class _OpenCall:
    id: str
    name: str
    index: int | None = None
    arguments: list[str] = field(default_factory=list)
    extra: Json = field(default_factory=dict)

    def matches(self, call_id: str, name: str) -> bool:
        return (not call_id or self.id in ("", call_id)) and (not name or self.name in ("", name))


def check_call_count(count: int) -> None:
    """Raise `ModelError` if an answer has too many calls."""
    if count > MAX_CALLS:
        raise ModelError(f"the answer has more than {MAX_CALLS:,} tool calls")


class CallAssembler:
    """Assembles calls that arrive in pieces, by index. If a server omits or repeats the index, a new id or a new name
    starts a new call. A piece takes the same time however many calls there are."""

    def __init__(self) -> None:
        self._calls: list[_OpenCall] = []
        self._at: dict[int, int] = {}
        self._first: dict[tuple[str, str], int] = {}  # by id and name, and by id and "" whatever the name
        self._unnamed: dict[str, list[int]] = {}  # by id, as heaps: the calls whose name may still come

    def add(self, index: int | None, call_id: object, name: object, arguments: str | None) -> ToolCallDelta:
        """Add a piece of a call. An id may be a number, but a name must be text."""
        id_text, name_text = as_text(call_id), as_text(name)
        position = self._get_position(index, id_text, name_text)
        call = self._calls[position]
        if (id_text and not call.id) or (name_text and not call.name):
            call.id = call.id or id_text
            call.name = call.name or name_text
            self._register(position)
        if arguments:
            call.arguments.append(arguments)
        return ToolCallDelta(position, call.id, call.name, arguments or "")

    def add_extra(self, position: int, extra: object) -> None:
        """Add a provider's additional data for a call (`ToolCall.extra`)."""
        if isinstance(extra, dict):
            self._calls[position].extra |= extra

    def _get_position(self, index: int | None, call_id: str, name: str) -> int:
        position = self._find_call(index, call_id, name)
        if position is None:
            position = len(self._calls)
            check_call_count(position + 1)
            self._calls.append(_OpenCall(call_id, name, index))
            self._register(position)
        if index is not None:
            self._at[index] = position
        return position

    def _find_call(self, index: int | None, call_id: str, name: str) -> int | None:
        """Return the call that a piece continues: by its index, or by its id, or the last call if it has no index."""
        if not self._calls or (index is not None and index not in self._at):
            return None
        current = len(self._calls) - 1 if index is None else self._at[index]
        return current if self._calls[current].matches(call_id, name) else self._find_by_id(call_id, name)

    def _find_by_id(self, call_id: str, name: str) -> int | None:
        """Return the first call with this id whose name is the same or still to come."""
        unnamed = self._unnamed.get(call_id, []) if name else []
        while unnamed and self._calls[unnamed[0]].name:
            heappop(unnamed)
        found = [self._first[call_id, name]] if (call_id, name) in self._first else []
        return min(found + unnamed[:1], default=None)

    def _register(self, position: int) -> None:
        """Make a call that is new, or has got its id or its name, findable by its id."""
        call = self._calls[position]
        if not call.id:
            return
        for key in ((call.id, ""), (call.id, call.name)):
            self._first[key] = min(position, self._first.get(key, position))
        if not call.name:
            heappush(self._unnamed.setdefault(call.id, []), position)

    def calls(self, *, truncated: bool = False) -> tuple[ToolCall, ...]:
        """Return the calls in the order of their indexes, with generated ids where the server sent none.

        The call that arrived last in a truncated answer is dropped unless its arguments are complete.
        """
        calls = [(call, "".join(call.arguments)) for call in self._calls]
        if truncated and calls and not is_json_object(calls[-1][1]):
            calls.pop()
        calls = sort_by_index(calls, [call.index for call, _ in calls])
        return tuple(
            ToolCall(id=call.id or f"call_{position}", name=call.name, arguments=arguments or "{}", extra=call.extra)
            for position, (call, arguments) in enumerate(calls)
        )


class ReplyReader:
    """Reads a streamed answer: `feed` the chunks, `finish`, then take the `reply`. On any error, raise `cut(error)`.

    If so many characters were `streamed` before, its text is a paragraph that follows earlier ones of the same answer.
    """

    def __init__(self, decoder: Decoder, streamed: int = 0) -> None:
        self._events, self._decoder = EventReader(), decoder
        self._has_deltas = self._has_bytes = self._has_text = False
        self._streamed = streamed

    def feed(self, chunk: bytes) -> Iterator[Delta]:
        if not self._has_bytes:
            self._has_bytes = True
            if page := find_page(chunk):
                raise page
        for event in self._events.feed(chunk):
            for delta in self._decoder.feed(event):
                self._has_deltas = True
                yield self._set_apart(delta) if self._streamed else delta

    def _set_apart(self, delta: Delta) -> Delta:
        if isinstance(delta, CitationAdded):
            return CitationAdded(shift_citation(delta.citation, self._streamed + len(PARAGRAPH)))
        if self._has_text or not isinstance(delta, TextDelta):
            return delta
        self._has_text = True
        return TextDelta(PARAGRAPH + delta.text)

    def feed_chunk(self, chunk: object) -> Iterator[Delta]:
        """Yield the deltas of a chunk that is already JSON, or an SDK object."""
        for delta in self._decoder.feed(as_object(chunk)):
            self._has_deltas = True
            yield delta

    def finish(self) -> Iterator[Delta]:
        """Yield the deltas of the last event, which may lack its final newline."""
        for event in self._events.finish():
            for delta in self._decoder.feed(event):
                self._has_deltas = True
                yield self._set_apart(delta) if self._streamed else delta

    def reply(self) -> Reply:
        """Return the complete reply, or raise StreamCut.

        Some servers send no finish reason. Then text is complete at the end mark, but a call may not be.
        """
        try:
            return self._decoder.finish()
        except StreamCut as error:
            partial = error.partial
            if self._events.is_done and isinstance(partial, Reply) and partial.text and not partial.tool_calls:
                return partial
            raise

    def cut(self, error: Exception) -> ModelError:
        """Return the error of an interrupted stream, with the partial reply. After the first delta it is not retryable:
        the reader would see the same text twice."""
        return cut_error(error, self._decoder, self._has_deltas)


def cut_error(error: Exception, decoder: Decoder, has_deltas: bool) -> ModelError:
    failure = error if isinstance(error, ModelError) else malformed(error)
    if isinstance(failure, Refused):
        return failure
    partial = failure.partial if isinstance(failure, StreamCut) else _partial_reply(decoder)
    return StreamCut(failure.cause, partial, retryable=failure.retryable and not has_deltas)


def _partial_reply(decoder: Decoder) -> object:
    try:
        return decoder.finish()
    except StreamCut as error:
        return error.partial
    except (ModelError, *MALFORMED):
        return None
