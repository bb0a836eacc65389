"""Values as they may be shown: plain JSON without secrets, and without bytes that nobody reads."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from functools import lru_cache
from json import dumps
from pathlib import PurePath
from typing import Any, cast

from pydantic_core import to_json

from prompty.model.message import Message
from prompty.safety.redaction import MASK, Redactor, is_credential_name, may_hold_secrets

LONGEST_TEXT = 100_000
DEEPEST = 50
Plain = Any


class Masking:
    """What is hidden in one trace: secrets, and the values that its prompt calls sensitive.

    A conversation is shown again with every answer, so what was made of a message is kept.
    """

    def __init__(self) -> None:
        self._redactor = Redactor()
        self._seen: dict[str, str] = {}
        self._made: dict[int, tuple[object, bytes]] = {}

    def hide(self, values: Iterable[object]) -> None:
        """Mask these values from now on, wherever they stand: in texts, in JSON inside texts, and as numbers."""
        if self._redactor.hide(values):
            self._seen.clear()
            self._made.clear()

    def text(self, text: str) -> str:
        """A text that may be shown."""
        seen = self._seen.get(text)
        if seen is None:
            seen = self._seen[text] = self._masked(text)
        return seen

    def _masked(self, text: str) -> str:
        text = self._redactor.mask(text)
        over = len(text) - LONGEST_TEXT
        return text if over <= 0 else f"{text[:LONGEST_TEXT]}… ({over:,} more characters)"

    def json(self, value: Any) -> bytes:
        """A value of any kind as JSON that may be shown."""
        kind = type(value)
        if kind is str:
            return self._checked(value)
        if kind is dict and any(type(item) in (list, tuple) for item in value.values()):
            return b"{" + b",".join([self._item(str(name), item) for name, item in value.items()]) + b"}"
        if kind is Message:
            return self._once(value, value.to_json)
        if (kind is list or kind is tuple) and value and is_dataclass(value[0]):
            return b"[" + b",".join([self.json(item) for item in value]) + b"]"
        if is_dataclass(value) and not isinstance(value, type):
            return self._once(value, lambda: value)
        return self._checked(value)

    def _item(self, name: str, value: object) -> bytes:
        hidden = value is not None and is_credential_name(name)
        return _name(self.text(name)) + (_written(MASK) if hidden else self.json(value))

    def _once(self, value: object, make: Callable[[], object]) -> bytes:
        """What was made of an object before; it is kept, so that its id stays its own."""
        made = self._made.get(id(value))
        if made is None:
            made = self._made[id(value)] = value, self._checked(make())
        return made[1]

    def _checked(self, value: object) -> bytes:
        """JSON by the quick way, if there is nothing in it to hide; else piece by piece."""
        try:
            quick = to_json(value, inf_nan_mode="null", fallback=_unknown)
        except (ValueError, TypeError):  # of an unknown kind, without an end, or with half a character in it
            return _written(self.plain(value))
        text = quick.decode()
        if len(text) > LONGEST_TEXT or may_hold_secrets(text) or (self._redactor and self._masked(text) != text):
            return _written(self.plain(value))
        return quick

    def plain(self, value: object, depth: int = 0) -> Plain:
        """A value of any kind that may be shown, piece by piece."""
        kind = type(value)
        if kind is str:
            return self.text(cast(str, value))
        if value is None or kind is bool:
            return value
        if kind is int or kind is float:
            return MASK if self._redactor and str(value) in self._redactor else value
        if depth > DEEPEST:
            return "…"
        if kind is dict or isinstance(value, Mapping):
            return self._mapping(cast(Mapping[Any, object], value), depth + 1)
        if kind is list or isinstance(value, list | tuple | set | frozenset):
            return [self.plain(item, depth + 1) for item in cast(Iterable[object], value)]
        return self._object(value, depth)

    def _mapping(self, value: Mapping[Any, object], depth: int) -> Plain:
        shown = {}
        for key, item in value.items():
            name = key if type(key) is str else str(key)
            hidden = item is not None and is_credential_name(name)
            shown[self.text(name)] = MASK if hidden else self.plain(item, depth)
        return shown

    def _object(self, value: object, depth: int) -> Plain:
        if isinstance(value, bytes | bytearray | memoryview):
            return f"<{len(value):,} bytes>"
        if isinstance(value, str | int | float | Decimal | PurePath):  # kinds of text and numbers of one's own
            return self.text(str(value))
        if hasattr(value, "to_json"):
            return self.plain(value.to_json(), depth + 1)
        if hasattr(value, "model_dump"):
            return self.plain(value.model_dump(), depth + 1)
        if is_dataclass(value) and not isinstance(value, type):
            return self._mapping(_fields(value), depth + 1)
        return self.text(repr(value))


@lru_cache(maxsize=1024)
def _name(name: str) -> bytes:
    return _written(name) + b":"


def _unknown(value: object) -> object:
    raise TypeError(type(value).__name__)


def _written(value: Plain) -> bytes:
    try:
        return to_json(value, inf_nan_mode="null")
    except ValueError:  # half of a character that is written as two
        return dumps(value).encode()


def _fields(value: Any) -> dict[str, object]:
    return {one.name: getattr(value, one.name) for one in fields(value)}
