"""Values as they may be shown: plain JSON without secrets, and without bytes that nobody reads."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from json import dumps
from pathlib import PurePath
from typing import Any

from prompty.tracing.redaction import MASK, masked_text, names_a_credential

LONGEST_TEXT = 100_000
DEEPEST = 50
Plain = Any


class Masking:
    """What is hidden in one trace: secrets, and the values that its prompt calls sensitive.

    A conversation is shown again with every answer, so texts are looked at once.
    """

    def __init__(self) -> None:
        self._sensitive: dict[str, None] = {}
        self._seen: dict[str, str] = {}

    def hide(self, values: Iterable[object]) -> None:
        """Mask these values from now on, wherever they stand: in texts, in JSON inside texts, and as numbers."""
        for text in (text for value in values for text in leaves(value)):
            escaped = (text, _inside_json(text, ascii_only=False), _inside_json(text, ascii_only=True))
            self._sensitive |= dict.fromkeys(escaped)
        self._sensitive = dict.fromkeys(sorted(self._sensitive, key=len, reverse=True))
        self._seen.clear()

    def text(self, text: str) -> str:
        """A text that may be shown."""
        seen = self._seen.get(text)
        if seen is None:
            seen = self._seen[text] = self._masked(text)
        return seen

    def _masked(self, text: str) -> str:
        for value in self._sensitive:
            text = text.replace(value, MASK)
        text = masked_text(text)
        over = len(text) - LONGEST_TEXT
        return text if over <= 0 else f"{text[:LONGEST_TEXT]}… ({over:,} more characters)"

    def plain(self, value: object, depth: int = 0) -> Plain:
        """A value of any kind that may be shown."""
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return MASK if self._sensitive and str(value) in self._sensitive else value
        if depth > DEEPEST:
            return "…"
        if isinstance(value, Mapping):
            return {self.text(str(name)): self._named(str(name), item, depth) for name, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.plain(item, depth + 1) for item in value]
        return self._object(value, depth)

    def _named(self, name: str, value: object, depth: int) -> Plain:
        return MASK if value is not None and names_a_credential(name) else self.plain(value, depth + 1)

    def _object(self, value: object, depth: int) -> Plain:
        if isinstance(value, bytes | bytearray | memoryview):
            return f"<{len(value):,} bytes>"
        if isinstance(value, Decimal | PurePath):
            return self.text(str(value))
        if hasattr(value, "to_json"):
            return self.plain(value.to_json(), depth + 1)
        if hasattr(value, "model_dump"):
            return self.plain(value.model_dump(), depth + 1)
        if is_dataclass(value) and not isinstance(value, type):
            return {one.name: self._named(one.name, getattr(value, one.name), depth) for one in fields(value)}
        return self.text(repr(value))


def leaves(value: object) -> Iterator[str]:
    """The texts and numbers in a value."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from leaves(item)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from leaves([getattr(value, one.name) for one in fields(value)])
    elif value is not None and not isinstance(value, bool) and (text := str(value)):
        yield text


def _inside_json(text: str, *, ascii_only: bool) -> str:
    return dumps(text, ensure_ascii=ascii_only)[1:-1]
