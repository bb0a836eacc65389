"""The tags that compose files on load: includes of partials, and blocks."""

from typing import NamedTuple

from prompty.errors import RenderError


class WrongInclude(RenderError):
    """An include has a form or a position in which its file cannot be inserted as text."""


class Include(NamedTuple):
    """The range of an include in its template, and the file that it names.

    All lines of the file except the first are indented by `indent`, as in Mustache for a tag alone on its line.
    """

    start: int
    end: int
    line: int
    name: str
    indent: str = ""


class TemplateBlock(NamedTuple):
    """The range of a part of a template that a variant can replace.

    Its text is between `inner_start` and `inner_end`, and starts in `line`. `parents` are the blocks around it.
    """

    name: str
    start: int
    end: int
    inner_start: int
    inner_end: int
    line: int
    parents: tuple[str, ...]
