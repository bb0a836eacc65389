"""Role markers (§2.10): the lines of a body that start a message.

`system:`, `# user:`, `assistant[name="Ada", turn=3]:` — alone on a line, in any case. Everything here scans a
line once, left to right: the obvious regular expression takes seconds on `system[a=a=a=…`.

Structure comes from the template only. `mark` puts ROLE_MARK before and after every marker of a template; a
renderer writes a nonce of this one render in its place, and the parser trusts nothing else. What an input says
can then never start a message, whatever it says.
"""

import re
from functools import lru_cache
from typing import NamedTuple

# A noncharacter: Unicode keeps it for internal use, so no template has a reason to hold one.
ROLE_MARK = "\ufdd0"

ROLES = ("system", "user", "assistant", "developer")
_HEAD = re.compile(rf"[ \t]*#?[ \t]*({'|'.join(ROLES)})[ \t]*(?=[\[:])", re.IGNORECASE)
_KEY = re.compile(r"[ \t]*([A-Za-z_][\w.-]*)[ \t]*=[ \t]*")
_VALUE = re.compile(r'"([^"\n]*)"|\'([^\'\n]*)\'|([^\s,="\'\[\]{}]+)')
_NEXT = re.compile(r"[ \t]*([,\]])")
_TAIL = re.compile(r"[ \t]*:[ \t]*\Z")

Attributes = dict[str, str | int | bool]


class Marker(NamedTuple):
    """What a marker line says."""

    role: str
    attributes: Attributes


@lru_cache(maxsize=1024)
def read_marker(line: str) -> Marker | None:
    """Read a whole line as a role marker; None when it is anything else."""
    head = _HEAD.match(line)
    if head is None:
        return None
    position, attributes = head.end(), Attributes()
    if line[position] == "[":
        found = _read_attributes(line, position + 1)
        if found is None:
            return None
        attributes, position = found
    return Marker(head[1].lower(), attributes) if _TAIL.match(line, position) else None


def _read_attributes(line: str, position: int) -> tuple[Attributes, int] | None:
    attributes: Attributes = {}
    while key := _KEY.match(line, position):
        value = _VALUE.match(line, key.end())
        following = _NEXT.match(line, value.end()) if value else None
        if value is None or following is None:
            return None
        attributes[key[1]] = _typed(value[3]) if value[3] else value[1] or value[2] or ""
        position = following.end()
        if following[1] == "]":
            return attributes, position
    return None


def _typed(word: str) -> str | int | bool:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    if word.removeprefix("-").isdecimal() and len(word) < 20:
        return int(word)
    return word


def marker_lines(text: str) -> list[tuple[int, int, Marker]]:
    """Every marker line of a text as (start, end, marker)."""
    found, start = [], 0
    for line in text.split("\n"):
        end = start + len(line)
        if line.rstrip().endswith(":") and (marker := read_marker(line)):
            found.append((start, end, marker))
        start = end + 1
    return found


@lru_cache(maxsize=256)
def mark(template: str) -> str:
    """Put ROLE_MARK around every marker line of a template."""
    template = template.replace(ROLE_MARK, "")
    pieces, done = [], 0
    for start, end, _ in marker_lines(template):
        pieces += [template[done:start], ROLE_MARK, template[start:end], ROLE_MARK]
        done = end
    return "".join([*pieces, template[done:]])
