"""The worst inputs known for every scanner: the right answer, within 50 ms of CPU, best of three (R2, SECURITY)."""

import json
import time
from collections.abc import Callable

import pytest

from prompty import PromptAgent, PromptyError, loads, prepare, render
from prompty.analysis.check import check_text
from prompty.errors import ArgumentsError, LoadError, RenderError
from prompty.model.marker import read_marker
from prompty.model.structure import read_structure, read_template
from prompty.pipeline import parse
from prompty.pipeline.dotenv import parse_env
from prompty.pipeline.migrate import migrate_text
from prompty.pipeline.references import References
from prompty.safety.redaction import find_secret, is_credential_name, mask_line
from prompty.safety.schemas import get_validator
from prompty.safety.yaml import YamlError, read_yaml
from prompty.tools.calls import check_arguments, parse_arguments
from prompty.v1.translate import translate
from tests.machine import TIMED, time_factor

pytestmark = pytest.mark.timing

BUDGET = 0.050


def measured(action: Callable[[], object]) -> tuple[object, float]:
    """The answer (or our error) and the least CPU time of three tries, as it is at the usual speed."""
    answer: object = None
    best = float("inf")
    for _ in range(3 if TIMED else 1):
        started = time.process_time()
        try:
            answer = action()
        except (PromptyError, YamlError) as error:
            answer = error
        best = min(best, time.process_time() - started)
    return answer, best if best < BUDGET else best / time_factor()


def text_of(agent_text: str) -> list[tuple[str, int]]:
    return [(message.role, len(message.text)) for message in parse(PromptAgent(), agent_text)]


MARKERS = {
    "equals": "system[" + "a=" * 24,
    "equals and commas": "system[" + "a=," * 16,
    "blanks in a value": "user[a=" + " " * 200 + "x",
    "leading blanks": " " * 16_000 + "x",
    "many equals": "system[" + "a=" * 50_000 + "]:",
    "many attributes, unclosed": "system[" + "a=b," * 50_000 + ":",
    "many quotes": "system[" + 'a="b",' * 30_000 + ":",
    "an open quote": 'user[a="' + "x" * 100_000 + ":",
    "brackets": "user" + "[" * 100_000 + ":",
    "colons": "user" + ":" * 100_000,
    "hashes": "#" * 100_000 + "user:",
    "blanks before a colon": "user" + " " * 100_000 + "x:",
    "lines of blanks": (" " * 100 + "\n") * 2_000 + "x",
    "lines that nearly match": "user[a=b\n" * 20_000,
}


@pytest.mark.parametrize("text", MARKERS.values(), ids=MARKERS)
def test_text_that_nearly_is_a_marker_is_one_system_message(text: str) -> None:
    read_marker.cache_clear()
    read_template.cache_clear()
    answer, seconds = measured(lambda: text_of(text))
    assert answer == [("system", len(text.strip("\n")))]
    assert seconds < BUDGET
    answer, seconds = measured(lambda: [m.role for m in prepare(PromptAgent(instructions=f"user:\n{text}"))])
    assert answer == ["user"]


MANY: dict[str, object] = {f"{'n' * 9}{at}": 1 for at in range(3_000)}
UNFIT: dict[str, tuple[dict[str, object], str]] = {
    "names": ({"propertyNames": {"maxLength": 5}}, "longer than 5"),
    "missing": ({"required": [f"r{at}" for at in range(300)]}, "required"),
    "values": ({"additionalProperties": {"type": "string"}}, "is not of type"),
    "alternatives": ({"additionalProperties": {"anyOf": [{"type": "string"}, {"enum": ["a"]}]}}, "is not valid"),
}


@pytest.mark.parametrize(("schema", "said"), UNFIT.values(), ids=UNFIT)
def test_arguments_that_do_not_fit_in_many_places(schema: dict[str, object], said: str) -> None:
    """Every problem has a copy of the object that it is about."""
    validator = get_validator(json.dumps(schema))
    answer, seconds = measured(lambda: check_arguments(MANY, validator))
    assert isinstance(answer, ArgumentsError)
    assert said in str(answer)
    assert seconds < BUDGET


TEMPLATES = {
    "open expressions": "{{" * 20_000 + ":",
    "closed expressions": "{{x}}" * 8_000 + ":",
    "open tags": "{%" * 20_000 + ":",
    "closings": "}}" * 20_000 + ":",
    "open attributes": "user[" + "a={{x}}," * 5_000 + ":",
    "attributes": "user[" + 'a="{{x}}",' * 5_000 + "b=1]:",
    "leading blanks": " " * 16_000 + "x:",
    "leading blanks around a hash": " " * 8_000 + "#" + "\t" * 8_000 + "x:",
    "blanks before a bracket": "user" + " " * 16_000 + "x[:",
    "tags around": "{%a%}" * 8_000 + "user:" + "{%a%}" * 8_000,
    "tags in a value": 'user[a="' + "{%if x%}" * 5_000 + '"]:',
    "blanks and tags": "{%a%} " * 8_000 + "x:",
    "delimiters": "".join(f"{{{{=<{number} {number}>=}}}}" for number in range(5_000)) + "x:" * 5_000,
    "lines": "{{r}}:\n" * 5_000,
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_the_structure_of_any_template_is_found_in_linear_time(template: str) -> None:
    _, seconds = measured(lambda: read_structure(template))
    assert seconds < BUDGET


@pytest.mark.parametrize("order", [1, -1])
def test_markers_are_followed_through_many_macros_in_linear_time(order: int) -> None:
    calls = [f"{{% macro m{n}() %}}{{{{ m{n - 1}() }}}}{{% endmacro %}}" for n in range(1, 700)]
    macros = ["{% macro m0() %}\nuser:\n{% endmacro %}", *calls][::order]
    template = "".join([*macros, "{{ m699()[1:] }}"])
    answer, seconds = measured(lambda: prepare(PromptAgent(instructions=template)))
    assert isinstance(answer, RenderError)
    assert "`m699` contains role markers" in str(answer)
    assert seconds < 1


def test_the_same_text_in_an_input_costs_nothing_more() -> None:
    agent = PromptAgent(instructions="user:\n{{ x }}")
    for text in MARKERS.values():
        answer, seconds = measured(lambda text=text: [m.text for m in prepare(agent, {"x": text})])  # type: ignore[misc]  # mypy cannot type a lambda's default
        assert answer == [text.strip("\n")]
        assert seconds < BUDGET


FRONTMATTER = {
    "newlines": ("\n" * 16_000, None),
    "a line of dashes": ("---\n" + "-" * 50_000, "no closing delimiter"),
    "a megabyte without a closing line": ("---\n" + "name: x\n" * 125_000, "no closing delimiter"),
    "dashes that nearly close": ("---\n" + "---x\n" * 20_000, "no closing delimiter"),
    "dashes and blanks": ("---\n" + "---" + " " * 100_000 + "x", "no closing delimiter"),
    "blanks": (" " * 100_000, None),
    "carriage returns": ("\r" * 100_000, None),
}


@pytest.mark.parametrize(("text", "said"), FRONTMATTER.values(), ids=FRONTMATTER)
def test_frontmatter(text: str, said: str | None) -> None:
    answer, seconds = measured(lambda: loads(text))
    if said is None:
        assert isinstance(answer, PromptAgent)
        assert answer.name is None
    else:
        assert isinstance(answer, LoadError)
        assert said in str(answer)
    assert seconds < BUDGET


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
MERGES = (
    "base: &b {"
    + ", ".join(f"k{n}: 1" for n in range(1000))
    + "}\n"
    + "".join(f"m{n}: {{<<: *b}}\n" for n in range(1000))
)

YAML = {
    "the nine-level alias bomb": (BOMB, "aliases expanded"),
    "a thousand merges of a thousand keys": (MERGES, "aliases expanded"),
    "open brackets": ("a: " + "[" * 2000, "levels deep"),
    "open braces": ("a: " + "{a: " * 2000, "levels deep"),
    "nested blocks": ("".join(" " * n + "a:\n" for n in range(1000)), "levels deep"),
    "dashes": ("- " * 2000 + "x", "levels deep"),
    "a number with many digits": ("a: " + "1" * 100_000, "not a valid int"),
    "sixties": ("a: " + "1:1" * 20_000, None),
    "an unclosed quote": ('a: "' + "x" * 100_000, "end of stream"),
    "question marks": ("? " * 2000, "key that is not text"),
}


@pytest.mark.parametrize(("text", "said"), YAML.values(), ids=YAML)
def test_yaml(text: str, said: str | None) -> None:
    answer, seconds = measured(lambda: read_yaml(text))
    if said is None:
        assert answer == ({"a": text.removeprefix("a: ")}, [])
    else:
        assert isinstance(answer, YamlError), answer
        assert said in str(answer)
    assert seconds < BUDGET


ARGUMENTS = {
    "a fence and newlines": ("```" + "\n" * 1000 + "x", "not valid JSON"),
    "a fence and blank lines": ("```" + "\n " * 1000 + "x", "not valid JSON"),
    "many fences": ("```\n" * 20_000, "not valid JSON"),
    "backticks": ("`" * 100_000, "not valid JSON"),
    "nested brackets": ("[" * 100_000, "too deep"),
    "nested objects": ('{"a":' * 100_000, "too deep"),
    "a number with many digits": ('{"a": ' + "1" * 5000 + "}", "not valid JSON"),
    "not a number": ('{"a": NaN}', "NaN"),
    "keys twice": ('{"a": 1, "a": 2}', "duplicate key"),
    "many keys twice": ("{" + ",".join(f'"k{n}": 1' for n in range(5000)) + ',"k0": 1}', "duplicate key"),
    "many keys, the last twice": (
        "{" + ",".join(f'"k{n}": 1' for n in range(10_000)) + ',"k9999": 1}',
        "duplicate key",
    ),
    "fifty megabytes": ('{"a": "' + "x" * 50_000_000 + '"}', "characters"),
}


@pytest.mark.parametrize(("text", "said"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments(text: str, said: str) -> None:
    answer, seconds = measured(lambda: parse_arguments(text))
    assert isinstance(answer, ArgumentsError)
    assert said in str(answer)
    assert seconds < BUDGET


TEMPLATES = {
    "half a gigabyte": "{{ 'x'*500000000 }}",
    "a wide number": "{{ '%1000000000d'|format(1) }}",
    "nested loops": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "nested loops that write": "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_templates(template: str) -> None:
    agent = PromptAgent(instructions=template)
    answer, seconds = measured(lambda: render(agent))
    assert isinstance(answer, RenderError)
    assert "asks for more than" in str(answer)
    assert seconds < BUDGET


MUSTACHE = {
    "open tags": ("{{" * 50_000, RenderError),
    "open sections": ("{{#a}}" * 20_000, RenderError),
    "tags on one line": ("{{a}}" * 5_000, str),
    "sections on one line": ("{{#a}}{{/a}}" * 2_000, str),
    "comments": ("{{!x}}" * 3_000, str),
}


@pytest.mark.parametrize(("template", "kind"), MUSTACHE.values(), ids=MUSTACHE)
def test_mustache(template: str, kind: type) -> None:
    agent = PromptAgent.model_validate({"instructions": template, "template": "mustache"})
    answer, seconds = measured(lambda: render(agent))
    assert isinstance(answer, kind)
    assert seconds < BUDGET


REFERENCES = {
    "open references": "${" * 50_000,
    "open braces": "${env:" + "{" * 20_000,
    "many": "${env:A}" * 3_000,
    "colons": "${env:A" + ":" * 100_000 + "}",
}


@pytest.mark.parametrize("text", REFERENCES.values(), ids=REFERENCES)
def test_references(text: str) -> None:
    answer, seconds = measured(lambda: References(None, env={"A": "b"}).resolve(text))
    assert isinstance(answer, str)
    assert seconds < BUDGET


SHOWN = [
    "sk-" * 30_000,
    "Bearer " * 15_000,
    "eyJ" * 30_000,
    "://" + "a:" * 50_000,
    "apiKey: " + " " * 100_000,
    "a" * 100_000,
]


@pytest.mark.parametrize("text", SHOWN, ids=range(len(SHOWN)))
def test_redaction(text: str) -> None:
    for scanner in (mask_line, find_secret, is_credential_name):
        _, seconds = measured(lambda scanner=scanner: scanner(text))  # type: ignore[misc]  # mypy cannot type a lambda's default
        assert seconds < BUDGET


BLANKS = " " * 6_000
BODIES = [f"{BLANKS}x:", f"{BLANKS}#{BLANKS}x:", f"user{BLANKS}x:", f"user:{BLANKS}x", f"x{BLANKS}[{BLANKS}]{BLANKS}y:"]
BODIES += ["{{" * 50_000, "{% " * 30_000, "{" * 100_000, "user:\n" * 10_000, "{{a}}:\n" * 3_000]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_check_answers_in_reasonable_time_for_any_body(body: str) -> None:
    problems, seconds = measured(lambda: check_text(f"---\nname: x\n---\n{body}"))
    assert isinstance(problems, list)
    assert seconds < 1


TOOL_LISTS = {
    "functions": [{"name": f"f{n}", "kind": "function"} for n in range(100)],
    "unknown kinds": [{"name": f"f{n}", "kind": f"unknown{n}"} for n in range(100)],
}


@pytest.mark.parametrize("tools", TOOL_LISTS.values(), ids=TOOL_LISTS)
def test_check_does_not_search_the_installed_packages_for_each_tool(tools: list[dict[str, str]]) -> None:
    text = f"---\nname: x\ntools: {json.dumps(tools)}\n---\nHi"
    problems, seconds = measured(lambda: check_text(text))
    assert isinstance(problems, list)
    assert seconds < 4 * BUDGET


ENV_FILES = {
    "quotes that are not closed": "A='\n" * 2500 + 'B="\n' * 2500,
    "escaped quotes": 'A="' + '\\"' * 8000,
    "escaped quotes on every line": 'A="\\"\n' * 3000,
    "backslashes": "A='" + "\\" * 16000,
    "quotes with text behind": "A='x' y\n" * 2000,
    "spaces": "A" + " " * 16000 + "b",
    "spaces before a comment": "A=b" + " " * 16000 + "c",
    "a long name": "A" * 16000,
}


@pytest.mark.parametrize("text", ENV_FILES.values(), ids=ENV_FILES)
def test_env_files(text: str) -> None:
    _, seconds = measured(lambda: list(parse_env(text)))
    assert seconds < BUDGET


LOOP = "{% for a in b %}\n{{a.role}}:\n{{a.content}}\n{% endfor %}\n"
V1_BODIES = {
    "loops": LOOP * 1_000,
    "loops that are not closed": "{% for a in b %}\n{{a.role}}:\n" * 2_000,
    "images": "user:\n" + "![a](https://b)\n" * 2_000,
    "images that are not closed": "user:\n" + "![" * 20_000,
    "blanks in a loop": "{% for" + " " * 20_000 + "a in b %}",
    "blanks in a field": "{% for a in b %}\n{{" + " " * 20_000 + "a.role}}:\nx\n{% endfor %}",
    "open tags": "{{" * 20_000 + "{%" * 20_000,
    "tool markers": "# tool:\n" * 3_000,
}


@pytest.mark.parametrize("body", V1_BODIES.values(), ids=V1_BODIES)
def test_bodies_of_v1(body: str) -> None:
    _, seconds = measured(lambda: translate({"sample": {"x": 1}}, body))
    assert seconds < 2 * BUDGET


V1_FRONTMATTERS = {
    "comments": "sample: {x: 1}\n" + "# c\n" * 20_000,
    "comments beside keys": "sample:\n" + "".join(f"  a{n}: 1 # c\n" for n in range(1_000)),
    "hashes": "sample: {x: '" + "# " * 20_000 + "'}\n",
}


@pytest.mark.parametrize("text", V1_FRONTMATTERS.values(), ids=V1_FRONTMATTERS)
def test_comments_of_v1(text: str) -> None:
    _, seconds = measured(lambda: migrate_text(f"---\n{text}---\nHi", "x.prompty"))
    assert seconds < 60 * BUDGET  # ruamel.yaml takes most of it
