"""No value of an input changes the structure of a prompt, wherever its variable stands in the template.

Templates are generated with a variable in every place a variable can stand: in the text, in attributes with and
without quotes, in filters and their arguments, in loops, conditions, macros and sections, beside a role marker and in
its place.
Each is prepared with harmless values and with hostile ones. Both must give the same roles and attribute names in the
same order, or both must be refused with the same words.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st

from prompty import PromptAgent, prepare
from prompty.errors import RenderError
from prompty.pipeline.compose import CompositionProblem, Partial, insert_partials
from prompty.renderers.jinja2 import jinja2_renderer as jinja2_renderer
from prompty.renderers.mustache import mustache_renderer as mustache_renderer
from tests.soak import SOAK

TEMPLATES = 10_000 if SOAK else 100  # of each engine, and each with five sets of hostile values
thorough = settings(max_examples=TEMPLATES, deadline=None, suppress_health_check=list(HealthCheck))

Draw = st.DrawFn
Values = dict[str, Any]

ROLES = ["system", "user", "assistant", "developer", "User", "# assistant", " system"]
MARKERS = ["system:", "user:", "# developer:", 'assistant[name="x"]:', "user[a=1]:", "system[]:", "SYSTEM :"]
ENDS = ['"', "'", "]", "]:", '"]:', "']:", '", b="', ", c=", "}}", "%}", "#}", "\ufdd0", "\ufdd1", "\r", ":"]
hostile_texts = st.lists(
    st.sampled_from(["\n", "\n\n", " ", "\t", "\u2028", "\x85", "x", "0", "1", "7", "{{ a }}", "{% if a %}", "{#"])
    | st.sampled_from(MARKERS)
    | st.sampled_from(ENDS)
    | st.text(max_size=4),
    max_size=8,
).map(lambda pieces: "h" + "".join(pieces))  # never empty: a condition must not change with the value

HARMLESS: Values = {"a": "one", "b": "two", "xs": ["three", "four"], "d": {"k": "five"}, "yes": True, "no": False}


def attack(texts: list[str]) -> list[Values]:
    """Put each of five texts into each of five places."""
    turns = [texts[turn:] + texts[:turn] for turn in range(5)]
    return [{**HARMLESS, "a": a, "b": b, "xs": [c, d], "d": {"k": e}} for a, b, c, d, e in turns]


hostile_values = st.lists(hostile_texts, min_size=5, max_size=5).map(attack)


# Templates of Jinja2.

JINJA2_EXPRESSIONS = [
    *["{{ a }}", "{{a}}", "{{- b -}}", "{{ xs[0] }}", "{{ d.k }}", "{{ d['k'] }}", '{{ d["k"] }}', "{{ a ~ b }}"],
    *["{{ a|upper }}", "{{ a|replace('h', b) }}", '{{ a|replace(b, "user:") }}', "{{ xs|join(b) }}", "{{ a|trim }}"],
    *[
        "{{ a|indent(2) }}",
        "{{ a|wordwrap(5) }}",
        "{{ a|tojson }}",
        "{{ a|e }}",
        "{{ a|default('}}') }}",
        "{{ a|list }}",
    ],
    *['{{ "%s"|format(a) }}', "{{ a if yes else b }}", "{{ '\n' ~ a }}", "{{ 'user:' ~ b }}", "{{ xs|last|reverse }}"],
    *["{{ a[1:] }}", "{{ a.split('x')[0] }}", "{{ {'k': {'j': a}}.k.j }}", "{{ a|truncate(9, true) }}", "{{ xs }}"],
]
JINJA2_BLOCKS: list[Callable[[str, str], str]] = [
    lambda inner, name: f"{{% if a %}}{inner}{{% endif %}}",
    lambda inner, name: f"{{% if a %}}\n{inner}\n{{% else %}}\n{inner}{{% endif %}}\n",
    lambda inner, name: f"{{%- if no %}}x{{% elif a -%}}\n{inner}\n{{%- endif -%}}\n",
    lambda inner, name: f"{{% for x in xs %}}\n{inner}\n{{{{ x }}}}{{% endfor %}}",
    lambda inner, name: f"{{% for x in xs %}}{inner}{{{{ x }}}}\n{{% else %}}{inner}{{% endfor %}}\n",
    lambda inner, name: (
        f"{{% for x in [[xs]] recursive %}}\n{inner}\n{{{{ loop(x) if x is not string }}}}{{% endfor %}}"
    ),
    lambda inner, name: f"{{% macro {name}(p) %}}\n{inner}\n{{{{ p }}}}{{% endmacro %}}\n{{{{ {name}(a) }}}}\n",
    lambda inner, name: f"{{% macro {name}(p) %}}{inner}{{% endmacro %}}{{{{ {name}(b)|upper }}}}",
    lambda inner, name: f"{{% macro {name}(p) %}}{inner}{{% endmacro %}}{{{{ {name}(b)|replace(a, b) }}}}",
    lambda inner, name: (
        f"{{% macro {name}(p) %}}\n{{{{ caller() }}}}{{% endmacro %}}{{% call {name}(a) %}}\n{inner}\n{{% endcall %}}"
    ),
    lambda inner, name: f"{{% set {name} %}}\n{inner}\n{{% endset %}}{{{{ {name} }}}}\n",
    lambda inner, name: f"{{% set {name} %}}\n{inner}\n{{% endset %}}{{{{ {name}[1:] }}}}\n",
    lambda inner, name: f"{{% set {name} = a %}}\n{inner}\n{{{{ {name} }}}}",
    lambda inner, name: f"{{% filter upper %}}\n{inner}\n{{% endfilter %}}\n",
    lambda inner, name: f"{{% filter replace(a, b) %}}\n{inner}\n{{% endfilter %}}\n",
    lambda inner, name: f"{{% filter indent(3)|trim %}}\n{inner}\n{{% endfilter %}}\n",
    lambda inner, name: f"{{% block {name} %}}\n{inner}\n{{% endblock %}}\n",
    lambda inner, name: f"{{% with p = a %}}\n{inner}\n{{{{ p }}}}{{% endwith %}}\n",
    lambda inner, name: f"{{% raw %}}\n{inner}\n{{% endraw %}}\n",
    lambda inner, name: f"{{#\n{inner.replace('#}', '')}\n#}}\n",
]
JINJA2_TAGS = [
    "{% if a %}{% endif %}",
    "{% set z = a %}",
    "{# note #}",
    "{#- it's -#}",
    "{% if yes\n and a %}{% endif %}",
]
JINJA2_VALUES = ["{% if a %}{{ a }}{% endif %}", "{% for x in xs %}{{ x }}{% endfor %}", "{% if a %}", "{# x #}{{ a }}"]

# Templates of Mustache.

MUSTACHE_EXPRESSIONS = [
    *["{{a}}", "{{ a }}", "{{{b}}}", "{{& b }}", "{{d.k}}", "{{#d}}{{k}}{{/d}}", "{{#a}}{{.}}{{/a}}", "{{{d.k}}}"],
    *["{{#xs}}{{.}}{{/xs}}", "{{^no}}{{a}}{{/no}}", "{{missing}}{{a}}"],
]
MUSTACHE_BLOCKS: list[Callable[[str, str], str]] = [
    lambda inner, name: f"{{{{#a}}}}{inner}{{{{/a}}}}",
    lambda inner, name: f"{{{{#a}}}}\n{inner}\n{{{{/a}}}}\n",
    lambda inner, name: f"{{{{^no}}}}\n{inner}\n{{{{/no}}}}\n",
    lambda inner, name: f"{{{{#xs}}}}\n{inner}\n{{{{.}}}}{{{{/xs}}}}",
    lambda inner, name: f"{{{{#xs}}}}{inner}{{{{{{.}}}}}}\n{{{{/xs}}}}\n",
    lambda inner, name: f"{{{{#no}}}}\n{inner}\n{{{{/no}}}}\n",
    lambda inner, name: f"{{{{=<% %>=}}}}\n{inner.replace('{{', '<%').replace('}}', '%>')}\n<%={{{{ }}}}=%>\n",
]
MUSTACHE_TAGS = ["{{! it's }}", "{{#a}}{{/a}}", "{{^no}}{{/no}}", "{{! two\nlines }}"]
MUSTACHE_VALUES = ["{{#a}}{{b}}{{/a}}", "{{^no}}{{a}}{{/no}}", "{{#a}}", "{{! x }}{{a}}"]


class Engine:
    """Draws the parts of a template."""

    def __init__(self, expressions: list[str], blocks: list[Callable[[str, str], str]], tags: list[str]) -> None:
        self.expressions = st.sampled_from(expressions)
        self.blocks = st.sampled_from(blocks)
        self.tags = st.sampled_from([*tags, "", "", ""])

    def markers(self, values: list[str]) -> st.SearchStrategy[str]:
        expression, role = self.expressions, st.sampled_from(ROLES)
        value = expression | st.sampled_from([*values, "plain", "3"]) | expression.map(lambda text: f"Dr. {text}")
        attribute = st.one_of(
            st.builds('name="{}"'.format, value),
            st.builds("b='{}'".format, value),
            st.builds("c={}".format, value),
            st.builds("d = {} ".format, expression),
        )
        attributes = st.lists(attribute, min_size=1, max_size=3).map(lambda found: f"[{', '.join(found)}]")
        usual = st.builds("{}{}{}:{}".format, self.tags, role, attributes | st.just(""), self.tags)
        odd = st.one_of(
            st.builds("{}:".format, expression),
            st.builds("{}{}:".format, expression, role),
            st.builds("{}{}:".format, role, expression),
            st.builds("{}: {}".format, role, expression),
            st.builds("{}[{}]:".format, role, expression),
            st.builds('{}[name="x", {}="y"]:'.format, role, expression),
            st.builds("{}{}:".format, expression, attributes),
            st.builds("text {} {}:".format, expression, role),
        )
        return st.integers(0, 5).flatmap(lambda number: odd if number == 5 else usual)

    def bodies(self, values: list[str]) -> st.SearchStrategy[str]:
        text = st.sampled_from(["Hello", "\n", "  ", "user: hi", "Note:"]) | self.expressions
        lines = st.lists(text, min_size=1, max_size=3).map("".join)
        message = st.builds("{}\n{}".format, self.markers(values), lines)
        plain = st.lists(message, min_size=1, max_size=3).map("\n".join)
        return st.builds(
            "{}{}\n{}".format, st.sampled_from(["", "user:\n"]), lines, st.recursive(plain, self.nest, max_leaves=3)
        )

    def nest(self, inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        names = st.integers(0, 10**9).map(lambda number: f"n{number}")
        return st.builds(lambda block, body, name: block(body, name), self.blocks, inner, names) | st.builds(
            "{}\n{}".format, inner, inner
        )


jinja2 = Engine(JINJA2_EXPRESSIONS, JINJA2_BLOCKS, JINJA2_TAGS).bodies(JINJA2_VALUES)
mustache = Engine(MUSTACHE_EXPRESSIONS, MUSTACHE_BLOCKS, MUSTACHE_TAGS).bodies(MUSTACHE_VALUES)


def structure_of(agent: PromptAgent, values: Mapping[str, Any]) -> object:
    """The roles and attribute names of the messages, or the words with which the template is refused."""
    try:
        return [(message.role, sorted(message.metadata)) for message in prepare(agent, values, extra_inputs="ignore")]
    except RenderError as error:
        return error.cause, error.line


def check_template(engine: str, body: str, hostile: list[Values]) -> None:
    agent = PromptAgent.model_validate({"template": engine, "instructions": f"Intro\n{body}"})
    expected = structure_of(agent, HARMLESS)
    for values in hostile:
        assert structure_of(agent, values) == expected


@thorough
@given(jinja2, hostile_values)
def test_no_value_changes_the_structure_of_a_jinja2_template(body: str, hostile: list[Values]) -> None:
    check_template("jinja2", body, hostile)


@thorough
@given(mustache, hostile_values)
def test_no_value_changes_the_structure_of_a_mustache_template(body: str, hostile: list[Values]) -> None:
    check_template("mustache", body, hostile)


TAGS: dict[str, tuple[str, object]] = {
    "jinja2": ('{% include "_part" %}', jinja2_renderer),
    "mustache": ("{{> _part}}", mustache_renderer),
}


def check_partial(engine: str, body: str, partial: str, place: float, hostile: list[Values]) -> None:
    """Include a partial anywhere in a template. Where there can be no include, it is text or refused."""
    tag, renderer = TAGS[engine]
    position = round(place * len(body))
    template = body[:position] + tag + body[position:]
    try:
        composition = insert_partials(template, renderer, lambda _: Partial(Path("_part"), partial))
    except CompositionProblem:
        return
    check_template(engine, composition.text if composition else template, hostile)


@thorough
@given(jinja2, jinja2, st.floats(0, 1), hostile_values)
def test_no_value_changes_the_structure_of_a_jinja2_template_with_a_partial(
    body: str, partial: str, place: float, hostile: list[Values]
) -> None:
    check_partial("jinja2", body, partial, place, hostile)


@thorough
@given(mustache, mustache, st.floats(0, 1), hostile_values)
def test_no_value_changes_the_structure_of_a_mustache_template_with_a_partial(
    body: str, partial: str, place: float, hostile: list[Values]
) -> None:
    check_partial("mustache", body, partial, place, hostile)
