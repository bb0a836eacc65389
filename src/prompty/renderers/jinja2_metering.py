"""Changes a parsed Jinja2 template so that everything it does is paid for.

What Jinja2 would compile to bare Python becomes a filter of `jinja2_sandbox`, which knows the render it is part of.
A loop pays for all its rounds before the first, each by the size of its body.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

from jinja2 import TemplateAssertionError, nodes

from prompty.renderers.jinja2_limits import CHARACTERS_PER_STEP

_ROUND = 4
_SLOW: dict[type[nodes.Node], int] = {
    nodes.Call: 10,
    nodes.Filter: 10,
    nodes.Getattr: 5,
    nodes.Getitem: 5,
    nodes.Test: 5,
}


def metered(template: nodes.Template) -> nodes.Template:
    """The template with everything in it paid for."""
    return cast(nodes.Template, _changed(template))


def _changed(node: nodes.Node) -> nodes.Node:
    for field, value in node.iter_fields():
        if isinstance(value, nodes.Node):
            setattr(node, field, _changed(value))
        elif isinstance(value, list):
            value[:] = [_changed(item) if isinstance(item, nodes.Node) else item for item in value]
    change = _CHANGES.get(type(node))
    return change(node) if change else node


def _loop(node: nodes.For) -> nodes.For:
    steps = _ROUND + _steps([node.target, *node.body, *([node.test] if node.test else [])])
    if node.recursive:
        node.body.insert(0, _payment(steps, node))
    else:
        node.iter = _filter("_counted", node.iter, nodes.Const(steps))
    return node


def _body(node: nodes.Macro | nodes.CallBlock | nodes.Block) -> nodes.Node:
    node.body.insert(0, _payment(_steps(node.iter_child_nodes()), node))
    return node


def _subscript(node: nodes.Getitem) -> nodes.Getitem:
    if isinstance(node.arg, nodes.Slice):
        node.node = _filter("_copied", node.node)
    elif not isinstance(node.arg, nodes.Const):
        node.arg = _filter("_key", node.arg)
    return node


def _pair(node: nodes.Pair) -> nodes.Pair:
    if not isinstance(node.key, nodes.Const):
        node.key = _filter("_key", node.key)
    return node


def _concatenation(node: nodes.Concat) -> nodes.Filter:
    return _filter("_concatenated", nodes.List(node.nodes, lineno=node.lineno))


def _comparison(node: nodes.Compare) -> nodes.Expr:
    if _is_short(node):
        return node
    rest = [part for operand in node.ops for part in (nodes.Const(operand.op), operand.expr)]
    return _filter("_compared", node.expr, *rest)


def _own_filter(node: nodes.Filter) -> nodes.Filter:
    """The filters that are put in are not for a template to use."""
    if node.name.startswith("_"):
        raise TemplateAssertionError(f"No filter named {node.name!r}.", node.lineno)
    return node


_CHANGES: dict[type[nodes.Node], Callable[[Any], nodes.Node]] = {
    nodes.Block: _body,
    nodes.CallBlock: _body,
    nodes.Compare: _comparison,
    nodes.Concat: _concatenation,
    nodes.Filter: _own_filter,
    nodes.For: _loop,
    nodes.Getitem: _subscript,
    nodes.Macro: _body,
    nodes.Pair: _pair,
}


def _filter(name: str, node: nodes.Node, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(cast(nodes.Expr, node), name, list(args), [], None, None, lineno=node.lineno)


def _payment(steps: int, node: nodes.Node) -> nodes.ExprStmt:
    return nodes.ExprStmt(_filter("_paid", nodes.Const(steps, lineno=node.lineno)), lineno=node.lineno)


def _steps(parts: Iterable[nodes.Node]) -> int:
    return sum(_own_steps(node) for part in parts for node in (part, *part.find_all(nodes.Node)))


def _own_steps(node: nodes.Node) -> int:
    if isinstance(node, nodes.TemplateData):
        return 1 + len(node.data) // CHARACTERS_PER_STEP
    return _SLOW.get(type(node), 1)


def _is_short(node: nodes.Compare) -> bool:
    """Whether one side of each comparison stands in the template, and is therefore short."""
    left = node.expr
    for operand in node.ops:
        sought_in = operand.op in ("in", "notin")
        if not (_is_constant(operand.expr) or (_is_constant(left) and not sought_in)):
            return False
        left = operand.expr
    return True


def _is_constant(node: nodes.Expr) -> bool:
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(map(_is_constant, node.items))
    return isinstance(node, nodes.Const)
