"""Convert values to JSON for a trace, without secrets, sensitive values and raw bytes.

Used by `spans.Span`, when a value is recorded. Uses `safety.redaction`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from json import dumps
from pathlib import PurePath
from typing import Any, cast

from pydantic_core import to_json

from prompty.model.message import Message
from prompty.safety.redaction import MASK, Redactor, current_redactor, is_credential_name

MAX_TEXT = 100_000
MAX_TRACED_DEPTH = 50
Plain = Any  # None, bool, numbers, str, and lists and dicts of them


class Sanitizer:
    """Masks secrets and the sensitive values of one trace.

    A conversation is recorded again with every model call, so the JSON of a message is cached.
    """

    def __init__(self) -> None:
        self.redactor: Redactor = Redactor(parent=current_redactor())
        self._masked_at = 0  # changes of the redactor
        self._texts: dict[str, str] = {}
        self._objects: dict[int, tuple[object, bytes]] = {}

    def text(self, text: str) -> str:
        """Mask secrets in a text, and truncate it if it is very long."""
        self._forget_outdated()
        masked = self._texts.get(text)
        if masked is None:
            masked = self._texts[text] = self._mask(text)
        return masked

    def _mask(self, text: str) -> str:
        text = self.redactor.mask(text)
        excess = len(text) - MAX_TEXT
        return text if excess <= 0 else f"{text[:MAX_TEXT]}… ({excess:,} more characters)"

    def _forget_outdated(self) -> None:
        """Forget what was masked before more values were hidden."""
        if self._masked_at != (changes := self.redactor.changes):
            self._masked_at = changes
            self._texts.clear()
            self._objects.clear()

    def json(self, value: Any) -> bytes:
        """Return a value of any type as JSON."""
        kind = type(value)
        if kind is str:
            return self._whole_json(value)
        if kind is dict and any(type(item) in (list, tuple) for item in value.values()):
            return b"{" + b",".join([self._item_json(str(name), item) for name, item in value.items()]) + b"}"
        if kind is Message:
            return self._cached_json(value, value.to_json)
        if (kind is list or kind is tuple) and value and is_dataclass(value[0]):
            return b"[" + b",".join([self.json(item) for item in value]) + b"]"
        if is_dataclass(value) and not isinstance(value, type):
            return self._cached_json(value, lambda: value)
        return self._whole_json(value)

    def _item_json(self, name: str, value: object) -> bytes:
        is_secret = value is not None and is_credential_name(name)
        return encode_name(self.text(name)) + b":" + (encode(MASK) if is_secret else self.json(value))

    def _cached_json(self, value: object, convert: Callable[[], object]) -> bytes:
        """Return the JSON of an object. The cache keeps the object alive, so its id cannot be reused."""
        self._forget_outdated()
        cached = self._objects.get(id(value))
        if cached is None:
            cached = self._objects[id(value)] = value, self._whole_json(convert())
        return cached[1]

    def _whole_json(self, value: object) -> bytes:
        """Convert the value in one step if there is nothing to mask, else piece by piece."""
        try:
            encoded = to_json(value, inf_nan_mode="null", fallback=_refuse)
        except (ValueError, TypeError):  # an unknown type, a cycle, or a lone surrogate
            return encode(self.plain(value))
        text = encoded.decode()
        if len(text) > MAX_TEXT or self.redactor.mask(text) != text:
            return encode(self.plain(value))
        return encoded

    def plain(self, value: object, depth: int = 0) -> Plain:
        """Return a value of any type as plain data, piece by piece."""
        kind = type(value)
        if kind is str:
            return self.text(cast(str, value))
        if value is None or kind is bool:
            return value
        if kind is int or kind is float:
            return MASK if str(value) in self.redactor else value
        if depth > MAX_TRACED_DEPTH:
            return "…"
        if kind is dict or isinstance(value, Mapping):
            return self._plain_mapping(cast(Mapping[Any, object], value), depth + 1)
        if kind is list or isinstance(value, list | tuple | set | frozenset):
            return [self.plain(item, depth + 1) for item in cast(Iterable[object], value)]
        return self._plain_object(value, depth)

    def _plain_mapping(self, value: Mapping[Any, object], depth: int) -> Plain:
        plain = {}
        for key, item in value.items():
            name = key if type(key) is str else str(key)
            is_secret = item is not None and is_credential_name(name)
            plain[self.text(name)] = MASK if is_secret else self.plain(item, depth)
        return plain

    def _plain_object(self, value: object, depth: int) -> Plain:
        if isinstance(value, bytes | bytearray | memoryview):
            return f"<{len(value):,} bytes>"
        if isinstance(value, str | int | float | Decimal | PurePath):  # subclasses of text and numbers
            return self.text(str(value))
        if hasattr(value, "to_json"):
            return self.plain(value.to_json(), depth + 1)
        if hasattr(value, "model_dump"):
            return self.plain(value.model_dump(), depth + 1)
        if is_dataclass(value) and not isinstance(value, type):
            return self._plain_mapping({field.name: getattr(value, field.name) for field in fields(value)}, depth + 1)
        return self.text(repr(value))


def encode_name(name: str) -> bytes:
    """Return a name as JSON."""
    return encode(name)


def _refuse(value: object) -> object:
    raise TypeError(type(value).__name__)


def encode(value: Plain) -> bytes:
    """Return plain data as JSON."""
    try:
        return to_json(value, inf_nan_mode="null")
    except ValueError:  # a lone surrogate
        return dumps(value).encode()
