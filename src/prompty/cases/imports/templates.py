"""Convert text with `{{variables}}` of other template languages to the body of a prompt.

Variables, and the few tags that mean the same in Jinja2, are kept. Everything else stays the text that it is: braces
and lines that look like role markers are escaped.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from jinja2 import Environment, TemplateSyntaxError, meta, nodes

from prompty.model.marker import ROLES

_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
# Names with a meaning of their own: the environment in promptfoo, and functions and constants in Jinja2.
_TAKEN = (
    "env|self|super|caller|varargs|kwargs|range|dict|lipsum|cycler|joiner|namespace|true|false|none|True|False|None"
)
_PATH = rf"(?!(?:{_TAKEN})\b)[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[\d{{1,9}}\])*"
_FILTERS = "upper|lower|trim|length|title|capitalize|first|last"
_VARIABLE = re.compile(rf"\{{\{{-?[ \t]*{_PATH}(?:[ \t]*\|[ \t]*(?:{_FILTERS}))*[ \t]*-?\}}\}}")
_STATEMENT = re.compile(
    rf"\{{%-?[ \t]*(?:(?:if|elif)[ \t]+(?:not[ \t]+)?{_PATH}|else|endif|endfor"
    rf"|for[ \t]+[A-Za-z_]\w*[ \t]+in[ \t]+{_PATH})[ \t]*-?%\}}"
)
_OPENING = re.compile(r"\{(?=[{%#]|\Z)")
_NAME = re.compile(r"\{\{-?[ \t]*([A-Za-z_]\w*)[ \t]*-?\}\}")
_MARKER = re.compile(
    rf"((?:^|(?<=[ \t}}#]))(?:{'|'.join(ROLES)})[ \t]*|\][ \t]*):(?=[ \t]*(?:$|\{{[{{%]))", re.IGNORECASE | re.MULTILINE
)
_ENVIRONMENT = Environment(autoescape=False)  # noqa: S701  it only parses; nothing is rendered


class Converted(NamedTuple):
    """A Jinja2 template, and the tags of the source that became text in it."""

    template: str
    escaped: list[str]


def convert_template(text: str) -> Converted:
    """Convert a template of promptfoo (Nunjucks) or GitHub Models."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for keep in (_keep_all, _keep_variables):
        pieces = list(_convert(text, keep))
        template = _MARKER.sub(r'\1{{ ":" }}', "".join(piece for piece, _ in pieces))
        if _parse(template) is not None:
            return Converted(template, [tag for _, tag in pieces if tag])
    return Converted(escape_text(text), _TAG.findall(text))


def escape_text(text: str) -> str:
    """Return a template that renders as this text."""
    return _MARKER.sub(r'\1{{ ":" }}', _OPENING.sub('{{ "{" }}', text))


def escape_pattern(text: str) -> str:
    """Return a regular expression for a text. Spaces stay readable."""
    return re.escape(text).replace("\\ ", " ")


def find_variables(template: str) -> set[str]:
    """Return the names of the inputs that a Jinja2 template uses."""
    parsed = _parse(template)
    return set() if parsed is None else meta.find_undeclared_variables(parsed)


def substitute(text: str, values: Mapping[str, object]) -> str | None:
    """Return a text with its `{{variables}}` replaced by values, or None if that takes more than replacing."""
    missing = False

    def replace(found: re.Match[str]) -> str:
        nonlocal missing
        value = values.get(found[1])
        missing = missing or isinstance(value, list | dict) or found[1] not in values
        return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    rest = _NAME.sub("", text)
    if _OPENING.search(rest):
        return None
    replaced = _NAME.sub(replace, text)
    return None if missing else replaced


def _convert(text: str, keep: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield the pieces of a template, each with the tag of the source that it stands for if that became text."""
    position = 0
    for tag in _TAG.finditer(text):
        yield _OPENING.sub('{{ "{" }}', text[position : tag.start()]), ""
        position = tag.end()
        if keep.fullmatch(tag[0]):
            yield tag[0], ""
        else:
            yield _OPENING.sub('{{ "{" }}', tag[0]), tag[0]
    yield _OPENING.sub('{{ "{" }}', text[position:]), ""


def _parse(template: str) -> nodes.Template | None:
    try:
        return _ENVIRONMENT.parse(template)
    except (TemplateSyntaxError, RecursionError):
        return None


_keep_all = re.compile(f"{_VARIABLE.pattern}|{_STATEMENT.pattern}")
_keep_variables = _VARIABLE
