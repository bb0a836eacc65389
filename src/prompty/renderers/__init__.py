"""Template engines, which render a template and its inputs to text without reading files or using the network.

A renderer receives the template with `ROLE_MARK` (`prompty.model.marker`) before and after every role marker and every
rendered value of an attribute, and replaces each with `nonce`. A minimal engine:

    def render(template, inputs, /, *, nonce="", strict=False):
        return my_engine(template.replace(ROLE_MARK, nonce), inputs)
"""

from collections.abc import Mapping
from typing import Protocol

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
