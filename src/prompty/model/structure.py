"""The structure of a template: the lines that start a message, and their attributes.

Only the template can start a message. `mark` puts ROLE_MARK before and after every role marker of a template, and
before and after every attribute value that is not plain text. A renderer replaces each mark with a nonce, new for each
render, and the parser reads the markers back. So text from an input never starts a message and never adds an attribute:
`user[name="{{ n }}"]:` has only the attribute `name`, regardless of `n`.

A line whose role or attribute names are computed, such as `{{ role }}:`, is text. Its colon is followed by two adjacent
marks, so that it is refused where it would let a user write into a system message.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from prompty.model.marker import HOLE, ROLE_MARK, ROLES, scan_marker

PRIVILEGED = ("system", "developer")
_PLAIN_VALUE = re.compile(r"[\w .,:;/@+-]*\Z")
_DELIMITERS = re.compile(r"\{\{=[ \t]*(\S{1,9})[ \t]+(\S{1,9})[ \t]*=\}\}")
_MAX_CUSTOM = 10  # delimiters that a template sets; each is searched for in every line
_EXPRESSION, _TAG = "\0", "\1"
_SECTION_SIGNS = ("#", "^", "/", "!", "=")
_TAGS = re.compile(r"\{%[-+]?[ \t]*(\w*)|\{\{([#^/=])([^}]*)")
_BLANK_OR_SYNTAX = re.compile(r"[ \t\0\1]+")


COMPUTED_ROLE = (
    "this line is text, not a role marker: only attribute values of a role marker can be computed",
    "Write the role literally, or pass the conversation as an input of kind `thread`. If you mean text, start the line "
    "with other text, for example `- `.",
)


class ComputedMarker(NamedTuple):
    """A line that looks like a role marker but is text, because more than an attribute's value is computed."""

    start: int
    end: int
    line: int
    is_privileged: bool  # it follows a system or developer marker, or no marker


class Structure(NamedTuple):
    """A template with its marks, and its computed markers."""

    marked: str
    computed: tuple[ComputedMarker, ...]


class ChangedMarker(Exception):
    """Rendering changed a role marker. `is_computed` means that text would have become an instruction."""

    def __init__(self, *, is_computed: bool = False) -> None:
        super().__init__("a role marker is computed" if is_computed else "a role marker was changed by the template")
        self.is_computed = is_computed


def read_structure(template: str) -> Structure:
    """Find the role markers of a template."""
    template = template.replace(ROLE_MARK, "").replace(HOLE, "")
    syntax = _Syntax(template)
    pieces: list[str] = []
    computed: list[ComputedMarker] = []
    start, position, role = 0, 0, "system"
    for number, line in enumerate(template.split("\n"), 1):
        cuts: list[int] = []
        masked = syntax.mask(line)
        if ":" in masked and (found := _find_marks(line, masked)):
            role, cuts = found
        elif masked is not line and (place := _find_computed(line, masked)) is not None:
            content = line.strip()
            first = start + line.index(content)
            computed.append(ComputedMarker(first, first + len(content), number, role in PRIVILEGED))
            cuts = [place, place]
        for cut in cuts:
            pieces += [template[position : start + cut], ROLE_MARK]
            position = start + cut
        start += len(line) + 1
    return Structure("".join([*pieces, template[position:]]), tuple(computed))


@dataclass(slots=True)
class TemplateText:
    """What is known of the text of a template: it with its role marks, and what others found in it, by engine."""

    marked: str
    names: dict[object, frozenset[str] | None] = field(default_factory=dict)
    static: dict[object, tuple[str, ...]] = field(default_factory=dict)


@lru_cache(maxsize=256)  # every render calls it
def read_template(template: str) -> TemplateText:
    """Return what is known of a template. It is found once for as long as the template is in use."""
    return TemplateText(read_structure(template).marked)


def mark(template: str) -> str:
    """Put ROLE_MARK around every role marker of a template, and around its rendered values."""
    return read_template(template).marked


class _Syntax:
    """The delimiters of a template: those of Jinja2 and Mustache, and those that a Mustache tag sets."""

    def __init__(self, template: str) -> None:
        self.closings: dict[str, str] = {"{{{": "}}}", "{{": "}}", "{%": "%}", "{#": "#}"}
        if "{{=" in template:
            custom = [(found[1], found[2]) for found in islice(_DELIMITERS.finditer(template), _MAX_CUSTOM)]
            self.closings = dict(custom) | self.closings
        self.opening: re.Pattern[str] = _any_of(self.closings)
        self.any: re.Pattern[str] = _any_of([*self.closings, *self.closings.values()])
        self._spans_lines = False  # a tag of an earlier line did not end on it

    def mask(self, line: str) -> str:
        """Overwrite every expression of a line with \\0, and every tag, which renders as nothing, with \\1.

        A tag that spans lines is cut at the line's ends. Call this for all lines in their order: a lone `}}` is text,
        such as the end of a JSON object, if every tag before it ended on its own line.
        """
        first = self.any.search(line)
        if first is None:
            return line
        pieces, position = [], 0
        if first[0] not in self.closings and self._spans_lines:
            position = first.end()
            pieces.append((_TAG if first[0] in ("%}", "#}") else _EXPRESSION) * position)
        while opening := self.opening.search(line, position):
            closing = self.closings[opening[0]]
            found = line.find(closing, opening.end())
            self._spans_lines |= found < 0
            end = found + len(closing) if found >= 0 else len(line)
            is_tag = opening[0] in ("{%", "{#") or line[opening.end() : opening.end() + 1] in _SECTION_SIGNS
            pieces += [line[position : opening.start()], (_TAG if is_tag else _EXPRESSION) * (end - opening.start())]
            position = end
        self._spans_lines |= bool(pieces) and line.count("{") > line.count("}")  # {{ {"a": {"b": 1}}
        return "".join([*pieces, line[position:]]) if pieces else line


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))


def _find_marks(line: str, masked: str) -> tuple[str, list[int]] | None:
    """Return the role and the positions of the marks if the line is a marker, with or without tags around it."""
    lead, tail = len(masked) - len(masked.lstrip("\1 \t")), len(masked.rstrip("\1 \t"))
    start, end = masked.rfind(_TAG, 0, lead) + 1, masked.find(_TAG, tail)
    scanned = scan_marker(masked, start, end if end >= 0 else len(masked))
    if scanned is None:
        return None
    role, values = scanned
    places = [start]
    for _, value in values:
        span = value.span(value.lastindex or 0)
        if not _PLAIN_VALUE.match(masked, *span):
            if not _is_balanced(line[slice(*span)]):
                return None
            places += span
    return role, [*places, end if end >= 0 else len(masked)]


def _is_balanced(value: str) -> bool:
    """Return True if every tag in an attribute's value is closed in it."""
    opened: list[str] = []
    for word, sign, name in _TAGS.findall(value):
        if word in ("if", "for") or sign in ("#", "^"):
            opened.append(word or name.strip())
        elif word in ("endif", "endfor") or sign == "/":
            if not opened or opened.pop() != (word.removeprefix("end") or name.strip()):
                return False
        elif (word or sign == "=") and (word not in ("else", "elif") or not opened):
            return False
    return not opened


def _find_computed(line: str, masked: str) -> int | None:
    """Return the position for marks if the role of the line, or the names of its attributes, are computed."""
    content = masked.rstrip(" \t\1")
    head, bracket, attributes = content.partition("[")
    if content.endswith(":") and (not bracket or attributes.rstrip(" \t:").endswith("]")):
        head, place = head.removesuffix(":"), len(content)
    elif "=" in attributes and "]" not in attributes and _has_open_tag(line, masked):
        place = len(head) + 1
    else:
        return None
    words = list(filter(None, _BLANK_OR_SYNTAX.split(head.strip(" \t\0\1").removeprefix("#"))))
    is_computed = _EXPRESSION in head or bool(words)
    return place if is_computed and all(word.lower() in ROLES for word in words) else None


def _has_open_tag(line: str, masked: str) -> bool:
    return masked.endswith((_EXPRESSION, _TAG)) and not line.endswith(("}}", "%}", "#}"))
