"""Jinja2 templates, the default engine (§2.8). Templates run in a sandbox with limits and are compiled once."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import TracebackType
from typing import NamedTuple

from jinja2 import (
    Environment,
    StrictUndefined,
    Template,
    TemplateAssertionError,
    TemplateError,
    TemplateSyntaxError,
    Undefined,
    nodes,
)

from prompty.errors import RenderError, did_you_mean, nearest
from prompty.model.marker import ROLE_MARK
from prompty.renderers import Include, NameUse, WrongInclude
from prompty.renderers.jinja2_names import find_undeclared
from prompty.renderers.jinja2_sandbox import CHARACTERS, LimitedEnvironment, LimitExceeded, Meter

NONCE = "__prompty_nonce"
_SAFE_FILTERS = {"upper", "lower", "title", "capitalize", "trim", "indent"}
_HOLDERS = (nodes.Macro, nodes.AssignBlock, nodes.CallBlock, nodes.Block, nodes.For, nodes.FilterBlock)
_FIX = "Move the markers outside it, or only apply filters to the text of a message."
_Token = tuple[int, str, str]
_UNKNOWN_FILTER = re.compile(r"No filter named '(.+)'")
_UNCLOSED_BLOCK = re.compile(r"innermost block that needs to be closed is '(\w+)'")
_FILE_TAG = re.compile("include|import|extends")
_MACRO_VARIABLES = {"caller", "varargs", "kwargs"}

# Errors of Python's compiler: nested too deep, too many lines, a number with too many digits.
_COMPILE_ERRORS = (TemplateError, RecursionError, MemoryError, SyntaxError, ValueError)
_LENIENT = LimitedEnvironment(undefined=Undefined)
_STRICT = LimitedEnvironment(undefined=StrictUndefined)


def check_structure(template: nodes.Template) -> None:
    """Raise `RenderError` if the template could change one of its role markers.

    A marker may be in a macro, in a `{% set %}` block or inside a filter, and is then part of a value. An operation on
    that value, such as `{{ m()|replace(a, b) }}`, could change a role or remove a marker, depending on the inputs. So a
    value with markers may only be written unchanged, or through filters that don't change marks.
    """
    marked = _Marked(template)
    for use in _find_uses(template, marked) if marked.names or marked.holders else ():
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
        self.holders: set[nodes.Node] = set()
        self._parents: dict[nodes.Node, nodes.Node | None] = {}
        self._users: dict[str, list[nodes.Node]] = {}
        direct: list[nodes.Node] = []
        self._visit(template, None, direct)
        while direct:
            self._add(direct.pop(), direct)

    def __contains__(self, node: nodes.Node) -> bool:
        return node in self.holders

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
        if holder in self.holders:
            return
        self.holders.add(holder)
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


_NO_VARIABLE = frozenset({".", "|", "is", "block", "endblock", "filter", "macro", "call", "import", "as"})


def find_names(environment: Environment, template: str) -> Iterator[NameUse]:
    """Yield the names of variables in a template, up to the first mistake in it."""
    position, tokens, starts = 0, list[_Token](), list[int]()
    try:
        for token in environment.lexer.tokeniter(template, None):
            at = template.index(token[2], position)
            position = at + len(token[2])
            if token[1] in ("block_begin", "variable_begin"):
                tokens, starts = [], []
            elif token[1] in ("block_end", "variable_end"):
                yield from _read_names(tokens, starts, is_tag=token[1] == "block_end")
            elif token[1] != "whitespace":
                tokens.append(token)
                starts.append(at)
    except TemplateSyntaxError:
        return


def _read_names(tokens: list[_Token], starts: list[int], *, is_tag: bool) -> Iterator[NameUse]:
    """Yield the names of one tag. Those that a `for` or `set` binds, and all of a macro, are local."""
    values = [value for _, _, value in tokens]
    keyword = values[0] if is_tag and values else ""
    assigned = next((at for at, value in enumerate(values) if value in ("=", "in")), len(values))
    for index, ((_, kind, value), start) in enumerate(zip(tokens, starts, strict=True)):
        if kind != "name" or (is_tag and index == 0):
            continue
        before, after = values[index - 1] if index else "", values[index + 1] if index + 1 < len(values) else ""
        is_local = keyword in ("macro", "call", "with") or (keyword in ("for", "set") and index < assigned)
        is_argument = after == "=" and not is_local
        is_test = values[max(index - 2, 0) : index] == ["is", "not"]
        if before not in _NO_VARIABLE and not is_argument and not is_test:
            yield NameUse(value, start, start + len(value), is_local)


class Jinja2Renderer:
    """Renders Jinja2 templates. See `prompty.renderers.Renderer`."""

    def __call__(self, template: str, inputs: Mapping[str, object], /, *, nonce: str = "", strict: bool = False) -> str:
        compiled = compile_template(template, strict)
        try:
            context = compiled.new_context({**inputs, NONCE: nonce})
            return _join(list(compiled.root_render_func(context)), inputs)
        except Exception as error:  # a template can raise anything: 1/0, a missing key, deep recursion
            raise _render_error(error) from None

    def variables(self, template: str) -> dict[str, int]:
        """Return the names that a template reads from its inputs, with the line of the first use."""
        parsed = parse_jinja2(template)
        try:
            names = find_undeclared(parsed) - _LENIENT.globals.keys() - _MACRO_VARIABLES
        except _COMPILE_ERRORS as error:
            raise _render_error(error) from None
        lines: dict[str, int] = {}
        for node in parsed.find_all(nodes.Name):
            if node.ctx == "load" and node.name in names:
                lines.setdefault(node.name, node.lineno)
        return lines

    def includes(self, template: str) -> list[Include]:
        """Return the tags that name partials."""
        try:
            return list(find_includes(_LENIENT, template))
        except _COMPILE_ERRORS as error:
            raise _render_error(error) from None

    def filters(self) -> list[str]:
        """Return the names of the filters, for an editor."""
        return sorted(name for name in _LENIENT.filters if not name.startswith("_"))

    def names(self, template: str) -> list[NameUse]:
        """Return the names of variables, for an editor. A template with a mistake is read up to it."""
        return list(find_names(_LENIENT, template))


jinja2_renderer: Jinja2Renderer = Jinja2Renderer()


def _join(pieces: list[str], inputs: Mapping[str, object]) -> str:
    """Return the output of a template, which may exceed its inputs' length by the limit."""
    size = sum(map(len, pieces))
    if size > CHARACTERS.maximum:
        CHARACTERS.check(size - sum(len(value) for value in inputs.values() if isinstance(value, str)))
    return "".join(pieces)


@lru_cache(maxsize=256)
def compile_template(template: str, strict: bool) -> Template:
    """Return the compiled template. Raise `RenderError` if it is invalid or too large to compile."""
    environment = _STRICT if strict else _LENIENT
    try:
        return _compile(environment, _parse(environment, template))
    except _COMPILE_ERRORS as error:
        raise _render_error(error) from None


def _compile(environment: LimitedEnvironment, parsed: nodes.Template) -> Template:
    _insert_nonce(parsed)
    compiled = environment.from_string(Meter().visit(parsed))
    compiled.globals = dict(compiled.globals)  # every render copies them, and this is faster than Jinja2's ChainMap
    return compiled


def parse_jinja2(template: str) -> nodes.Template:
    """Return the tree of a template, for those who analyze it. Raise `RenderError` if it is invalid."""
    try:
        return _parse(_LENIENT, template)
    except _COMPILE_ERRORS as error:
        raise _render_error(error) from None


def _parse(environment: LimitedEnvironment, template: str) -> nodes.Template:
    parsed = environment.parse(template)
    reads_files = _FILE_TAG.search(template)
    for node in parsed.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)) if reads_files else ():
        raise TemplateAssertionError("a template cannot read other files; `load` inserts partials", node.lineno)
    if ROLE_MARK in template:
        check_structure(parsed)
    return parsed


def _insert_nonce(parsed: nodes.Template) -> None:
    """Replace every role mark in the template's own text with the nonce.

    The nonce is a variable, so one compiled template serves every render. It is inserted into the tree and not into
    the source, so that `raw` blocks also get it.
    """
    for output in parsed.find_all(nodes.Output):
        output.nodes = [piece for node in output.nodes for piece in _split_at_marks(node)]
    for constant in parsed.find_all(nodes.Const):
        if isinstance(constant.value, str):
            constant.value = constant.value.replace(ROLE_MARK, "")


def _split_at_marks(node: nodes.Expr) -> Iterator[nodes.Expr]:
    if not isinstance(node, nodes.TemplateData) or ROLE_MARK not in node.data:
        yield node
        return
    for index, text in enumerate(node.data.split(ROLE_MARK)):
        if index:
            yield nodes.Name(NONCE, "load", lineno=node.lineno)
        yield nodes.TemplateData(text, lineno=node.lineno)


def _render_error(error: Exception) -> RenderError:
    if isinstance(error, TemplateSyntaxError):
        cause = f"the template is not valid Jinja2: {error.message}"
        return RenderError(cause, _find_fix(str(error.message)), error.lineno)
    line = _template_line(error.__traceback__)
    if isinstance(error, RenderError):
        return error if error.line else RenderError(error.cause, error.fix, line)
    if isinstance(error, LimitExceeded):
        return RenderError(f"the template asks for {error.message}", "Simplify the template.", line)
    if isinstance(error, RecursionError | MemoryError):
        return RenderError("the template is nested too deep or calls itself without end", "Flatten it.", line)
    cause = f"{type(error).__name__}: {error}"  # may quote a value of millions of characters
    return RenderError(cause[:500], "Correct the expression, or the inputs it reads.", line)


def _find_fix(message: str) -> str:
    """Return the fix of a syntax error. An unknown filter is probably misspelt."""
    if block := _UNCLOSED_BLOCK.search(message):
        return f"Add `{{% end{block[1]} %}}`."
    if "'}'" in message:
        return "Write an expression with two braces on each side: `{{ name }}`."
    unknown = _UNKNOWN_FILTER.match(message)
    if unknown is None:
        return "Correct this line of the template."
    question = did_you_mean(nearest(unknown[1], _LENIENT.filters))
    return question.rstrip() or "Use one of Jinja2's filters, or remove it."


def _template_line(traceback: TracebackType | None) -> int | None:
    """Return the template's line in which an error was raised, or None."""
    innermost = None
    while traceback is not None:
        if "__jinja_template__" in traceback.tb_frame.f_globals:
            innermost = traceback
        traceback = traceback.tb_next
    if innermost is None:
        return None
    template: Template = innermost.tb_frame.f_globals["__jinja_template__"]
    return template.get_corresponding_lineno(innermost.tb_lineno)
