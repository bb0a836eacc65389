"""The body: loops over a conversation become threads, and images on their own lines become image inputs."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prompty.model.marker import read_marker
from prompty.model.structure import read_structure
from prompty.v1.draft import V1Data, V1Note, mapping_or_empty

_FOR = re.compile(r"[ \t]*\{%[-+]?[ \t]*for[ \t]+(\w+)[ \t]+in[ \t]+([A-Za-z_]\w*)[ \t]*[-+]?%\}[ \t]*")
_END = re.compile(r"[ \t]*\{%[-+]?[ \t]*endfor[ \t]*[-+]?%\}[ \t]*")
_FIELD = re.compile(r"""[ \t]*(#[ \t]*)?\{\{-?[ \t]*(\w+)(?:\.(\w+)|\[["'](\w+)["']\])[ \t]*-?\}\}[ \t]*(:?)[ \t]*""")
_IMAGE = re.compile(r"[ \t]*!\[[^\]\n]*\]\(([^()\n]*)\)[ \t]*")
_NAME = re.compile(r"\{\{[ \t]*([A-Za-z_]\w*)[ \t]*\}\}")
_WORD = re.compile(r"\w+")
_TAG = re.compile(r"\{\{[^}]*|\{%[^%]*")
_TOOL_MARKER = re.compile(r"[ \t]*#?[ \t]*tool[ \t]*:[ \t]*", re.IGNORECASE)
_TOOL_FIELD = re.compile(r"[ \t]*##[ \t]*(tool_call_id|tool_calls)[ \t]*:[ \t]*", re.IGNORECASE)
_MAX_LOOP_LINES = 20  # between `for` and `endfor`: a conversation takes two


class BodyEdit(NamedTuple):
    """Replace the characters from `start` up to `end` with the input `name`, of kind thread or image."""

    start: int
    end: int
    name: str
    kind: str
    default: str | None = None

    @property
    def text(self) -> str:
        return f"{{{{{self.name}}}}}"


class _Line(NamedTuple):
    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def find_edits(body: str, data: V1Data) -> list[BodyEdit]:
    """Return the edits of a body, in order. An input that the template also uses elsewhere does not change."""
    lines = _split(body)
    taken = {*mapping_or_empty(data.get("inputs")), *mapping_or_empty(data.get("sample")), *_find_words(body)}
    is_mustache = "mustache" in str(data.get("template"))
    found = sorted([*(() if is_mustache else _find_loops(lines)), *_find_images(lines, taken)])
    outside = _find_words(apply_edits(body, [edit._replace(name="") for edit in found]))
    kinds: dict[str, set[str]] = {}
    for edit in found:
        kinds.setdefault(edit.name, set()).add(edit.kind)
    return [edit for edit in found if edit.name not in outside and len(kinds[edit.name]) == 1]


def apply_edits(body: str, edits: Sequence[BodyEdit]) -> str:
    """Return the body with its edits. Everything else is unchanged."""
    pieces, position = [], 0
    for edit in edits:
        pieces += [body[position : edit.start], edit.text]
        position = edit.end
    return "".join([*pieces, body[position:]])


def find_original(offset: int, edits: Sequence[BodyEdit]) -> int:
    """Map a position in the new body to the v1 body."""
    shift = 0
    for edit in edits:
        if offset < edit.start + shift:
            break
        if offset < edit.start + shift + len(edit.text):
            return edit.start
        shift += len(edit.text) - (edit.end - edit.start)
    return offset - shift


def _split(body: str) -> list[_Line]:
    lines, start = [], 0
    for text in body.split("\n"):
        lines.append(_Line(start, text))
        start += len(text) + 1
    return lines


def _find_words(body: str) -> set[str]:
    """Return the words in the tags and expressions of a template."""
    return {word for tag in _TAG.findall(body) for word in _WORD.findall(tag)}


def _find_loops(lines: Sequence[_Line]) -> Iterator[BodyEdit]:
    """Yield the loops that write each item's role as a marker, followed by its content."""
    for index, line in enumerate(lines):
        head = _FOR.fullmatch(line.text)
        if head is None:
            continue
        block = [below for below in lines[index + 1 : index + 1 + _MAX_LOOP_LINES] if below.text.strip()][:3]
        if len(block) < 3 or not _END.fullmatch(block[2].text):
            continue
        role, content = _FIELD.fullmatch(block[0].text), _FIELD.fullmatch(block[1].text)
        fields = [_read(role), _read(content)] if role and content else []
        if fields == [(head[1], "role", ":"), (head[1], "content", "")] and content and content[1] is None:
            yield BodyEdit(line.start, block[2].end, head[2], "thread")


def _read(field: re.Match[str]) -> tuple[str, str, str]:
    return field[2], field[3] or field[4], field[5]


def _find_images(lines: Sequence[_Line], taken: set[str]) -> Iterator[BodyEdit]:
    """Yield the images that are alone on a line of a user message."""
    role, number = "system", 1
    for line in lines:
        if marker := read_marker(line.text):
            role = marker.role
        image = _IMAGE.fullmatch(line.text) if role == "user" and "](" in line.text else None
        if image is None:
            continue
        source = image[1].strip()
        if name := _NAME.fullmatch(source):
            yield BodyEdit(line.start, line.end, name[1], "image")
        elif source.startswith(("https://", "http://", "data:image/")) and "{" not in source:
            while (free := "image" if number == 1 else f"image_{number}") in taken:
                number += 1
            taken.add(free)
            yield BodyEdit(line.start, line.end, free, "image", source)


def find_untranslatable(body: str, edits: Sequence[BodyEdit]) -> Iterator[V1Note]:
    """Yield the lines that are structure only in v1, and text after a thread."""
    starts = [edit.start for edit in edits]
    images = {edit.start for edit in edits if edit.kind == "image"}
    for start, end, _, _ in read_structure(body).computed:
        before = bisect_right(starts, start) - 1
        if before < 0 or start >= edits[before].end:
            message = "v1 starts a message with this line. In v2 it is text, because its role is computed"
            fix = "Write the role literally, or pass the conversation as an input of kind `thread`."
            yield V1Note((), message, fix, start, end)
    threads = {edit.end for edit in edits if edit.kind == "thread"}
    is_behind_thread, role = False, "system"
    for line in _split(body):
        if marker := read_marker(line.text):
            role = marker.role
        stripped = line.start + len(line.text) - len(line.text.lstrip())
        if marker:
            is_behind_thread = False
        elif is_behind_thread and line.text.strip():
            message = (
                f"v1 adds this text to the last message of the conversation. In v2 it is a separate message: {role}"
            )
            yield V1Note((), message, "Write a role marker before it.", stripped, line.end)
            is_behind_thread = False
        if line.end in threads:
            is_behind_thread = True
        if _TOOL_MARKER.fullmatch(line.text) or _TOOL_FIELD.fullmatch(line.text):
            message = "v1 reads this line as part of a tool call. In v2 it is text"
            yield V1Note((), message, "Pass the conversation as an input of kind `thread`.", stripped, line.end)
        elif role == "user" and _IMAGE.fullmatch(line.text) and line.start not in images:
            message = "v1 reads this line as an image. In v2 it is text"
            yield V1Note(
                (), message, "Declare an input of kind `image`, and insert it with double braces.", stripped, line.end
            )
