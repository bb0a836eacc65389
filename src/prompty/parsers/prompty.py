"""The default format (§2.10): a role marker starts a message, and the text up to the next marker is its content."""

from collections.abc import Iterator

from prompty.model.marker import Attributes, marker_lines
from prompty.model.message import Message
from prompty.model.structure import split_at_nonces


def parse(text: str, /, *, nonce: str | None = None) -> list[Message]:
    """Split text into messages. Text before the first marker is a system message (§2.10)."""
    sections = split_at_nonces(text, nonce) if nonce else _split_at_lines(text)
    messages = []
    for role, attributes, body in sections:
        body = body.strip("\r\n")
        if role or body.strip():
            name = attributes.pop("name", None)
            name = None if name is None else str(name)
            messages.append(Message(role or "system", body, name=name, attributes=attributes))
    return messages


def _split_at_lines(text: str) -> Iterator[tuple[str, Attributes, str]]:
    """Yield the role, the attributes and the text of each message. Every marker line starts a message."""
    role, position = "", 0
    attributes: Attributes = {}
    for start, end, marker in marker_lines(text):
        yield role, attributes, text[position:start]
        role, attributes, position = marker.role, marker.attributes.copy(), end
    yield role, attributes, text[position:]
