"""The Jinja2 tags that compose files: `{% include "_name" %}` and `{% block name %}`."""

from collections.abc import Iterator
from typing import NamedTuple

from jinja2 import Environment

from prompty.renderers.includes import Include, TemplateBlock, WrongInclude

_Token = tuple[int, str, str]


class _Tag(NamedTuple):
    """The range of a tag, the line it ends in, and its tokens."""

    start: int
    end: int
    line: int
    tokens: list[_Token]

    @property
    def keyword(self) -> str:
        return self.tokens[0][2] if self.tokens else ""


def find_includes(environment: Environment, template: str) -> Iterator[Include]:
    """Yield the includes of a template. Raise WrongInclude for a form that cannot be inserted as text."""
    if "include" not in template:
        return
    for tag in _find_tags(environment, template):
        if tag.keyword == "include":
            yield Include(tag.start, tag.end, tag.line, _read_name(tag.tokens))


def _read_name(tokens: list[_Token]) -> str:
    match tokens:
        case [_, (_, "string", quoted)]:
            return quoted[1:-1]
    cause = "an include must name one file in quotes, without options"
    raise WrongInclude(cause, 'Write {% include "_name.md" %}.', tokens[0][0])


def find_blocks(environment: Environment, template: str) -> Iterator[TemplateBlock]:
    """Yield the blocks of a template, each after the blocks in it."""
    if "block" not in template:
        return
    opened: list[_Tag] = []
    for tag in _find_tags(environment, template):
        if tag.keyword == "block" and len(tag.tokens) > 1:
            opened.append(tag)
        elif tag.keyword == "endblock" and opened:
            opening = opened.pop()
            parents = tuple(outer.tokens[1][2] for outer in opened)
            name = opening.tokens[1][2]
            line = 1 + template.count("\n", 0, opening.end)
            yield TemplateBlock(name, opening.start, tag.end, opening.end, tag.start, line, parents)


def _find_tags(environment: Environment, template: str) -> Iterator[_Tag]:
    """Yield the tags of a template. Whitespace that a tag removes belongs to it."""
    position, start, tokens = 0, 0, list[_Token]()
    for token in environment.lexer.tokeniter(template, None):
        _, kind, value = token
        at = template.index(value, position)  # whitespace that a tag removes is in no token
        before, position = position, at + len(value)
        if kind == "block_begin":
            start = before + len(template[before:at].rstrip()) if value.endswith("-") else at
            tokens = []
        elif kind == "block_end":
            yield _Tag(start, position, token[0], tokens)
        elif kind != "whitespace":
            tokens.append(token)
