"""Convert text with `{{variables}}` of other template languages to the body of a prompt.

Variables, and the few tags that mean the same in Jinja2, are kept. Everything else stays the text that it is: braces
and lines that look like role markers are escaped.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, meta

from prompty.model.marker import ROLES
from prompty.safety.json import read_json

Messages = list[tuple[str, str]]  # roles and Jinja2 templates
_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
# Names with a meaning of their own: the environment in promptfoo, and functions and constants in Jinja2.
_TAKEN = "env|self|super|caller|varargs|kwargs|range|dict|lipsum|cycler|joiner|namespace|[Tt]rue|[Ff]alse|[Nn]one"
_PATH = rf"(?!(?:{_TAKEN})\b)[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[\d{{1,9}}\])*"
_FILTERS = "upper|lower|trim|length|title|capitalize|first|last"
_VARIABLE = re.compile(rf"\{{\{{-?[ \t]*{_PATH}(?:[ \t]*\|[ \t]*(?:{_FILTERS}))*[ \t]*-?\}}\}}")
_STATEMENT = (
    rf"\{{%-?[ \t]*(?:(?:if|elif)[ \t]+(?:not[ \t]+)?{_PATH}|else|endif|endfor"
    rf"|for[ \t]+[A-Za-z_]\w*[ \t]+in[ \t]+{_PATH})[ \t]*-?%\}}"
)
_KEPT = (re.compile(f"{_VARIABLE.pattern}|{_STATEMENT}"), _VARIABLE, re.compile(r"(?!)"))
_OPENING = re.compile(r"\{(?=[{%#]|\Z)")
_NAME = re.compile(r"\{\{-?[ \t]*([A-Za-z_]\w*)[ \t]*-?\}\}")
# Not only roles: a line such as `{{ name }}:` or `{{ "{" }}#:` looks like a role that is computed.
_MARKER = re.compile(
    rf"((?:^|(?<=[ \t}}#]))(?:{'|'.join(ROLES)})[ \t]*|\][ \t]*):(?=[ \t]*(?:$|\{{[{{%]))"
    r"|(^[ \t#]*\{.*[}#][ \t]*):(?=[ \t]*(?:$|\{%))",
    re.IGNORECASE | re.MULTILINE,
)
_ENVIRONMENT = Environment(autoescape=False)  # noqa: S701  it only parses; nothing is rendered


def parse_prompt(data: object) -> tuple[Messages, list[str]]:
    """Return the messages of a list, of such a list as JSON text, or of a text for the user, and what was left out."""
    if isinstance(data, str):
        with suppress(ValueError):
            data = read_json(data) if data.lstrip().startswith("[") else data
    found: Messages = []
    left_out: list[str] = []
    for message in [{"role": "user", "content": data}] if isinstance(data, str) else to_list(data):
        role, content = to_mapping(message).get("role"), to_mapping(message).get("content")
        if role not in ROLES or not isinstance(content, str):
            return [], ["the prompt is left out: a message has a role or a content that is more than text"]
        template, escaped = convert_template(content)
        found.append((role, template))
        left_out += [f"`{shorten(tag)}` is kept as text" for tag in escaped]
    return found, left_out if found else ["the prompt is left out: it is not a list of messages"]


def convert_template(text: str) -> tuple[str, list[str]]:
    """Return the Jinja2 template for one of promptfoo (Nunjucks) or GitHub Models, and the tags that became text."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for kept in _KEPT:
        escaped = [tag for tag in _TAG.findall(text) if not kept.fullmatch(tag)]
        tags = [tag if kept.fullmatch(tag) else _OPENING.sub('{{ "{" }}', tag) for tag in _TAG.findall(text)]
        texts = [_OPENING.sub('{{ "{" }}', piece) for piece in _TAG.split(text)]
        template = _MARKER.sub(r'\1\2{{ ":" }}', "".join(map("{}{}".format, texts, [*tags, ""])))
        if find_variables(template) is not None:
            break
    return template, escaped


def find_variables(template: str) -> set[str] | None:
    """Return the names of the inputs that a Jinja2 template uses, or None if it cannot be read."""
    try:
        return meta.find_undeclared_variables(_ENVIRONMENT.parse(template))
    except (TemplateSyntaxError, RecursionError):
        return None


def substitute(text: str, values: Mapping[str, object]) -> str | None:
    """Return a text with its `{{variables}}` replaced by values, or None if that takes more than replacing."""
    names = set(_NAME.findall(text))
    is_known = all(name in values and not isinstance(values[name], list | dict) for name in names)
    if not is_known or re.search(r"\{[{%#]", _NAME.sub("", text)):
        return None
    texts = {name: json.dumps(values[name]) if isinstance(values[name], bool) else values[name] for name in names}
    return _NAME.sub(lambda found: "" if texts[found[1]] is None else str(texts[found[1]]), text)


def shorten(value: object) -> str:
    """Return the beginning of a value on one line."""
    line = " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)).split())
    return line if len(line) <= 60 else f"{line[:60]}…"


def to_list(value: object) -> list[Any]:
    """Return a list, or a list of one."""
    return value if isinstance(value, list) else [] if value is None else [value]


def enumerate_entries(entries: object, keys: tuple[str | int, ...]) -> list[tuple[tuple[str | int, ...], Any]]:
    """Return the entries of a list with their places. A value alone is a list of one."""
    places = enumerate(to_list(entries))
    return [((*keys, index) if isinstance(entries, list) else keys, entry) for index, entry in places]


def to_mapping(value: object) -> dict[str, Any]:
    """Return a mapping, or an empty one."""
    return value if isinstance(value, dict) else {}
