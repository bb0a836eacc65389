"""Texts of open files, and positions in them.

A position of the protocol counts lines from 0, and units of UTF-16 in a line. A `Problem` counts lines and characters
from 1. Both end lines at `\\n`, `\\r\\n` and `\\r`, so they agree on lines.
"""

import re
from bisect import bisect_right
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from prompty.lsp.wire import INVALID_PARAMS, RequestFailed

_LINE_END = re.compile(r"\r\n|\n|\r")
_BOM = "\ufeff"

Position = dict[str, int]
TextRange = dict[str, Position]


def to_path(uri: str) -> Path | None:
    """Return the path of a `file:` URI, or None for other documents."""
    try:
        parts = urlsplit(uri)
        if parts.scheme != "file":
            return None
        path = unquote(parts.path)
        return Path(path[1:] if re.match(r"/[A-Za-z]:", path) else path) if "\x00" not in path else None
    except ValueError:
        return None


def to_uri(path: Path | str) -> str:
    text = Path(path).absolute().as_posix()
    return f"file://{'' if text.startswith('/') else '/'}{quote(text)}"


def replace_surrogates(text: str) -> str:
    """Replace halves of characters, which JSON may have, and which cannot be written."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") if not text.isascii() else text


class Text:
    """A text with positions. `line_ends` are as in the protocol, so that `\\f` and U+2028 do not end a line."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def starts(self) -> list[int]:
        return [0, *(end.end() for end in _LINE_END.finditer(self.text))]

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends."""
        return _LINE_END.split(self.text)

    def to_offset(self, position: object) -> int:
        """Return the offset of a position of the protocol. One that is behind its line or the text means the end."""
        line, units = _read_position(position)
        if line >= len(self.lines):
            return len(self.text)
        text = self.lines[line]
        if text.isascii():
            return self.starts[line] + min(units, len(text))
        column = 0
        for character in text:
            units -= 2 if ord(character) > 0xFFFF else 1
            if units < 0:
                break
            column += 1
        return self.starts[line] + column

    def to_position(self, offset: int) -> Position:
        line = bisect_right(self.starts, offset) - 1
        return {"line": line, "character": _count_units(self.text[self.starts[line] : offset])}

    def to_range(self, start: int, end: int) -> TextRange:
        return {"start": self.to_position(start), "end": self.to_position(end)}

    def place(self, line: int, column: int) -> Position:
        """Return the position of a problem, whose columns do not count a byte order mark."""
        row = min(max(line, 1), len(self.lines)) - 1
        text = self.lines[row]
        if row == 0 and text.startswith(_BOM):
            column += 1
        return {"line": row, "character": _count_units(text[: column - 1])}

    def splice(self, changes: object) -> str:
        """Return the text after changes of the client, each in the text that the ones before it left."""
        current = self
        for change in changes if isinstance(changes, list) else []:
            if not isinstance(change, dict) or not isinstance(text := change.get("text"), str):
                raise RequestFailed(INVALID_PARAMS, "a change needs a text")
            text = replace_surrogates(text)
            place = change.get("range")
            if isinstance(place, dict):
                start, end = current.to_offset(place.get("start")), current.to_offset(place.get("end"))
                text = current.text[:start] + text + current.text[max(start, end) :]
            current = Text(text)
        return current.text


def _count_units(text: str) -> int:
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)


def _read_position(position: Any) -> tuple[int, int]:
    try:
        line, units = position["line"], position["character"]
    except (TypeError, KeyError):
        line = units = None
    if not isinstance(line, int) or not isinstance(units, int) or line < 0 or units < 0:
        raise RequestFailed(INVALID_PARAMS, "a position needs a line and a character")
    return line, units
