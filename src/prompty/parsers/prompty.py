"""The default format (§2.10): a role marker starts a message, and the text up to the next marker is its content."""

from collections.abc import Iterator

from prompty.model.marker import Marker, marker_lines, read_marker
from prompty.model.message import Message

_START = Marker("system", {})


def parse(text: str, /, *, nonce: str | None = None) -> list[Message]:
    """Split text into messages. Text before the first marker is a system message (§2.10)."""
    sections = _split_at_nonces(text, nonce) if nonce else _split_at_lines(text)
    messages = []
    for marker, body in sections:
        body = body.strip("\r\n")
        if marker is not _START or body.strip():
            attributes = dict(marker.attributes)
            name = attributes.pop("name", None)
            messages.append(Message(marker.role, body, name=None if name is None else str(name), attributes=attributes))
    return messages


def _split_at_lines(text: str) -> Iterator[tuple[Marker, str]]:
    """Yield each marker with its text. Every marker line starts a message."""
    marker, position = _START, 0
    for start, end, next_marker in marker_lines(text):
        yield marker, text[position:start]
        marker, position = next_marker, end
    yield marker, text[position:]


def _split_at_nonces(text: str, nonce: str) -> Iterator[tuple[Marker, str]]:
    """Yield each marker with its text. A piece between two nonces that is not a marker line stays text."""
    body, *pieces = text.split(nonce)
    marker = _START
    for index in range(0, len(pieces), 2):
        next_marker = read_marker(pieces[index])
        rest = pieces[index + 1] if index + 1 < len(pieces) else ""
        if next_marker is None:
            body += pieces[index] + rest
        else:
            yield marker, body
            marker, body = next_marker, rest
    yield marker, body
