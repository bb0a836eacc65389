"""Role markers (§2.10): the lines of a text that start a message.

A marker is alone on its line, in upper or lower case: `system:`, `# user:`, `assistant[name="Ada", turn=3]:`. Each
line is scanned once, from left to right, because a single regular expression takes seconds on `system[a=a=a=…`.

`prompty.model.structure` finds the markers of a template, whose attributes may contain expressions. In such a marker, a
HOLE replaces each rendered value.
"""

import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

# Noncharacters, which Unicode reserves for internal use, so no template needs them.
ROLE_MARK = "\ufdd0"
HOLE = "\ufdd1"

ROLES = ("system", "user", "assistant", "developer")
_HEAD = re.compile(rf"[ \t]*(?:#[ \t]*)?({'|'.join(ROLES)})[ \t]*(?=[\[:])", re.IGNORECASE)
_HEAD_AND_COLON = re.compile(rf"[ \t]*(?:#[ \t]*)?({'|'.join(ROLES)})[ \t]*:", re.IGNORECASE)
_KEY = re.compile(r"[ \t]*([A-Za-z_][\w.-]*)[ \t]*=[ \t]*")
_SEPARATOR = re.compile(r"[ \t]*([,\]])")
_TAIL = re.compile(r"[ \t]*:[ \t]*\Z")
_WORD = 3  # the group of an unquoted value
_VALUE = re.compile(r'"([^"\n]*)"|\'([^\'\n]*)\'|([^\s,="\'\[\]{}]+)')


class Hole(NamedTuple):
    """A rendered value. `number` counts the holes of a marker from 0."""

    number: int
    quoted: bool


Attributes = dict[str, str | int | bool]


class Marker(NamedTuple):
    """The role and the attributes of a marker line."""

    role: str
    attributes: Attributes
    holes: dict[str, Hole]

    def fill(self, values: Sequence[str]) -> Attributes:
        """Return the attributes with a value for each hole. No character in a value is special."""
        filled = self.attributes.copy()
        for key, hole in self.holes.items():
            text = values[hole.number]
            filled[key] = text if hole.quoted else _convert_word(text)
        return filled


@lru_cache(maxsize=1024)
def read_marker(line: str) -> Marker | None:
    """Parse a whole line as a role marker. Return None if it is not one."""
    scanned = scan_marker(line)
    if scanned is None:
        return None
    role, values = scanned
    marker, holes = Marker(role, {}, {}), 0
    for key, value in values:
        text, quoted = value[value.lastindex or 0], value.lastindex != _WORD
        marker.attributes[key] = text if quoted else _convert_word(text)
        marker.holes.pop(key, None)
        if text == HOLE:
            marker.holes[key] = Hole(holes, quoted)
            holes += 1
    return marker


def find_role_line(text: str) -> str | None:
    """Return the role of the first line that is a role marker, or that other runtimes read as one: `system: text`."""
    for line in text.splitlines():
        if head := _HEAD_AND_COLON.match(line):
            return head[1].lower()
        if "[" in line and (scanned := scan_marker(line)):
            return scanned[0]
    return None


def scan_marker(
    line: str, start: int = 0, end: int = sys.maxsize
) -> tuple[str, list[tuple[str, re.Match[str]]]] | None:
    """Return a marker's role, and its keys with the match of each value, whose last group is the value."""
    head = _HEAD.match(line, start, end)
    if head is None:
        return None
    position, values = head.end(), list[tuple[str, re.Match[str]]]()
    if line[position] == "[":
        separator = None
        while key := _KEY.match(line, position + 1 if separator is None else separator.end(), end):
            value = _VALUE.match(line, key.end(), end)
            separator = _SEPARATOR.match(line, value.end(), end) if value else None
            if value is None or separator is None:
                return None
            values.append((key[1], value))
            if separator[1] == "]":
                break
        else:
            return None
        position = separator.end()
    return (head[1].lower(), values) if _TAIL.match(line, position, end) else None


def _convert_word(word: str) -> str | int | bool:
    """Return an unquoted value as a boolean or an integer if possible, else as text."""
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
