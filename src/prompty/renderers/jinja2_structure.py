"""Protect role markers in a Jinja2 template.

A marker may be in a macro, in a `{% set %}` block or inside a filter, and is then part of a value. An operation on that
value, such as `{{ m()|replace(a, b) }}`, could change a role or remove a marker, depending on the inputs. So a value
with markers may only be written unchanged, or through filters that don't change marks.
"""

from collections.abc import Iterator
from typing import NamedTuple

from jinja2 import Environment, nodes

from prompty.errors import RenderError
from prompty.model.marker import ROLE_MARK
from prompty.renderers import Include, TemplateBlock, WrongInclude

NONCE = "__prompty_nonce"
_SAFE_FILTERS = {"upper", "lower", "title", "capitalize", "trim", "indent"}
_HOLDERS = (nodes.Macro, nodes.AssignBlock, nodes.CallBlock, nodes.Block, nodes.For, nodes.FilterBlock)
_FIX = "Move the markers outside it, or only apply filters to the text of a message."
_Token = tuple[int, str, str]


def check_structure(template: nodes.Template) -> None:
    """Raise `RenderError` if the template could change one of its role markers."""
    marked = _Marked(template)
    for use in _find_uses(template, marked):
        name = _describe(use)
        raise RenderError(f"{name} contains role markers, which this use could change", _FIX, use.lineno)


def _describe(node: nodes.Node) -> str:
    if isinstance(node, nodes.Name):
        return f"`{node.name}`"
    return f"the filter `{node.name}`" if isinstance(node, nodes.Filter) else "this value"


class _Marked:
    """The values of a template that contain role markers: their nodes and names.

    Each node is visited once, because a template can nest and chain hundreds of macros.
    """

    def __init__(self, template: nodes.Template) -> None:
        self.names: set[str] = set()
        self._holders: set[nodes.Node] = set()
        self._parents: dict[nodes.Node, nodes.Node | None] = {}
        self._users: dict[str, list[nodes.Node]] = {}
        direct: list[nodes.Node] = []
        self._visit(template, None, direct)
        while direct:
            self._add(direct.pop(), direct)

    def __contains__(self, node: nodes.Node) -> bool:
        return node in self._holders

    def _visit(self, node: nodes.Node, holder: nodes.Node | None, direct: list[nodes.Node]) -> None:
        if isinstance(node, _HOLDERS):
            self._parents[node] = holder
            holder = node
        elif isinstance(node, nodes.Name):
            if node.name == NONCE:
                raise RenderError(f"`{NONCE}` is reserved", "Choose another name.", node.lineno)
            if holder is not None and node.ctx == "load":
                self._users.setdefault(node.name, []).append(holder)
        elif isinstance(node, nodes.TemplateData) and holder is not None and ROLE_MARK in node.data:
            direct.append(holder)
        for child in node.iter_child_nodes():
            self._visit(child, holder, direct)

    def _add(self, holder: nodes.Node, found: list[nodes.Node]) -> None:
        """Add a node, and queue those that contain it or use its name."""
        if holder in self._holders:
            return
        self._holders.add(holder)
        if (parent := self._parents[holder]) is not None:
            found.append(parent)
        name = _held_name(holder)
        if name and name not in self.names:
            self.names.add(name)
            found += self._users.get(name, ())


def _held_name(node: nodes.Node) -> str | None:
    match node:
        case nodes.Macro(name=name) | nodes.AssignBlock(target=nodes.Name(name=name)):
            return str(name)
        case nodes.CallBlock():
            return "caller"
        case nodes.Block():
            return "self"
        case nodes.For(recursive=True):
            return "loop"
    return None


def _find_uses(node: nodes.Node, marked: _Marked) -> Iterator[nodes.Node]:
    """Yield each use of a value with markers that could change them."""
    match node:
        case nodes.Name() if node.name in marked.names and node.ctx == "load":
            yield node
        case nodes.Getattr(node=nodes.Name(name="loop")) | nodes.Getitem(node=nodes.Name(name="loop")):
            return
        case nodes.Output():
            for written in node.nodes:
                yield from _find_uses_in_written(written, marked)
        case nodes.CallBlock():
            yield from _find_uses_in_written(node.call, marked)
            for child in (*node.defaults, *node.body):
                yield from _find_uses(child, marked)
        case nodes.AssignBlock(target=nodes.NSRef()) if node in marked:
            yield node
        case nodes.FilterBlock() | nodes.AssignBlock() if node.filter is not None and node in marked:
            if not _is_safe(node.filter):
                yield node.filter
            for child in node.body:
                yield from _find_uses(child, marked)
        case _:
            for child in node.iter_child_nodes():
                yield from _find_uses(child, marked)


def _find_uses_in_written(node: nodes.Node, marked: _Marked) -> Iterator[nodes.Node]:
    """Yield the unsafe uses in an expression whose value is written unchanged."""
    match node:
        case nodes.Name():
            return
        case nodes.Call(node=nodes.Name()) | nodes.Call(node=nodes.Getattr(node=nodes.Name(name="self"))):
            for child in node.iter_child_nodes(exclude=("node",)):
                yield from _find_uses(child, marked)
        case nodes.CondExpr():
            yield from _find_uses(node.test, marked)
            for branch in (node.expr1, node.expr2):
                if branch is not None:
                    yield from _find_uses_in_written(branch, marked)
        case nodes.Concat():
            for part in node.nodes:
                yield from _find_uses_in_written(part, marked)
        case nodes.Filter() if node.node is not None and _is_safe(node, alone=True):
            yield from _find_uses_in_written(node.node, marked)
        case _:
            yield from _find_uses(node, marked)


def _is_safe(node: nodes.Filter, *, alone: bool = False) -> bool:
    """Return True if a filter, and those it is chained to, never change digits and marks."""
    arguments = [*node.args, *(pair.value for pair in node.kwargs)]
    constant = all(isinstance(argument, nodes.Const) for argument in arguments)
    whole = node.name in _SAFE_FILTERS and constant and not (node.name == "trim" and arguments)
    if not whole or node.dyn_args or node.dyn_kwargs:
        return False
    return alone or not isinstance(node.node, nodes.Filter) or _is_safe(node.node)


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
