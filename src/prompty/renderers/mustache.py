"""Mustache templates: logic-less, and with no way to files.

Variables, sections, inverted sections, comments and changed delimiters, as the Mustache manual has them. Two
differences: text is not HTML, so nothing is escaped; and partials and parents are refused, because they name files.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from prompty.errors import RenderError
from prompty.model.marker import ROLE_MARK

MAX_CHARACTERS = 4_000_000
MAX_STEPS = 500_000
MAX_DEPTH = 64

_STANDALONE = ("#", "^", "/", "!", "=")
_BLANK_TAIL = re.compile(r"[ \t]*\r?(?:\n|\Z)")


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
    """Where a role marker of the template begins or ends."""


Node = str | Variable | Section | Nonce
_MISSING = object()


class MustacheRenderer:
    """Renders a parsed template; parsing happens once."""

    def __call__(self, template: str, inputs: Mapping[str, object], /, *, nonce: str = "", strict: bool = False) -> str:
        return _Render(nonce, strict).text(_parsed(template), inputs)

    def variables(self, template: str) -> dict[str, int]:
        """The names a template reads from its inputs, with the line of the first use."""
        found: dict[str, int] = {}
        for name, line in _names(_parsed(template), inside=False):
            found.setdefault(name, line)
        return found


renderer: MustacheRenderer = MustacheRenderer()


def _names(nodes: Iterable[Node], inside: bool) -> Iterator[tuple[str, int]]:
    """Names read; inside a section a name may be the section's own, so only sections count there."""
    for node in nodes:
        if isinstance(node, Variable) and node.name != "." and (isinstance(node, Section) or not inside):
            yield node.path[0], node.line
        if isinstance(node, Section):
            yield from _names(node.children, inside or not node.inverted)


class _Render:
    def __init__(self, nonce: str, strict: bool) -> None:
        self.nonce, self.strict = nonce, strict
        self.pieces: list[str] = []
        self.characters = self.steps = 0

    def text(self, nodes: list[Node], inputs: Mapping[str, object]) -> str:
        self.write(nodes, [dict(inputs)])
        return "".join(self.pieces)

    def write(self, nodes: list[Node], stack: list[object]) -> None:
        for node in nodes:
            if isinstance(node, str):
                self.put(node)
            elif isinstance(node, Section):
                self.section(node, stack)
            elif isinstance(node, Variable):
                self.put(self.shown(node, stack))
            else:
                self.put(self.nonce)

    def put(self, text: str) -> None:
        self.pieces.append(text)
        self.characters += len(text)
        if self.characters > MAX_CHARACTERS:
            raise RenderError(f"the template asks for more than {MAX_CHARACTERS:,} characters", "Make it do less.")

    def shown(self, node: Variable, stack: list[object]) -> str:
        value = self.lookup(node, stack)
        try:
            return "" if value is None else str(value)
        except (ValueError, RecursionError) as error:  # a number of too many digits, a list nested too deep
            raise RenderError(f"`{node.name}` cannot be written: {error}", "Pass it as text.", node.line) from None

    def section(self, node: Section, stack: list[object]) -> None:
        value = self.lookup(node, stack)
        rounds: list[object]
        if node.inverted:
            rounds = [] if value else [None]
        elif isinstance(value, list | tuple):
            rounds = list(value)
        else:
            rounds = [value] if value else []
        for item in rounds:
            self.step(1 + len(node.children) * len(stack), node.line)
            self.write(node.children, stack if node.inverted else [*stack, item])

    def step(self, steps: int, line: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise RenderError(f"the template asks for more than {MAX_STEPS:,} steps", "Make it do less.", line)

    def lookup(self, node: Variable, stack: list[object]) -> object:
        value = _found(node.path, stack) if node.name != "." else stack[-1]
        if value is not _MISSING:
            return value
        if self.strict:
            raise RenderError(f"`{node.name}` has no value", f"Pass an input called `{node.path[0]}`.", node.line)
        return None


def _found(path: list[str], stack: list[object]) -> object:
    """The first name is looked for in all scopes, the innermost first; the others in what it gave."""
    for scope in reversed(stack):
        if isinstance(scope, dict) and path[0] in scope:
            return _descend(scope, path)
    return _MISSING


def _descend(value: object, path: list[str]) -> object:
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return _MISSING
        value = value[name]
    return value


@lru_cache(maxsize=256)
def _parsed(template: str) -> list[Node]:
    return _Reader(template).nodes()


class _Reader:
    """Reads a template from left to right, once."""

    def __init__(self, template: str) -> None:
        self.template = template
        self.open, self.close = "{{", "}}"
        self.position, self.line = 0, 1
        self.root: list[Node] = []
        self.sections: list[Section] = []

    def nodes(self) -> list[Node]:
        while (start := self.template.find(self.open, self.position)) >= 0:
            self.tag(start)
        self.literal(self.template[self.position :])
        if self.sections:
            unclosed = self.sections[-1]
            raise _broken(
                f"the section `{unclosed.name}` is not closed",
                f"Add {{{{/{unclosed.name}}}}}.",
                unclosed.line,
            )
        return self.root

    def tag(self, start: int) -> None:
        self.line += self.template.count("\n", self.position, start)
        content, end = self.content(start)
        text_end, following = self.alone(start, end) if content[:1] in _STANDALONE else (start, end)
        self.literal(self.template[self.position : text_end])
        self.add(content[:1], content[1:].strip(), content)
        self.line += self.template.count("\n", start, following)
        self.position = following

    def content(self, start: int) -> tuple[str, int]:
        """What stands in the tag that starts here, and where the tag ends."""
        inner = start + len(self.open)
        triple = self.open == "{{" and self.template.startswith("{", inner)
        closing = "}}}" if triple else "=" + self.close if self.template.startswith("=", inner) else self.close
        end = self.template.find(closing, inner + 1 if triple or closing.startswith("=") else inner)
        if end < 0:
            raise _broken("a tag is not closed", f"Add `{closing}`.", self.line)
        return self.template[inner:end].replace(ROLE_MARK, "").strip(), end + len(closing)

    def alone(self, start: int, end: int) -> tuple[int, int]:
        """Where the text before the tag ends and goes on after it: a tag alone on its line takes the line with it."""
        line_start = max(self.template.rfind("\n", self.position, start) + 1, self.position)
        fresh = line_start == 0 or self.template[line_start - 1] == "\n"
        tail = _BLANK_TAIL.match(self.template, end)
        if not fresh or tail is None or self.template[line_start:start].strip(" \t"):
            return start, end
        return line_start, tail.end()

    def add(self, sign: str, name: str, content: str) -> None:
        if sign in ("#", "^"):
            self.open_section(Section(name, self.line, sign == "^"))
        elif sign == "/":
            self.close_section(name)
        elif sign == "=":
            self.change_delimiters(name)
        elif sign in (">", "<"):
            raise _broken("partials are not supported", "Write the text here: a prompt reads no files.", self.line)
        elif sign != "!":
            self.children.append(Variable(name if sign in ("{", "&") else content, self.line))

    @property
    def children(self) -> list[Node]:
        return self.sections[-1].children if self.sections else self.root

    def open_section(self, section: Section) -> None:
        if len(self.sections) >= MAX_DEPTH:
            raise _broken(f"sections nest more than {MAX_DEPTH} deep", "Make it flatter.", self.line)
        self.children.append(section)
        self.sections.append(section)

    def close_section(self, name: str) -> None:
        if not self.sections or self.sections[-1].name != name:
            raise _broken(f"`{{{{/{name}}}}}` closes a section that is not open", "Close sections in order.", self.line)
        self.sections.pop()

    def change_delimiters(self, content: str) -> None:
        words = content.split()
        if len(words) != 2 or any("=" in word for word in words):
            raise _broken("a delimiter tag needs two delimiters", "Write {{=<% %>=}}.", self.line)
        self.open, self.close = words

    def literal(self, text: str) -> None:
        for index, piece in enumerate(text.split(ROLE_MARK)):
            if index:
                self.children.append(Nonce())
            if piece:
                self.children.append(piece)


def _broken(cause: str, fix: str, line: int) -> RenderError:
    return RenderError(f"the template is not valid Mustache: {cause}", fix, line)
