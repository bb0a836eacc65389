"""The public functions; those that can wait have a twin in `api_async`."""

from prompty.parsers import Parser, parsers
from prompty.pipeline.load import load, loads
from prompty.pipeline.prepare import parse, prepare, render
from prompty.pipeline.validate import validate_inputs
from prompty.renderers import Renderer, renderers

__all__ = [
    "load",
    "loads",
    "parse",
    "prepare",
    "register_parser",
    "register_renderer",
    "render",
    "validate_inputs",
]


def register_renderer(name: str, renderer: Renderer) -> None:
    """Let files say `template: {format: {kind: name}}`."""
    renderers.register(name, renderer)


def register_parser(name: str, parser: Parser) -> None:
    """Let files say `template: {parser: {kind: name}}`."""
    parsers.register(name, parser)
