"""The `{% include "_name" %}` tags of a Jinja2 template."""

from collections.abc import Iterator

from jinja2 import Environment

from prompty.renderers.includes import Include, WrongInclude

_Token = tuple[int, str, str]


def find_includes(environment: Environment, template: str) -> Iterator[Include]:
    """Yield the includes of a template. Raise WrongInclude for a form that cannot be inserted as text."""
    if "include" not in template:
        return
    position, start, tag = 0, 0, list[_Token]()
    for token in environment.lexer.tokeniter(template, None):
        line, kind, value = token
        at = template.index(value, position)  # whitespace that a tag removes is in no token
        before, position = position, at + len(value)
        if kind == "block_begin":
            start = before + len(template[before:at].rstrip()) if value.endswith("-") else at
            tag = []
        elif kind == "block_end":
            if tag and tag[0][2] == "include":
                yield Include(start, position, line, _read_name(tag))
        elif kind != "whitespace":
            tag.append(token)


def _read_name(tag: list[_Token]) -> str:
    match tag:
        case [_, (_, "string", quoted)]:
            return quoted[1:-1]
    cause = "an include names one file, as text and without options"
    raise WrongInclude(cause, 'Write {% include "_name.md" %}.', tag[0][0])
