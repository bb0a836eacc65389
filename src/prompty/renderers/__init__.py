"""Template engines: a template and its inputs into text. Pure: no files, no network.

A renderer gets the template with ROLE_MARK (`prompty.model.marker`) around every role marker, and writes `nonce` in
its place. For an engine of your own this is enough:

    def render(template, inputs, /, *, nonce="", strict=False):
        return my_engine(template.replace(ROLE_MARK, nonce), inputs)
"""

from collections.abc import Mapping
from typing import Protocol

from prompty.registry import DEFAULT, Registry


class Renderer(Protocol):
    """Turns a template and its inputs into text; with `strict`, a variable without a value is an error.

    It may also have `variables(template)`, the names a template reads with the line of the first use, which
    `prompty check` then compares with the inputs of the file.
    """

    def __call__(
        self, template: str, inputs: Mapping[str, object], /, *, nonce: str = "", strict: bool = False
    ) -> str: ...


def register_renderer(name: str, renderer: Renderer, *, registry: Registry = DEFAULT) -> None:
    """Let files say `template: {format: {kind: name}}`."""
    registry.renderers.register(name, renderer)
