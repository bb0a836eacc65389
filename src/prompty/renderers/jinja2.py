"""Jinja2 templates, the default engine (§2.8). Templates run in a sandbox with limits and are compiled once."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import TracebackType

from jinja2 import (
    StrictUndefined,
    Template,
    TemplateAssertionError,
    TemplateError,
    TemplateSyntaxError,
    Undefined,
    nodes,
)
from jinja2.meta import find_undeclared_variables

from prompty.errors import RenderError, nearest
from prompty.model.marker import ROLE_MARK
from prompty.renderers import Include, TemplateBlock
from prompty.renderers.jinja2_sandbox import CHARACTERS, LimitedEnvironment, LimitExceeded, Meter
from prompty.renderers.jinja2_structure import NONCE, check_structure, find_blocks, find_includes

_UNKNOWN_FILTER = re.compile(r"No filter named '(.+)'")
_MACRO_VARIABLES = {"caller", "varargs", "kwargs"}

# Errors of Python's compiler: nested too deep, too many lines, a number with too many digits.
_COMPILE_ERRORS = (TemplateError, RecursionError, MemoryError, SyntaxError, ValueError)


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
        try:
            parsed = _parse(_environment(False), template)
            names = find_undeclared_variables(parsed) - _environment(False).globals.keys() - _MACRO_VARIABLES
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
            return list(find_includes(_environment(False), template))
        except _COMPILE_ERRORS as error:
            raise _render_error(error) from None

    def blocks(self, template: str) -> list[TemplateBlock]:
        """Return the parts of a template that a variant can replace, each after the blocks in it."""
        try:
            return list(find_blocks(_environment(False), template))
        except _COMPILE_ERRORS as error:
            raise _render_error(error) from None


jinja2_renderer: Jinja2Renderer = Jinja2Renderer()


def _join(pieces: list[str], inputs: Mapping[str, object]) -> str:
    """Return the output of a template, which may exceed its inputs' length by the limit."""
    size = sum(map(len, pieces))
    if size > CHARACTERS.maximum:
        CHARACTERS.check(size - sum(len(value) for value in inputs.values() if isinstance(value, str)))
    return "".join(pieces)


@lru_cache(maxsize=2)
def _environment(strict: bool) -> LimitedEnvironment:
    return LimitedEnvironment(undefined=StrictUndefined if strict else Undefined)


@lru_cache(maxsize=256)
def compile_template(template: str, strict: bool) -> Template:
    """Return the compiled template. Raise `RenderError` if it is invalid or too large to compile."""
    environment = _environment(strict)
    try:
        parsed = _parse(environment, template)
        _insert_nonce(parsed)
        return environment.from_string(Meter().visit(parsed))
    except _COMPILE_ERRORS as error:
        raise _render_error(error) from None


def _parse(environment: LimitedEnvironment, template: str) -> nodes.Template:
    parsed = environment.parse(template)
    for node in parsed.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
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
    unknown = _UNKNOWN_FILTER.match(message)
    if unknown is None:
        return "Correct this line of the template."
    near = nearest(unknown[1], list(_environment(False).filters))
    return f"Did you mean `{near}`?" if near else "Use one of Jinja2's filters, or remove it."


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
