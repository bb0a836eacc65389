"""Role markers (§2.10): the lines of a body that start a message.

A marker is alone on its line, in upper or lower case: `system:`, `# user:`, `assistant[name="Ada", turn=3]:`. Each
line is scanned once, from left to right, because a single regular expression takes seconds on `system[a=a=a=…`.

Only the template can start a message. `mark` puts ROLE_MARK before and after every marker of a template, a renderer
replaces it with a nonce that is new for each render, and the parser accepts only markers between two nonces. So the
text of an input never starts a message.
"""

import re
from functools import lru_cache
from typing import NamedTuple

# A noncharacter, which Unicode reserves for internal use, so no template has a reason to contain it.
ROLE_MARK = "\ufdd0"

ROLES = ("system", "user", "assistant", "developer")
_HEAD = re.compile(rf"[ \t]*#?[ \t]*({'|'.join(ROLES)})[ \t]*(?=[\[:])", re.IGNORECASE)
_KEY = re.compile(r"[ \t]*([A-Za-z_][\w.-]*)[ \t]*=[ \t]*")
_VALUE = re.compile(r'"([^"\n]*)"|\'([^\'\n]*)\'|([^\s,="\'\[\]{}]+)')
_SEPARATOR = re.compile(r"[ \t]*([,\]])")
_TAIL = re.compile(r"[ \t]*:[ \t]*\Z")

Attributes = dict[str, str | int | bool]


class Marker(NamedTuple):
    """The role and the attributes of a marker line."""

    role: str
    attributes: Attributes


@lru_cache(maxsize=1024)
def read_marker(line: str) -> Marker | None:
    """Parse a whole line as a role marker. Return None if it is not one."""
    head = _HEAD.match(line)
    if head is None:
        return None
    position, attributes = head.end(), Attributes()
    if line[position] == "[":
        parsed = _read_attributes(line, position + 1)
        if parsed is None:
            return None
        attributes, position = parsed
    return Marker(head[1].lower(), attributes) if _TAIL.match(line, position) else None


def _read_attributes(line: str, position: int) -> tuple[Attributes, int] | None:
    attributes: Attributes = {}
    while key := _KEY.match(line, position):
        value = _VALUE.match(line, key.end())
        separator = _SEPARATOR.match(line, value.end()) if value else None
        if value is None or separator is None:
            return None
        attributes[key[1]] = _convert_word(value[3]) if value[3] else value[1] or value[2] or ""
        position = separator.end()
        if separator[1] == "]":
            return attributes, position
    return None


def _convert_word(word: str) -> str | int | bool:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    if word.removeprefix("-").isdecimal() and len(word) < 20:
        return int(word)
    return word


def marker_lines(text: str) -> list[tuple[int, int, Marker]]:
    """Return the start, the end and the marker of every marker line in a text."""
    markers, start = [], 0
    for line in text.split("\n"):
        end = start + len(line)
        if line.rstrip().endswith(":") and (marker := read_marker(line)):
            markers.append((start, end, marker))
        start = end + 1
    return markers


@lru_cache(maxsize=256)
def mark(template: str) -> str:
    """Put ROLE_MARK around every marker line of a template."""
    template = template.replace(ROLE_MARK, "")
    pieces, position = [], 0
    for start, end, _ in marker_lines(template):
        pieces += [template[position:start], ROLE_MARK, template[start:end], ROLE_MARK]
        position = end
    return "".join([*pieces, template[position:]])
