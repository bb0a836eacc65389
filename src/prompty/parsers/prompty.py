"""The format of §2.10: role markers start messages, everything else is their text."""

from collections.abc import Iterator

from prompty.model.marker import Marker, marker_lines, read_marker
from prompty.model.message import Message

_START = Marker("system", {})


def parse(text: str, /, *, nonce: str | None = None) -> list[Message]:
    """Cut text into messages; what stands before the first marker is a system message (§2.10)."""
    sections = _between(text, nonce) if nonce else _by_lines(text)
    messages = []
    for marker, body in sections:
        body = body.strip("\r\n")
        if marker is not _START or body.strip():
            attributes = dict(marker.attributes)
            name = attributes.pop("name", None)
            messages.append(Message(marker.role, body, name=None if name is None else str(name), attributes=attributes))
    return messages


def _by_lines(text: str) -> Iterator[tuple[Marker, str]]:
    """Every marker line is structure."""
    marker, done = _START, 0
    for start, end, following in marker_lines(text):
        yield marker, text[done:start]
        marker, done = following, end
    yield marker, text[done:]


def _between(text: str, nonce: str) -> Iterator[tuple[Marker, str]]:
    """Only a marker between two nonces is structure; a template that tore one apart has it as text."""
    first, *pieces = text.split(nonce)
    marker, body = _START, first
    for index in range(0, len(pieces), 2):
        following = read_marker(pieces[index])
        rest = pieces[index + 1] if index + 1 < len(pieces) else ""
        if following is None:
            body += pieces[index] + rest
        else:
            yield marker, body
            marker, body = following, rest
    yield marker, body
