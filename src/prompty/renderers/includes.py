"""The tags of a template by which files are composed when they are loaded: includes of partials, and blocks."""

from typing import NamedTuple

from prompty.errors import RenderError


class WrongInclude(RenderError):
    """An include has a form, or stands in a place, in which its file cannot be inserted as text."""


class Include(NamedTuple):
    """A tag, from the character `start` up to `end` of its template, and the file that it names.

    Every line of the file but the first is indented by `indent`, as Mustache does with a tag that is alone on its line.
    """

    start: int
    end: int
    line: int
    name: str
    indent: str = ""


class Block(NamedTuple):
    """A part of a template that a variant can replace, from the character `start` up to `end`.

    Its text is between `inner_start` and `inner_end`, and begins in `line`. `parents` are the blocks around it.
    """

    name: str
    start: int
    end: int
    inner_start: int
    inner_end: int
    line: int
    parents: tuple[str, ...]
