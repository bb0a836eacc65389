"""Server-sent events: the JSON of each event, from bytes in chunks of any size."""

from prompty.errors import ModelError
from prompty.wire.json_bytes import read_bytes

MAX_EVENT_BYTES = 64_000_000
_MARKED = b"\xef\xbb\xbfdata:"  # some servers start a stream with a byte order mark


class EventReader:
    """Collects bytes and returns complete events, without `[DONE]` and comments. Takes linear time, even if an event
    arrives in many chunks."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # pieces of the incomplete line
        self._data: list[bytes] = []  # data lines of the incomplete event
        self._size = 0
        self.is_done: bool = False  # the end mark has arrived

    def feed(self, chunk: bytes) -> list[dict[str, object]]:
        """Return the events that these bytes complete."""
        self._size += len(chunk)
        if self._size > MAX_EVENT_BYTES:
            raise ModelError(f"an event of more than {MAX_EVENT_BYTES:,} bytes")
        self._line.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        lines = b"".join(self._line).splitlines(keepends=True)
        # a lone carriage return at the end may be the first half of a line break
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
