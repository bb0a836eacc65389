"""Includes: the tags of a template that name partials, which are inserted when a file is loaded."""

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
