"""The names that a template reads are those that Jinja2 finds by generating its code."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from jinja2 import TemplateSyntaxError, nodes
from jinja2.meta import find_undeclared_variables

from prompty.errors import RenderError
from prompty.model.structure import mark
from prompty.renderers.jinja2 import jinja2_renderer, parse_jinja2
from tests.lsp.corpus import SAMPLES
from tests.renderers.test_jinja2 import WRITTEN
from tests.v1.corpus import list_files

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.prompty"))
FILES = {
    **{file.name: file.read_text(encoding="utf-8") for file in (*list_files(), *EXAMPLES)},
    **{f"{name}: {file}": text for name, sample in SAMPLES.items() for file, text in sample.files.items()},
    **{name: template for name, (template, *_) in WRITTEN.items()},
}
PROVIDED = {"range", "dict", "lipsum", "cycler", "joiner", "namespace", "caller", "varargs", "kwargs"}


def ask_jinja2(template: str) -> dict[str, int] | str:
    """Return the names with their lines, or the message of an error."""
    try:
        tree = parse_jinja2(template)
        names = find_undeclared_variables(tree) - PROVIDED
    except RenderError as error:
        return str(error)
    except TemplateSyntaxError as error:
        return f"{error.message} in line {error.lineno}"
    lines: dict[str, int] = {}
    for node in tree.find_all(nodes.Name):
        if node.ctx == "load" and node.name in names:
            lines.setdefault(node.name, node.lineno)
    return lines


def assert_same_names(template: str) -> None:
    expected = ask_jinja2(template)
    try:
        found: object = jinja2_renderer.variables(template)
    except RenderError as error:
        assert isinstance(expected, str), template
        assert expected in (
            str(error),
            f"{error.cause.removeprefix('the template is not valid Jinja2: ')} in line {error.line}",
        )
    else:
        assert found == expected, template


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_a_prompt_reads_the_names_that_jinja2_finds(text: str) -> None:
    assert_same_names(mark(text.replace("\r\n", "\n")))


NAMES = st.sampled_from(["a", "b", "c", "loop", "self", "super", "caller", "varargs", "range", "m"])
EXPRESSIONS = st.recursive(
    st.one_of(NAMES, st.just("1"), st.just("'x'")),
    lambda inner: st.one_of(
        st.builds("{}.{}".format, NAMES, NAMES),
        st.builds("{}|{}".format, inner, st.sampled_from(["upper", "default(b)", "unknown"])),
        st.builds("({} is {})".format, inner, st.sampled_from(["defined", "unknown", "divisibleby(c)"])),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("{}({}, x={})".format, NAMES, inner, inner),
        st.builds("[{}, {}][{}]".format, inner, inner, inner),
        st.builds("({} + {})".format, inner, inner),
        st.builds("{{'k': {}}}".format, inner),
    ),
    max_leaves=4,
)
STATEMENTS = st.recursive(
    st.one_of(
        st.sampled_from(
            ["text\n", "\n", mark("user:\n"), "{# {{ a }} #}", "{% raw %}{{ a }}{% endraw %}", "{{", "{% if %}"]
        ),
        st.builds("{{{{ {} }}}}\n".format, EXPRESSIONS),
        st.builds("{{{{- {} -}}}}\n".format, EXPRESSIONS),
        st.builds("{{% set {} = {} %}}".format, NAMES, EXPRESSIONS),
        st.builds("{{% set {}.x = {} %}}".format, NAMES, EXPRESSIONS),
    ),
    lambda inner: st.one_of(
        st.builds("{}{}{}".format, inner, inner, inner),
        st.builds(
            "{{% if {} %}}{}\n{{% elif {} %}}{}{{% else %}}{}{{% endif %}}".format,
            EXPRESSIONS,
            inner,
            EXPRESSIONS,
            inner,
            inner,
        ),
        st.builds("{{% for {} in {} %}}{}\n{{% else %}}{}{{% endfor %}}".format, NAMES, EXPRESSIONS, inner, inner),
        st.builds("{{% for a in {} if {} recursive %}}{}{{% endfor %}}".format, EXPRESSIONS, EXPRESSIONS, inner),
        st.builds("{{% macro {}(a, caller=b) %}}{}{{% endmacro %}}".format, NAMES, inner),
        st.builds("{{% call(b) {}(a) %}}{}{{% endcall %}}".format, NAMES, inner),
        st.builds("{{% with {} = {} %}}{}{{% endwith %}}".format, NAMES, EXPRESSIONS, inner),
        st.builds("{{% filter {} %}}{}{{% endfilter %}}".format, st.sampled_from(["upper", "unknown"]), inner),
        st.builds("{{% set {} %}}{}{{% endset %}}".format, NAMES, inner),
        st.builds("{{% block {} %}}{}{{% endblock %}}".format, NAMES, inner),
    ),
    max_leaves=12,
)


@given(STATEMENTS)
def test_any_template_reads_the_names_that_jinja2_finds(template: str) -> None:
    assert_same_names(template)


def test_an_expression_too_deep_to_compile_is_refused() -> None:
    with pytest.raises(RenderError, match="nested too deep"):
        jinja2_renderer.variables(f"{{{{ {'+'.join(['a'] * 2_000)} }}}}")
