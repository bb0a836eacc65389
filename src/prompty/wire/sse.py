"""Server-sent events: bytes, however they are cut, into the JSON of each event."""

from prompty.errors import ModelError
from prompty.wire.json_bytes import read_bytes

MAX_EVENT_BYTES = 64_000_000
_MARKED = b"\xef\xbb\xbfdata:"  # some begin a stream with a byte order mark


class EventReader:
    """Collects bytes and gives back whole events. `[DONE]` and comments are passed over. Each byte is looked at a
    fixed number of times, in however many pieces an event comes."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # pieces of the line that is not yet whole
        self._data: list[bytes] = []  # data lines of the event that is not yet whole
        self._size = 0

    def feed(self, chunk: bytes) -> list[dict[str, object]]:
        """The events that these bytes complete."""
        self._size += len(chunk)
        if self._size > MAX_EVENT_BYTES:
            raise ModelError(f"an event of more than {MAX_EVENT_BYTES:,} bytes")
        self._line.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        lines = b"".join(self._line).splitlines(keepends=True)
        # a line that ends in a lone carriage return may go on with the other half of its end
        self._line = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        return self._read(lines)

    def _read(self, lines: list[bytes]) -> list[dict[str, object]]:
        events = []
        for line in lines:
            if line.startswith((b"data:", _MARKED)):
                self._data.append(line.partition(b":")[2].strip())
            elif line in (b"\n", b"\r\n", b"\r"):
                events += self._end_event()
        return events

    def _end_event(self) -> list[dict[str, object]]:
        data, self._data = b"\n".join(self._data), []
        self._size = sum(map(len, self._line))
        if not data or data == b"[DONE]":
            return []
        event = read_bytes(data)
        return [event] if isinstance(event, dict) else []

    def finish(self) -> list[dict[str, object]]:
        """What is left when the bytes end without a blank line: an event, or half of one, which is no event."""
        lines, self._line = b"".join(self._line).splitlines(keepends=True), []
        try:
            return self._read([*lines, b"\n"])
        except ModelError:
            return []
