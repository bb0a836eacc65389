"""Mustache templates: logic-less, without access to files.

Supports variables, sections, inverted sections, comments and custom delimiters, as in the Mustache manual, with two
differences: nothing is escaped, because a prompt is not HTML; and partials and parents are refused, because a renderer
reads no files. `load` inserts partials before rendering.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from prompty.errors import RenderError
from prompty.model.marker import ROLE_MARK
from prompty.renderers import Include, WrongInclude

MAX_OUTPUT_CHARACTERS = 4_000_000
MAX_STEPS = 500_000
MAX_SECTION_DEPTH = 64

_STANDALONE_SIGNS = ("#", "^", "/", "!", "=")
_BLANK_REST_OF_LINE = re.compile(r"[ \t]*\r?(?:\n|\Z)")


@dataclass(slots=True)
class Variable:
    name: str
    line: int
    path: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.path = self.name.split(".")


@dataclass(slots=True)
class Section(Variable):
    inverted: bool
    children: "list[Node]" = field(default_factory=list)


class Nonce:
    """The start or the end of a role marker in the template."""


Node = str | Variable | Section | Nonce
_MISSING = object()


class MustacheRenderer:
    """Renders Mustache templates. See `prompty.renderers.Renderer`."""

    def __call__(self, template: str, inputs: Mapping[str, object], /, *, nonce: str = "", strict: bool = False) -> str:
        render = _Render(nonce, strict, inputs)
        render.write_nodes(parse_mustache(template), [dict(inputs)])
        return "".join(render.pieces)

    def variables(self, template: str) -> dict[str, int]:
        """Return the names that a template reads from its inputs, with the line of the first use."""
        lines: dict[str, int] = {}
        for name, line in _input_names(parse_mustache(template), in_section=False):
            lines.setdefault(name, line)
        return lines

    def includes(self, template: str) -> list[Include]:
        """Return the tags that name partials."""
        found: list[Include] = []
        _Parser(template, found).parse()
        return found


mustache_renderer: MustacheRenderer = MustacheRenderer()


def _input_names(nodes: Iterable[Node], in_section: bool) -> Iterator[tuple[str, int]]:
    """Yield the names of inputs. A variable in a section is omitted, because it may belong to the section's value."""
    for node in nodes:
        if isinstance(node, Variable) and node.name != "." and (isinstance(node, Section) or not in_section):
            yield node.path[0], node.line
        if isinstance(node, Section):
            yield from _input_names(node.children, in_section or not node.inverted)


class _Render:
    """One render: the text written so far, and the limits. A scope is a value in which names are looked up."""

    def __init__(self, nonce: str, strict: bool, inputs: Mapping[str, object]) -> None:
        self.nonce, self.strict, self.inputs = nonce, strict, inputs
        self.pieces: list[str] = []
        self.characters = self.steps = 0

    def write_nodes(self, nodes: list[Node], scopes: list[object]) -> None:
        for node in nodes:
            if isinstance(node, str):
                self.write(node)
            elif isinstance(node, Section):
                self.write_section(node, scopes)
            elif isinstance(node, Variable):
                self.write(self.format_value(node, scopes))
            else:
                self.write(self.nonce)

    def write(self, text: str) -> None:
        self.pieces.append(text)
        self.characters += len(text)
        if self.characters > MAX_OUTPUT_CHARACTERS and self.characters > MAX_OUTPUT_CHARACTERS + self.input_characters:
            raise RenderError(f"the template asks for more than {MAX_OUTPUT_CHARACTERS:,} characters", "Simplify it.")

    @cached_property
    def input_characters(self) -> int:
        """The length of all texts in the inputs, which the output may have in addition to the limit."""
        return sum(len(value) for value in self.inputs.values() if isinstance(value, str))

    def format_value(self, node: Variable, scopes: list[object]) -> str:
        value = self.look_up(node, scopes)
        if isinstance(value, str):
            return value
        self.count_parts(value, node)
        try:
            return "" if value is None else str(value)
        except (ValueError, RecursionError) as error:  # a number with too many digits, a list nested too deep
            raise RenderError(f"`{node.name}` cannot be written: {error}", "Pass it as text.", node.line) from None

    def count_parts(self, value: object, node: Variable) -> None:
        """Charge a step for each part of a value each time it is written: a list may repeat a part many times."""
        level = [value]
        while level:
            item = level.pop()
            if isinstance(item, list | tuple | dict):
                self.spend(len(item), node)
                level += [*item, *item.values()] if isinstance(item, dict) else item

    def spend(self, steps: int, node: Variable) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise RenderError(f"the template asks for more than {MAX_STEPS:,} steps", "Simplify it.", node.line)

    def write_section(self, node: Section, scopes: list[object]) -> None:
        value = self.look_up(node, scopes)
        rounds: list[object]
        if node.inverted:
            rounds = [] if value else [None]
        elif isinstance(value, list | tuple):
            rounds = list(value)
        else:
            rounds = [value] if value else []
        for item in rounds:
            self.spend(1 + len(node.children) * len(scopes), node)
            self.write_nodes(node.children, scopes if node.inverted else [*scopes, item])

    def look_up(self, node: Variable, scopes: list[object]) -> object:
        value = _resolve(node.path, scopes) if node.name != "." else scopes[-1]
        if value is not _MISSING:
            return value
        if self.strict:
            raise RenderError(f"`{node.name}` has no value", f"Pass an input named `{node.path[0]}`.", node.line)
        return None


def _resolve(path: list[str], scopes: list[object]) -> object:
    """Find the first name in the innermost scope that has it, and the other names inside that value."""
    for scope in reversed(scopes):
        if isinstance(scope, dict) and path[0] in scope:
            value: object = scope
            for name in path:
                if not isinstance(value, dict) or name not in value:
                    return _MISSING
                value = value[name]
            return value
    return _MISSING


@lru_cache(maxsize=256)
def parse_mustache(template: str) -> list[Node]:
    """Return the nodes of a template. Raise `RenderError` if it is invalid."""
    return _Parser(template).parse()


class _Parser:
    """Parses a template in one pass. Partials are added to `includes`, or else refused."""

    def __init__(self, template: str, includes: list[Include] | None = None) -> None:
        self.template, self.includes = template, includes
        self.open, self.close = "{{", "}}"
        self.position, self.line = 0, 1
        self.root: list[Node] = []
        self.sections: list[Section] = []

    def parse(self) -> list[Node]:
        while (start := self.template.find(self.open, self.position)) >= 0:
            self.read_tag(start)
        self.add_text(self.template[self.position :])
        if self.sections:
            unclosed = self.sections[-1]
            name = unclosed.name
            raise _syntax_error(f"the section `{name}` is not closed", f"Add {{{{/{name}}}}}.", unclosed.line)
        return self.root

    def read_tag(self, start: int) -> None:
        self.line += self.template.count("\n", self.position, start)
        content, end = self.read_content(start)
        text_end, resume = self.whole_line(start, end) if content[:1] in _STANDALONE_SIGNS else (start, end)
        self.add_text(self.template[self.position : text_end])
        if content[:1] == ">":
            self.add_partial(content[1:].strip(), start, end)
        else:
            self.add_tag(content[:1], content[1:].strip(), content)
        self.line += self.template.count("\n", start, resume)
        self.position = resume

    def read_content(self, start: int) -> tuple[str, int]:
        """Return the content of the tag that starts here, and the position after the tag."""
        inner = start + len(self.open)
        triple = self.open == "{{" and self.template.startswith("{", inner)
        closing = "}}}" if triple else "=" + self.close if self.template.startswith("=", inner) else self.close
        end = self.template.find(closing, inner + 1 if triple or closing.startswith("=") else inner)
        if end < 0:
            raise _syntax_error("a tag is not closed", f"Add `{closing}`.", self.line)
        return self.template[inner:end].replace(ROLE_MARK, "").strip(), end + len(closing)

    def whole_line(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of the line if the tag is alone on it, because the line is removed with the tag.

        Return the range of the tag otherwise.
        """
        line_start = max(self.template.rfind("\n", self.position, start) + 1, self.position)
        starts_line = line_start == 0 or self.template[line_start - 1] == "\n"
        rest = _BLANK_REST_OF_LINE.match(self.template, end)
        if not starts_line or rest is None or self.template[line_start:start].strip(" \t"):
            return start, end
        return line_start, rest.end()

    def add_tag(self, sign: str, name: str, content: str) -> None:
        if sign in ("#", "^"):
            self.open_section(Section(name, self.line, sign == "^"))
        elif sign == "/":
            self.close_section(name)
        elif sign == "=":
            self.change_delimiters(name)
        elif sign == "<":
            raise _syntax_error("parents are not supported", "Write the text here.", self.line)
        elif sign != "!":
            self.children.append(Variable(name if sign in ("{", "&") else content, self.line))

    def add_partial(self, name: str, start: int, end: int) -> None:
        if self.includes is None:
            cause = f"the partial `{name}` is not part of the template"
            raise _syntax_error(cause, "Load the prompt from its file, so that `load` inserts partials.", self.line)
        if (self.open, self.close) != ("{{", "}}"):
            cause = "a partial is included where the delimiters are not {{ and }}"
            raise WrongInclude(cause, "Set the delimiters to {{ and }} before it.", self.line)
        first, last = self.whole_line(start, end)
        if (first, last) == (start, end):
            self.includes.append(Include(start, end, self.line, name))
            return
        last -= self.template[:last].endswith("\n")  # the line stays, with the partial on it
        self.includes.append(Include(first, last, self.line, name, self.template[first:start]))

    @property
    def children(self) -> list[Node]:
        return self.sections[-1].children if self.sections else self.root

    def open_section(self, section: Section) -> None:
        if len(self.sections) >= MAX_SECTION_DEPTH:
            raise _syntax_error(f"sections are nested more than {MAX_SECTION_DEPTH} deep", "Flatten it.", self.line)
        self.children.append(section)
        self.sections.append(section)

    def close_section(self, name: str) -> None:
        if not self.sections or self.sections[-1].name != name:
            cause = f"`{{{{/{name}}}}}` closes a section that is not open"
            raise _syntax_error(cause, "Close sections in order.", self.line)
        self.sections.pop()

    def change_delimiters(self, content: str) -> None:
        words = content.split()
        if len(words) != 2 or any("=" in word for word in words):
            raise _syntax_error("a delimiter tag needs two delimiters", "Write {{=<% %>=}}.", self.line)
        self.open, self.close = words

    def add_text(self, text: str) -> None:
        for index, piece in enumerate(text.split(ROLE_MARK)):
            if index:
                self.children.append(Nonce())
            if piece:
                self.children.append(piece)


def _syntax_error(cause: str, fix: str, line: int) -> RenderError:
    return RenderError(f"the template is not valid Mustache: {cause}", fix, line)
