"""Keep role markers whole in a Jinja2 template.

A marker may stand in a macro, in a `{% set %}` block or inside a filter, and is then part of a value. An operation on
that value, such as `{{ m()|replace(a, b) }}`, could change a role or remove a marker, depending on the inputs. So a
value with markers may only be written as it is, or through filters that keep marks whole.
"""

from collections.abc import Iterator

from jinja2 import nodes

from prompty.errors import RenderError
from prompty.model.marker import ROLE_MARK

NONCE = "__prompty_nonce"
_SAFE_FILTERS = {"upper", "lower", "title", "capitalize", "trim", "indent"}
_FIX = "Write the markers outside of it, or apply filters to the text of a message only."


def check_structure(template: nodes.Template) -> None:
    """Raise `RenderError` if the template could change one of its role markers."""
    names = _names_with_markers(template)
    for node in template.find_all(nodes.Name):
        if node.name == NONCE:
            raise RenderError(f"`{NONCE}` is reserved", "Choose another name.", node.lineno)
    for use in _find_uses(template, names):
        name = _describe(use)
        raise RenderError(f"{name} has role markers in it, which this use could change", _FIX, use.lineno)


def _describe(node: nodes.Node) -> str:
    if isinstance(node, nodes.Name):
        return f"`{node.name}`"
    return f"the filter `{node.name}`" if isinstance(node, nodes.Filter) else "this value"


def _names_with_markers(template: nodes.Template) -> set[str]:
    """Return the names whose values contain role markers: of macros, of blocks, and of `{% set %}` blocks."""
    holders = [
        (name, node)
        for node in template.find_all((nodes.Macro, nodes.AssignBlock, nodes.CallBlock, nodes.Block, nodes.For))
        if (name := _held_name(node))
    ]
    names = set[str]()
    while found := {name for name, node in holders if name not in names and _has_markers(node, names)}:
        names |= found
    return names


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


def _has_markers(node: nodes.Node, names: set[str]) -> bool:
    if any(ROLE_MARK in data.data for data in node.find_all(nodes.TemplateData)):
        return True
    return any(name.name in names and name.ctx == "load" for name in node.find_all(nodes.Name))


def _find_uses(node: nodes.Node, names: set[str]) -> Iterator[nodes.Node]:
    """Yield each use of a value with markers that could change them."""
    match node:
        case nodes.Name() if node.name in names and node.ctx == "load":
            yield node
        case nodes.Getattr(node=nodes.Name(name="loop")) | nodes.Getitem(node=nodes.Name(name="loop")):
            return
        case nodes.Output():
            for written in node.nodes:
                yield from _find_uses_in_written(written, names)
        case nodes.CallBlock():
            yield from _find_uses_in_written(node.call, names)
            for child in node.body:
                yield from _find_uses(child, names)
        case nodes.AssignBlock(target=nodes.NSRef()) if _has_markers(node, names):
            yield node
        case nodes.FilterBlock() | nodes.AssignBlock() if node.filter is not None and _has_markers(node, names):
            if not _is_safe(node.filter):
                yield node.filter
            for child in node.body:
                yield from _find_uses(child, names)
        case _:
            for child in node.iter_child_nodes():
                yield from _find_uses(child, names)


def _find_uses_in_written(node: nodes.Node, names: set[str]) -> Iterator[nodes.Node]:
    """Yield the unsafe uses in an expression whose value goes into the text as it is."""
    match node:
        case nodes.Name():
            return
        case nodes.Call(node=nodes.Name()) | nodes.Call(node=nodes.Getattr(node=nodes.Name(name="self"))):
            for child in node.iter_child_nodes(exclude=("node",)):
                yield from _find_uses(child, names)
        case nodes.CondExpr():
            yield from _find_uses(node.test, names)
            for branch in (node.expr1, node.expr2):
                if branch is not None:
                    yield from _find_uses_in_written(branch, names)
        case nodes.Concat():
            for part in node.nodes:
                yield from _find_uses_in_written(part, names)
        case nodes.Filter() if node.node is not None and _is_safe(node, alone=True):
            yield from _find_uses_in_written(node.node, names)
        case _:
            yield from _find_uses(node, names)


def _is_safe(node: nodes.Filter, *, alone: bool = False) -> bool:
    """Return True if a filter, and those it is chained to, keep digits and marks whole whatever the inputs are."""
    arguments = [*node.args, *(pair.value for pair in node.kwargs)]
    constant = all(isinstance(argument, nodes.Const) for argument in arguments)
    whole = node.name in _SAFE_FILTERS and constant and not (node.name == "trim" and arguments)
    if not whole or node.dyn_args or node.dyn_kwargs:
        return False
    return alone or not isinstance(node.node, nodes.Filter) or _is_safe(node.node)
