"""Parsers, which split rendered text into messages, and the default one.

In the default format (§2.10), a role marker starts a message, and the text up to the next marker is its content.
"""

from collections.abc import Iterator
from typing import Protocol

from prompty.model.marker import HOLE, Attributes, marker_lines, read_marker
from prompty.model.message import Message
from prompty.model.structure import PRIVILEGED, ChangedMarker
from prompty.registry import DEFAULT, ExtensionPoint, Registry


class Parser(Protocol):
    """Splits rendered text into messages.

    With a `nonce`, only text between two nonces is a role marker, and a value inside it has a nonce on each side
    (`prompty.parsers.split_at_nonces` reads them). Without a nonce, every marker line starts a message, so the
    text must be trusted.
    """

    def __call__(self, text: str, /, *, nonce: str | None = None) -> list[Message]: ...


PARSERS: ExtensionPoint[Parser] = ExtensionPoint("parser")


def register_parser(name: str, parser: Parser, *, registry: Registry = DEFAULT) -> None:
    """Register a parser for files with `template: {parser: {kind: <name>}}`."""
    registry[PARSERS].register(name, parser)


def parse_roles(text: str, /, *, nonce: str | None = None) -> list[Message]:
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


def split_at_nonces(text: str, nonce: str) -> Iterator[tuple[str, Attributes, str]]:
    """Yield the role, the attributes and the text of each message. The first has the role "" and no marker.

    Raise `ChangedMarker` if the text between nonces is not a marker: its message would become part of the previous one.
    """
    body, *rest = text.split(nonce)
    pieces = iter(rest)
    role = ""
    attributes: Attributes = {}  # ten times as fast as calling the alias, and this runs for each render
    for piece in pieces:
        values: list[str] | None = None
        marker = read_marker(piece)
        if marker is None:
            if not piece:  # after a line that only looks like a marker
                if role in ("", *PRIVILEGED):
                    raise ChangedMarker(is_computed=True)
                body += next(pieces, "")
                continue
            values, skeleton = [], [piece]
            while not skeleton[-1].rstrip(" \t").endswith(":"):  # it ends with a quote or an equals sign
                values.append(next(pieces, ""))
                skeleton.append(next(pieces, ":"))
            marker = read_marker(HOLE.join(skeleton)) if HOLE not in "".join(skeleton) else None
            if marker is None:
                raise ChangedMarker
        yield role, attributes, body
        role, attributes = marker.role, marker.fill(values) if values else marker.attributes.copy()
        body = next(pieces, "")
    yield role, attributes, body


def _split_at_lines(text: str) -> Iterator[tuple[str, Attributes, str]]:
    """Yield the role, the attributes and the text of each message. Every marker line starts a message."""
    role, position = "", 0
    attributes: Attributes = {}
    for start, end, marker in marker_lines(text):
        yield role, attributes, text[position:start]
        role, attributes, position = marker.role, marker.attributes.copy(), end
    yield role, attributes, text[position:]
