"""Parsers, which split rendered text into messages."""

from typing import Protocol

from prompty.model.message import Message
from prompty.registry import DEFAULT, ExtensionPoint, Registry


class Parser(Protocol):
    """Splits rendered text into messages.

    With a `nonce`, only text between two nonces is a role marker, and a value inside it has a nonce on each side
    (`prompty.parsers.prompty.split_at_nonces` reads them). Without a nonce, every marker line starts a message, so the
    text must be trusted.
    """

    def __call__(self, text: str, /, *, nonce: str | None = None) -> list[Message]: ...


PARSERS: ExtensionPoint[Parser] = ExtensionPoint("parser")


def register_parser(name: str, parser: Parser, *, registry: Registry = DEFAULT) -> None:
    """Register a parser for files with `template: {parser: {kind: <name>}}`."""
    registry[PARSERS].register(name, parser)
