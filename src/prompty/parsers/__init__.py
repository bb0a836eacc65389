"""Parsers of rendered text: text into messages."""

from typing import Protocol

from prompty.model.message import Message
from prompty.registry import DEFAULT, Registry


class Parser(Protocol):
    """Turns rendered text into messages.

    With a `nonce`, only what stands between two of it is a role marker. Without one every marker line is
    structure, so the text must be trusted.
    """

    def __call__(self, text: str, /, *, nonce: str | None = None) -> list[Message]: ...


def register_parser(name: str, parser: Parser, *, registry: Registry = DEFAULT) -> None:
    """Let files say `template: {parser: {kind: name}}`."""
    registry.parsers.register(name, parser)
