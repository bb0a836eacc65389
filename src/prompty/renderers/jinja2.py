"""Jinja2 templates, the default engine (§2.8)."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import TracebackType

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, Undefined, nodes
from jinja2.meta import find_undeclared_variables

from prompty.errors import RenderError
from prompty.model.marker import ROLE_MARK
from prompty.renderers.jinja2_limits import LimitExceeded
from prompty.renderers.jinja2_metering import metered
from prompty.renderers.jinja2_sandbox import LimitedEnvironment

_NONCE = "__prompty_nonce"
_IN_MACROS = {"caller", "varargs", "kwargs"}

# Besides Jinja2's own errors those of Python's compiler: too deep, too many lines, a number of too many digits.
_BROKEN = (TemplateError, RecursionError, MemoryError, SyntaxError, ValueError)


class Jinja2Renderer:
    """Renders in a sandbox with limits; a template is compiled once."""

    def __call__(self, template: str, inputs: Mapping[str, object], /, *, nonce: str = "", strict: bool = False) -> str:
        compiled = _compiled(template, strict)
        try:
            return compiled.render({**inputs, _NONCE: nonce})
        except Exception as error:  # a template can make Python raise anything: 1/0, a missing key, deep recursion
            raise _render_error(error) from None

    def variables(self, template: str) -> dict[str, int]:
        """The names a template reads from its inputs, with the line of the first use."""
        try:
            parsed = _environment(False).parse(template)
            wanted = find_undeclared_variables(parsed) - _environment(False).globals.keys() - _IN_MACROS
        except _BROKEN as error:
            raise _render_error(error) from None
        lines: dict[str, int] = {}
        for name in parsed.find_all(nodes.Name):
            if name.ctx == "load" and name.name in wanted:
                lines.setdefault(name.name, name.lineno)
        return lines


renderer = Jinja2Renderer()


@lru_cache(maxsize=2)
def _environment(strict: bool) -> LimitedEnvironment:
    return LimitedEnvironment(undefined=StrictUndefined if strict else Undefined)


@lru_cache(maxsize=256)
def _compiled(template: str, strict: bool) -> Template:
    environment = _environment(strict)
    try:
        parsed = environment.parse(template)
        _write_nonce(parsed)
        return environment.from_string(metered(parsed))
    except _BROKEN as error:
        raise _render_error(error) from None


def _write_nonce(parsed: nodes.Template) -> None:
    """Write the nonce for every role mark in the template's own text. As a variable of the render it leaves the
    compiled template the same for every render; in the tree, not in the source, so that `raw` blocks have it too."""
    for output in parsed.find_all(nodes.Output):
        output.nodes = [piece for node in output.nodes for piece in _cut_at_marks(node)]
    for constant in parsed.find_all(nodes.Const):
        if isinstance(constant.value, str):
            constant.value = constant.value.replace(ROLE_MARK, "")


def _cut_at_marks(node: nodes.Expr) -> Iterator[nodes.Expr]:
    if not isinstance(node, nodes.TemplateData) or ROLE_MARK not in node.data:
        yield node
        return
    for index, text in enumerate(node.data.split(ROLE_MARK)):
        if index:
            yield nodes.Name(_NONCE, "load", lineno=node.lineno)
        yield nodes.TemplateData(text, lineno=node.lineno)


def _render_error(error: Exception) -> RenderError:
    if isinstance(error, TemplateSyntaxError):
        return RenderError(f"the template is not valid Jinja2: {error.message}", "Correct the template.", error.lineno)
    line = _line_of(error.__traceback__)
    if isinstance(error, LimitExceeded):
        return RenderError(f"the template asks for {error.message}", "Make the template do less.", line)
    if isinstance(error, RecursionError | MemoryError):
        return RenderError("the template is nested too deep or calls itself without end", "Make it flatter.", line)
    return RenderError(f"{type(error).__name__}: {error}", "Correct the expression, or the inputs it reads.", line)


def _line_of(traceback: TracebackType | None) -> int | None:
    """The line of the template that the innermost frame of its compiled code stands for."""
    innermost = None
    while traceback is not None:
        if "__jinja_template__" in traceback.tb_frame.f_globals:
            innermost = traceback
        traceback = traceback.tb_next
    if innermost is None:
        return None
    template: Template = innermost.tb_frame.f_globals["__jinja_template__"]
    return template.get_corresponding_lineno(innermost.tb_lineno)
