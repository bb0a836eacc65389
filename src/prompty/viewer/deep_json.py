"""JSON of any depth. `json.loads` gives up where Python's stack does, and a trace of nested agents may be deeper."""

import json
import re
from dataclasses import dataclass, field

# Brackets and separators, strings, other scalars; a lone quote is the start of a string that does not end.
_SYMBOL = re.compile(r'[{}\[\],:]|"[^"\\]*(?:\\.[^"\\]*)*"|[^\s{}\[\],:"]+|"', re.DOTALL)
_CLOSING = {"[": "]", "{": "}"}


def loads(text: str | bytes) -> object:
    """The value of a JSON text, however deep; ValueError if it is none."""
    try:
        return json.loads(text)
    except RecursionError:
        return _loads_without_recursion(text if isinstance(text, str) else text.decode())


def _loads_without_recursion(text: str) -> object:
    document = _Container("")
    opened = [document]
    for found in _SYMBOL.finditer(text):
        symbol = found[0]
        if symbol in _CLOSING:
            opened.append(_Container(symbol))
        elif symbol in ",:":
            opened[-1].separate(symbol)
        elif symbol in "]}":
            closed = opened.pop().closed(symbol)
            opened[-1].add(closed)
        else:
            opened[-1].add(json.loads(symbol))
    if len(opened) > 1 or len(document.items) != 1 or document.separators:
        raise ValueError("the JSON ends too early")
    return document.items[0]


@dataclass(slots=True)
class _Container:
    """A list, an object (keys and values in turn), or the document itself, which no bracket closes."""

    bracket: str
    items: list[object] = field(default_factory=list)
    separators: int = 0

    def add(self, value: object) -> None:
        is_key = self.bracket == "{" and len(self.items) % 2 == 0
        if len(self.items) != self.separators or (is_key and not isinstance(value, str)):
            raise ValueError("the JSON has a value in the wrong place")
        self.items.append(value)

    def separate(self, symbol: str) -> None:
        expected = ":" if self.bracket == "{" and len(self.items) % 2 else ","
        if symbol != expected or len(self.items) != self.separators + 1:
            raise ValueError(f"the JSON has a '{symbol}' in the wrong place")
        self.separators += 1

    def closed(self, symbol: str) -> object:
        complete = len(self.items) == (self.separators + 1 if self.items else self.separators)
        if symbol != _CLOSING.get(self.bracket) or not complete or (self.bracket == "{" and len(self.items) % 2):
            raise ValueError(f"the JSON has a '{symbol}' in the wrong place")
        return self.items if self.bracket == "[" else dict(zip(self.items[::2], self.items[1::2], strict=True))
