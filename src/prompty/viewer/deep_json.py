"""Parse JSON of any depth. `json.loads` is limited by the stack, and a trace of nested agents can be deeper."""

import json
import re
from dataclasses import dataclass, field

# Brackets and separators, strings, other scalars; a lone quote starts a string that does not end.
_SYMBOL = re.compile(r'[{}\[\],:]|"[^"\\]*(?:\\.[^"\\]*)*"|[^\s{}\[\],:"]+|"', re.DOTALL)
_CLOSING = {"[": "]", "{": "}"}


def parse_json(text: str | bytes) -> object:
    """Parse JSON. Raise `ValueError` if it is malformed."""
    try:
        return json.loads(text)
    except RecursionError:
        return _parse_without_recursion(text if isinstance(text, str) else text.decode())


def _parse_without_recursion(text: str) -> object:
    document = _Container("")
    stack = [document]
    for match in _SYMBOL.finditer(text):
        symbol = match[0]
        if symbol in _CLOSING:
            stack.append(_Container(symbol))
        elif symbol in ",:":
            stack[-1].separate(symbol)
        elif symbol in "]}":
            value = stack.pop().close(symbol)
            stack[-1].add(value)
        else:
            stack[-1].add(json.loads(symbol))
    if len(stack) > 1 or len(document.items) != 1 or document.separators:
        raise ValueError("the JSON ends too early")
    return document.items[0]


@dataclass(slots=True)
class _Container:
    """An array, an object (keys and values in turn), or the document itself, which has no bracket."""

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

    def close(self, symbol: str) -> object:
        complete = len(self.items) == (self.separators + 1 if self.items else self.separators)
        if symbol != _CLOSING.get(self.bracket) or not complete or (self.bracket == "{" and len(self.items) % 2):
            raise ValueError(f"the JSON has a '{symbol}' in the wrong place")
        return self.items if self.bracket == "[" else dict(zip(self.items[::2], self.items[1::2], strict=True))
