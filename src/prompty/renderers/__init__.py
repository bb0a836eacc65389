"""Template engines, which render a template and its inputs to text without reading files or using the network.

A renderer receives the template with `ROLE_MARK` (`prompty.model.marker`) before and after every role marker and every
rendered value of an attribute, and replaces each with `nonce`. A minimal engine:

    def render(template, inputs, /, *, nonce="", strict=False):
        return my_engine(template.replace(ROLE_MARK, nonce), inputs)
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from prompty.errors import RenderError
from prompty.registry import DEFAULT, ExtensionPoint, Registry


class Renderer(Protocol):
    """Renders a template with its inputs. With `strict`, a variable without a value is an error.

    A renderer may also have a method `variables(template)` that returns the names a template reads, with the line of
    the first use. `prompty check` compares them with the inputs of the file.
    """

    def __call__(
        self, template: str, inputs: Mapping[str, object], /, *, nonce: str = "", strict: bool = False
    ) -> str: ...


RENDERERS: ExtensionPoint[Renderer] = ExtensionPoint("renderer")


def register_renderer(name: str, renderer: Renderer, *, registry: Registry = DEFAULT) -> None:
    """Register a renderer for files with `template: {format: {kind: <name>}}`."""
    registry[RENDERERS].register(name, renderer)


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


class NameUse(NamedTuple):
    """The name of a variable in a template, and its range. `is_local` is True if the template may give it a value."""

    name: str
    start: int
    end: int
    is_local: bool = False
