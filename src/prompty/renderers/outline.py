"""Outline: what a template renders to, as far as its inputs cannot change it.

The outline of a template is its rendered text with VARIES for each value that inputs decide. Role markers keep their
nonces, so the parser reads the outline like any other text. It ends where inputs decide more than a value: at a
condition, a loop or a section, or at an input whose messages or media the text is split at.

Everything varies unless a rule here says otherwise. A name is static if every value it is ever given is static. Only
operations are static whose result is the same in every process, so `random` is not, and neither is what could print the
address of an object.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeVar

from jinja2 import nodes
from jinja2.meta import find_undeclared_variables

from prompty.model.marker import ROLE_MARK, ROLES
from prompty.renderers import Renderer
from prompty.renderers.jinja2 import find_marked_names, jinja2_renderer, parse_jinja2, render_tree
from prompty.renderers.mustache import Node, Section, Variable, mustache_renderer, parse_mustache

_Kind = TypeVar("_Kind", bound=nodes.Node)

VARIES = "\ufdd2"  # a noncharacter, like ROLE_MARK
_ROLE = re.compile(rf"[ \t]*(?:#[ \t]*)?({'|'.join(ROLES)})[ \t]*[\[:]", re.IGNORECASE)


class Reach(IntEnum):
    """What inputs decide about a piece of a template. A higher level includes the lower ones."""

    STATIC = 0
    VALUE = 1  # its text
    MEDIA = 2  # whether its message is split into parts
    MESSAGES = 3  # which messages follow


class Varying(NamedTuple):
    """A piece of a template that inputs decide: a name that it reads, its lines, and whether it is only a value."""

    name: str
    line: int
    last_line: int
    is_value: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Outline:
    """The outline of a template.

    If `is_cut`, anything may follow the text: more of its last message, and then any number of messages of these
    `roles`. `later` is the template's own text after the cut, without what conditions and loops decide.
    """

    text: str
    varying: tuple[Varying, ...] = ()
    is_cut: bool = False
    roles: frozenset[str] = frozenset()
    later: str = ""


def find_outline(
    renderer: Renderer, template: str, *, nonce: str, media: Collection[str], threads: Collection[str]
) -> Outline | None:
    """Return the outline of a template with its marks. `media` and `threads` are the names of rich inputs.

    Return None for an engine that is not known here. Raise `RenderError` if no render can succeed.
    """
    levels = dict.fromkeys(media, Reach.MEDIA) | dict.fromkeys(threads, Reach.MESSAGES)
    if renderer is jinja2_renderer:
        return _Jinja2Outline(parse_jinja2(template), levels).build(nonce)
    return _outline_mustache(parse_mustache(template), levels, nonce) if renderer is mustache_renderer else None


def _find_roles(texts: Iterable[str]) -> set[str]:
    """Return the roles of the markers in a template's own text."""
    pieces = (piece for text in texts for piece in text.split(ROLE_MARK))
    return {found[1].lower() for piece in pieces if (found := _ROLE.match(piece))}


def _outline_mustache(tree: list[Node], levels: dict[str, Reach], nonce: str) -> Outline:
    """Return the outline of a Mustache template, in which every name is an input, and every section depends on one."""
    pieces: list[str] = []
    varying: list[Varying] = []
    for index, node in enumerate(tree):
        if not isinstance(node, Variable):
            pieces.append(node if isinstance(node, str) else nonce)
            continue
        level = _find_mustache_level([node], levels)
        is_value = level <= Reach.VALUE and not _is_section(node)
        varying.append(Varying(node.name, node.line, _find_last_line(node), is_value))
        pieces.append(VARIES)
        if not is_value:
            return _cut_mustache(pieces, varying, tree[index:], levels)
    return Outline(text="".join(pieces), varying=tuple(varying))


def _cut_mustache(pieces: list[str], varying: list[Varying], rest: list[Node], levels: dict[str, Reach]) -> Outline:
    texts = (node for node in _walk_mustache(rest) if isinstance(node, str))
    is_any = _find_mustache_level(rest, levels) == Reach.MESSAGES
    for node in rest[1:]:
        if isinstance(node, Variable):
            is_value = not _is_section(node)
            varying.append(Varying(node.name, node.line, _find_last_line(node), is_value))
    return Outline(
        text="".join(pieces),
        varying=tuple(varying),
        is_cut=True,
        roles=frozenset(ROLES) if is_any else frozenset(_find_roles(texts)),
        later="".join(node for node in rest if isinstance(node, str)),
    )


def _walk_mustache(tree: Iterable[Node]) -> Iterator[Node]:
    for node in tree:
        yield node
        if isinstance(node, Section):
            yield from _walk_mustache(node.children)


def _find_mustache_level(tree: Iterable[Node], levels: dict[str, Reach]) -> Reach:
    """Return the highest level of the names in a tree. A dot stands for all inputs, or for an item of one."""
    names = [node.path[0] for node in _walk_mustache(tree) if isinstance(node, Variable)]
    found = [max(levels.values(), default=Reach.VALUE) if not name else levels.get(name, Reach.VALUE) for name in names]
    return max(found, default=Reach.STATIC)


def _is_section(node: Node) -> bool:
    return isinstance(node, Section)


def _find_last_line(node: Variable) -> int:
    children = node.children if isinstance(node, Section) else ()
    return max([node.line, *(_find_last_line(child) for child in children if isinstance(child, Variable))])


# Expressions and statements whose result depends only on what they contain.
_STEADY_NODES = (
    *(nodes.Const, nodes.TemplateData, nodes.Tuple, nodes.List, nodes.Dict, nodes.Pair, nodes.Keyword, nodes.Slice),
    *(nodes.CondExpr, nodes.BinExpr, nodes.UnaryExpr, nodes.Compare, nodes.Operand, nodes.Concat, nodes.Test),
    *(nodes.Output, nodes.If, nodes.For, nodes.With, nodes.Assign, nodes.AssignBlock, nodes.Macro, nodes.CallBlock),
    *(nodes.FilterBlock, nodes.Scope),
)
_STEADY_FILTERS = frozenset(
    (
        *("abs", "capitalize", "center", "count", "d", "default", "e", "escape", "first", "float", "format", "indent"),
        *("int", "join", "last", "length", "list", "lower", "max", "min", "replace", "round", "safe", "sort", "string"),
        *("striptags", "sum", "title", "tojson", "trim", "truncate", "upper", "urlencode", "wordcount", "wordwrap"),
    )
)
_LOOP_FIELDS = frozenset(
    ("index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0", "previtem", "nextitem")
)
# An input of one of these names is not callable: such a call has the same result in every render, or none.
_STEADY_CALLS = frozenset({"range", "dict", "caller"})
_IMPLICIT_NAMES = frozenset({"loop", "varargs", "kwargs"})
_ADDRESSES = frozenset({"format", "format_map"})  # methods that can print any attribute
_IDENTITY = "sameas"


class _Jinja2Outline:
    """The analysis of one Jinja2 template."""

    def __init__(self, tree: nodes.Template, levels: dict[str, Reach]) -> None:
        self.tree = tree
        self.marked = find_marked_names(tree)
        self.bindings = list(_list_bindings(tree))
        self.macros = {node.name for node in tree.find_all(nodes.Macro)}
        self.names: dict[str, Reach] = dict.fromkeys(_IMPLICIT_NAMES, Reach.STATIC)
        for names, _ in self.bindings:
            self.names |= dict.fromkeys(names, Reach.STATIC)
        self.names |= dict.fromkeys(find_undeclared_variables(tree), Reach.VALUE) | levels
        self.varying: list[Varying] = []
        self.rest: list[nodes.Node] = []
        self.is_cut = False
        self.spread()

    def spread(self) -> None:
        """Give each name the highest level of all its values, until nothing changes."""
        is_changed = True
        while is_changed:
            is_changed = False
            for names, values in self.bindings:
                level = max(map(self.classify, values), default=Reach.STATIC)
                for name in names:
                    if self.names[name] < level:
                        self.names[name], is_changed = level, True

    def classify(self, node: nodes.Node) -> Reach:
        """Return what inputs decide about a node. A value with role markers that varies decides about messages."""
        level = self.find_level(node)
        return Reach.MESSAGES if level and self.has_markers(node) else level

    def has_markers(self, node: nodes.Node) -> bool:
        """Return True if a node may write role markers."""
        return any(name.name in self.marked for name in _find_all(node, nodes.Name)) or any(
            ROLE_MARK in data.data for data in _find_all(node, nodes.TemplateData)
        )

    def find_level(self, node: nodes.Node) -> Reach:
        match node:
            case nodes.Name():
                return self.find_name(node)
            case nodes.Call(node=nodes.Name(name=name)) if name in _STEADY_CALLS or name in self.macros:
                return max(self.names.get(name, Reach.STATIC), self.find_inner(node, "node"))
            case nodes.Call(node=nodes.Getattr(node=owner, attr=attr)) if attr not in _ADDRESSES:
                return max(self.find_level(owner), self.find_inner(node, "node"))
            case nodes.Getattr(node=nodes.Name(name="loop"), attr=attr) if attr in _LOOP_FIELDS:
                return self.find_inner(node)
            case nodes.Getitem(arg=nodes.Const(value=int()) | nodes.Slice()):
                return self.find_inner(node)
            case nodes.Filter() if _is_steady_filter(node):
                return self.find_inner(node)
            case nodes.Test(name=name) if name == _IDENTITY:
                return max(Reach.VALUE, self.find_inner(node))
            case _ if isinstance(node, _STEADY_NODES):
                return self.find_inner(node)
        return max(Reach.VALUE, self.find_inner(node))

    def find_name(self, node: nodes.Name) -> Reach:
        if node.ctx != "load":
            return Reach.STATIC
        if node.name == "self":
            return Reach.MESSAGES  # any block
        is_value = node.name in self.names and node.name not in self.macros
        return self.names[node.name] if is_value else max(Reach.VALUE, self.names.get(node.name, Reach.VALUE))

    def find_inner(self, node: nodes.Node, *exclude: str) -> Reach:
        return max(map(self.find_level, node.iter_child_nodes(exclude=exclude)), default=Reach.STATIC)

    def build(self, nonce: str) -> Outline:
        kept = self.keep(self.tree.body)
        later = [data.data for node in self.rest for data in _list_own_text(node)]
        outline = nodes.Template(kept, lineno=1)
        if self.tree.environment is not None:
            outline.set_environment(self.tree.environment)
        return Outline(
            text=render_tree(outline, nonce=nonce),
            varying=tuple(self.varying),
            is_cut=self.is_cut,
            roles=frozenset(self.find_later_roles()),
            later="".join(later),
        )

    def keep(self, body: list[nodes.Node]) -> list[nodes.Node]:
        """Return the nodes up to the cut, with VARIES for values. The others go to `rest`."""
        kept: list[nodes.Node] = []
        for node in body:
            if self.is_cut:
                self.rest.append(node)
                self.note_later(node)
            elif isinstance(node, nodes.Output):
                kept.append(nodes.Output(self.keep_values(node), lineno=node.lineno))
            elif isinstance(node, nodes.Block):
                node.body = self.keep(node.body)
                kept.append(node)
            elif isinstance(node, nodes.Assign | nodes.AssignBlock | nodes.Macro):
                if not self.is_tainted(node):
                    kept.append(node)
            elif self.classify(node):
                self.note(node, is_value=False)
                self.cut(node)
                kept.append(_write_varies(node))
            else:
                kept.append(node)
        return kept

    def keep_values(self, output: nodes.Output) -> list[nodes.Expr]:
        kept: list[nodes.Expr] = []
        for index, node in enumerate(output.nodes):
            level = Reach.STATIC if isinstance(node, nodes.TemplateData) else self.classify(node)
            if level == Reach.STATIC:
                kept.append(node)
                continue
            kept.append(nodes.TemplateData(VARIES, lineno=node.lineno))
            self.note(node, is_value=level == Reach.VALUE)
            if level > Reach.VALUE:
                later = nodes.Output(output.nodes[index:], lineno=node.lineno)
                self.cut(later)
                for value in output.nodes[index + 1 :]:
                    self.note_later(value)
                break
        return kept

    def cut(self, node: nodes.Node) -> None:
        self.is_cut = True
        self.rest.append(node)

    def is_tainted(self, node: nodes.Assign | nodes.AssignBlock | nodes.Macro) -> bool:
        return any(self.names[name] for name in _list_targets(node))

    def note(self, node: nodes.Node, *, is_value: bool) -> None:
        """Note a piece that varies, by the first name in it that does."""
        names = [name.name for name in _find_all(node, nodes.Name) if name.ctx == "load" and self.find_name(name)]
        lines = [inner.lineno or 0 for inner in _find_all(node, nodes.Node)]  # text has none
        self.varying.append(Varying(names[0] if names else "", node.lineno, max(lines), is_value))

    def note_later(self, node: nodes.Node) -> None:
        """Note a piece after the cut that varies."""
        for piece in node.nodes if isinstance(node, nodes.Output) else [node]:
            if isinstance(piece, nodes.Block):
                for inner in piece.body:
                    self.note_later(inner)
            elif not isinstance(piece, nodes.Assign | nodes.AssignBlock | nodes.Macro) and self.classify(piece):
                self.note(piece, is_value=isinstance(node, nodes.Output))

    def find_later_roles(self) -> Collection[str]:
        """Return the roles of the messages that may follow the cut: all, if inputs or values bring messages."""
        for node in self.rest:
            for name in _find_all(node, nodes.Name):
                if name.name in self.marked or self.find_name(name) == Reach.MESSAGES:
                    return ROLES
        return _find_roles(data.data for node in self.rest for data in _find_all(node, nodes.TemplateData))


def _is_steady_filter(node: nodes.Filter) -> bool:
    if node.name == "join":
        return len(node.args) <= 1 and not node.kwargs and not node.dyn_args and not node.dyn_kwargs
    return node.name in _STEADY_FILTERS


def _write_varies(node: nodes.Node) -> nodes.Output:
    return nodes.Output([nodes.TemplateData(VARIES, lineno=node.lineno)], lineno=node.lineno)


def _list_bindings(tree: nodes.Template) -> Iterator[tuple[list[str], Sequence[nodes.Node]]]:
    """Yield the names that each node of a template sets, and what their values depend on."""
    for node in tree.find_all((nodes.Assign, nodes.AssignBlock, nodes.Macro, nodes.For, nodes.With, nodes.CallBlock)):
        match node:
            case nodes.Assign():
                yield _list_targets(node), [node.node]
            case nodes.AssignBlock():
                yield _list_targets(node), [*node.body, *([node.filter] if node.filter else [])]
            case nodes.Macro():
                yield [node.name], [*node.defaults, *node.body]
                yield [name for target in node.args for name in _list_names(target)], node.defaults
            case nodes.For():
                yield _list_names(node.target), [node.iter]
            case nodes.With():
                yield [name for target in node.targets for name in _list_names(target)], node.values
            case nodes.CallBlock():
                yield [name for target in node.args for name in _list_names(target)], [node.call, *node.defaults]


def _list_targets(node: nodes.Assign | nodes.AssignBlock | nodes.Macro) -> list[str]:
    return [node.name] if isinstance(node, nodes.Macro) else _list_names(node.target)


def _list_names(target: nodes.Node) -> list[str]:
    namespaces = [reference.name for reference in _find_all(target, nodes.NSRef)]
    return [*namespaces, *(name.name for name in _find_all(target, nodes.Name))]


def _find_all(node: nodes.Node, kind: type[_Kind]) -> Iterator[_Kind]:
    """Yield a node and all nodes in it of a kind."""
    if isinstance(node, kind):
        yield node
    yield from node.find_all(kind)


def _list_own_text(node: nodes.Node) -> Iterator[nodes.TemplateData]:
    """Yield the text of a node that no condition and no loop decides about."""
    if isinstance(node, nodes.Block):
        for inner in node.body:
            yield from _list_own_text(inner)
    elif isinstance(node, nodes.Output):
        yield from (data for data in node.nodes if isinstance(data, nodes.TemplateData))
