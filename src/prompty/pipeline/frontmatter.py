"""Split a file into frontmatter and body (§2.2)."""

import re
from typing import NamedTuple

# A delimiter is a whole line. The printed expression also closes inside values: `apiKey: sk---abc` would pour the
# tail of the key into the prompt.
_CLOSING = re.compile(r"^(?:---|\+\+\+)[ \t]*$", re.MULTILINE)


class Unclosed(ValueError):
    """The opening delimiter has no closing one; `line` is where it opened."""

    def __init__(self, line: int) -> None:
        super().__init__("malformed frontmatter: no closing delimiter")
        self.line = line


class Parts(NamedTuple):
    """The two halves of a file; lines are counted from 1."""

    frontmatter: str | None
    body: str
    frontmatter_line: int
    body_line: int


def normalised(text: str) -> str:
    """Without a byte order mark and with one kind of line ending."""
    text = text.removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def split(text: str) -> Parts:
    """Split normalised text. Without an opening delimiter all of it is body."""
    opening = _opening_end(text)
    if opening is None:
        return Parts(None, text, 1, 1)
    first_line = text.count("\n", 0, opening) + 1
    closing = _CLOSING.search(text, opening + 1)
    if closing is None:
        raise Unclosed(first_line)
    rest = text[closing.end() :]
    body = rest.lstrip()
    body_line = text.count("\n", 0, closing.end() + len(rest) - len(body)) + 1
    return Parts(text[opening + 1 : closing.start()], body.rstrip("\n"), first_line + 1, body_line)


def _opening_end(text: str) -> int | None:
    """Where the opening delimiter's line ends; None when the text starts with anything else."""
    start = len(text) - len(text.lstrip())
    end = text.find("\n", start)
    line = text[start:] if end < 0 else text[start:end]
    if line.rstrip() not in ("---", "+++"):
        return None
    return len(text) if end < 0 else end
