"""What an editor needs from `check`: ranges, edits that fix, halves that do not hide each other, unsaved buffers."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from prompty import check
from prompty.analysis.check import check_text
from prompty.errors import Problem, TextEdit
from prompty.pipeline.frontmatter import normalize
from tests.soak import SOAK

GOOD = """---
name: good
displayName: A good file
model:
  id: house-model
  provider: openai
  connection: {kind: key, endpoint: "https://example.test", apiKey: "${env:MY_KEY:}"}
  options:
    temperature: 0.5
    maxOutputTokens: 100
inputs:
  who: {kind: string, default: you}
  age:
    kind: float
    required: true
outputs:
  - name: answer
    kind: string
tools:
  - name: look
    kind: function
    parameters: {where: {kind: string}}
template: {format: jinja2, parser: prompty}
---
user:
Hello {{ who }}, {{ age }} years old
"""


def offset(text: str, line: int, column: int) -> int:
    return sum(len(before) + 1 for before in text.split("\n")[: line - 1]) + column - 1


def covered(text: str, part: Problem | TextEdit) -> str:
    return text[offset(text, part.line, part.column) : offset(text, part.end_line, part.end_column)]


def apply(text: str, edits: tuple[TextEdit, ...]) -> str:
    for edit in sorted(edits, key=lambda edit: (edit.line, edit.column), reverse=True):
        start, end = offset(text, edit.line, edit.column), offset(text, edit.end_line, edit.end_column)
        text = text[:start] + edit.text + text[end:]
    return text


def problems_of(text: str) -> list[Problem]:
    return check_text(text, env={}, portable=True)


def summaries(problems: list[Problem]) -> Counter[tuple[str, str, str]]:
    return Counter((problem.code, problem.key, problem.message) for problem in problems)


RANGES = {
    "an unknown key": ("---\nmodle: gpt-4\n---\n", "modle"),
    "an unknown key after wide characters": ("---\nmetadata: {a: 😀}\nmodle: gpt-4\n---\n", "modle"),
    "an unknown key after other line ends": ("---\ndescription: 'a\u2028b\x85c'\nmodle: gpt-4\n---\n", "modle"),
    "a wrong value": ("---\nmodel: {options: {temperature: hot}}\n---\n", "hot"),
    "a wrong value in quotes": ("---\nmodel: {options: {temperature: 'hot'}}\n---\n", "'hot'"),
    "a missing key of a mapping": ("---\ntools:\n  - kind: function\n    description: x\n---\n", "kind: function"),
    "a duplicate key": ("---\nname: a\nname: b\n---\n", "name: b"),
    "a missing delimiter": ("\n---\nname: x\n", "---"),
    "a variable that is not declared": ("---\nname: x\n---\n\n  Hi {{ who }}!", "who"),
    "a variable whose name is text, too": ("who is {{ who }}?", "who"),
    "a secret": ("---\nname: x\n---\nUse sk-abcdefghijkl now", "sk-abcdefghijkl"),
    "a role that is computed": ("---\ninputs: {r: a}\n---\n  {{ r }}:  \nhi", "{{ r }}:"),
    "a broken template": ("---\nname: x\n---\nHi\n  {% if %}  \n", "{% if %}"),
    "an input that is not used": ("---\ninputs:\n  - name: who\n    kind: string\n---\n", "who"),
    "an engine that is not known": ("---\ntemplate: {format: {kind: jinja}}\n---\n", "jinja"),
    "a multi-line text": ("---\ndescription: |\n  ${env:NOPE}\n  b\n\nname: x\n---\n", "|\n  ${env:NOPE}\n  b"),
}


@pytest.mark.parametrize(("text", "expected"), RANGES.values(), ids=RANGES)
def test_a_problem_covers_what_it_is_about(text: str, expected: str) -> None:
    [problem] = check_text(text, env={})
    assert covered(text, problem) == expected


def test_the_range_of_a_variable_is_where_it_is_used() -> None:
    [problem] = check_text("who is {{ who }}?")
    assert (problem.line, problem.column, problem.end_line, problem.end_column) == (1, 11, 1, 14)


FIXED = {
    "a key": ("modle:", "model:"),
    "a key in quotes": ('"modle":', "model:"),
    "a key in snake case": ("display_name:", "displayName:"),
    "an option": ("maxTokens:", "maxOutputTokens:"),
    "a key of an input": ("{kind: string, defualt: you}", "{kind: string, default: you}"),
    "a kind of another language": ("kind: number", "kind: float"),
    "a kind that is misspelt": ("kind: strnig, default", "kind: string, default"),
    "a kind of connection": ("kind: apikey", "kind: key"),
    "a number that is text": ("name: 12", 'name: "12"'),
    "a word that YAML reads as a flag": ("name: no", 'name: "no"'),
    "an engine": ("format: jinja,", "format: jinja2,"),
    "a key of version 1": ("who: {type: string", "who: {kind: string"),
    "a variable": ("{{ whoo }}", "{{ who }}"),
}
GOOD_PARTS = {
    "model:": ["modle:", '"modle":'],
    "displayName:": ["display_name:"],
    "maxOutputTokens:": ["maxTokens:"],
    "{kind: string, default: you}": ["{kind: string, defualt: you}", "{kind: strnig, default: you}"],
    "kind: float": ["kind: number"],
    "kind: key": ["kind: apikey"],
    "name: good": ["name: 12", "name: no"],
    "format: jinja2,": ["format: jinja,"],
    "who: {kind: string": ["who: {type: string"],
    "{{ who }}": ["{{ whoo }}"],
}


def test_the_good_file_is_good() -> None:
    assert problems_of(GOOD) == []


@pytest.mark.parametrize(("wrong", "right"), FIXED.values(), ids=FIXED)
def test_a_fix_is_an_edit_that_removes_the_problem_and_adds_none(wrong: str, right: str) -> None:
    original = next(part for part, mistakes in GOOD_PARTS.items() if any(wrong in mistake for mistake in mistakes))
    mistake = next(mistake for mistake in GOOD_PARTS[original] if wrong in mistake)
    text = GOOD.replace(original, mistake, 1)
    [fixable] = [problem for problem in problems_of(text) if problem.edits]
    fixed = apply(text, fixable.edits)
    assert right in fixed
    assert problems_of(fixed) == []


def test_tabs_become_spaces_in_all_lines_at_once() -> None:
    text = "---\nmodel:\n\tid: gpt-4\n\toptions:\n\t\ttemperature: 1\n---\nHi"
    [problem] = problems_of(text)
    assert apply(text, problem.edits) == "---\nmodel:\n  id: gpt-4\n  options:\n    temperature: 1\n---\nHi"


NOT_FIXED = {
    "a key that stands there already": ("---\nmodle: a\nmodel: b\n---\n", "unknown-key"),
    "a key whose value would not fit": ("---\nmodle: [1]\n---\n", "unknown-key"),
    "a key that was merged": ("---\nmetadata: {x: &x {apitype: chat}}\nmodel: {<<: *x}\n---\n", "unknown-key"),
    "a key that is an alias": ("---\nmetadata: &x modle\n*x : b\n---\n", "unknown-key"),
    "a value that is an alias": ("---\nmetadata: {x: &x 12}\nname: *x\n---\n", "wrong-value"),
    "a value of a reference": ("---\ninputs: {a: {kind: '${env:KIND}'}}\n---\n{{a}}", "wrong-value"),
    "a variable with several uses": (
        "---\ninputs: {who: a}\n---\n{{ whoo }} {{ who }} {{ whoo }}",
        "undeclared-variable",
    ),
    "tabs that are not the only mistake": ("---\nmodel:\n\tid: [\n---\n", "invalid-yaml"),
}


@pytest.mark.parametrize(("text", "code"), NOT_FIXED.values(), ids=NOT_FIXED)
def test_what_a_replacement_would_not_fix_has_no_edit(text: str, code: str) -> None:
    found = [problem for problem in check_text(text, env={"KIND": "strnig"}) if problem.code == code]
    assert found
    assert all(problem.edits == () for problem in found)


def test_an_edit_does_not_repeat_a_secret() -> None:
    [problem] = check_text("---\nmodel: {connection: {kind: key, apiKey: 1234567812345678}}\n---\n")
    assert problem.code == "wrong-value"
    assert "12345678" not in repr(problem)


# A key is only renamed when its value is valid under the new name, so a misspelt `model:` waits for its connection.
TOGETHER = {part: [part, *mistakes] for part, mistakes in GOOD_PARTS.items() if part != "kind: key"}


@pytest.mark.slow
@given(st.fixed_dictionaries({part: st.sampled_from(written) for part, written in TOGETHER.items()}))
@settings(max_examples=40 if SOAK else 10)
def test_applying_fixes_until_there_are_none_leaves_a_good_file(choices: dict[str, str]) -> None:
    text = GOOD
    for part, chosen in choices.items():
        text = text.replace(part, chosen, 1)
    for _ in range(len(choices) + 1):
        fixable = [problem for problem in problems_of(text) if problem.edits]
        text = apply(text, fixable[0].edits) if fixable else text
    assert problems_of(text) == []


KEYS = [line.partition(":")[0].strip(" -") for line in GOOD.split("---")[1].splitlines() if ":" in line]


@pytest.mark.slow
@given(st.sampled_from(KEYS), st.data())
@settings(max_examples=100 if SOAK else 25)
def test_any_typo_in_a_key_that_has_a_fix_is_fixed_by_it(key: str, data: st.DataObject) -> None:
    letters = list(key)
    at = data.draw(st.integers(0, len(letters) - 1))
    letters[at : at + 1] = data.draw(st.text("aeknt_X", max_size=2))
    text = GOOD.replace(f"{key}:", f"{''.join(letters)}:", 1)
    before = problems_of(text)
    for problem in before:
        if problem.edits:
            after = problems_of(apply(text, problem.edits))
            assert summaries(after) < summaries(before)


PIECES = [
    *[
        "---\n",
        "+++\n",
        "\n",
        " ",
        "  ",
        "\t",
        "\r\n",
        "\r",
        "\ufeff",
        "\x85",
        "\u2028",
        "😀",
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
    ],
    *["|\n  ", "&a ", "*a", "<<: *a\n", "'", '"', "!!int ", "${env:X}", "${file:a.json}", "${", "#"],
    *["name", "modle", "model", "inputs", "outputs", "tools", "template", "metadata", "connection", "options", "kind"],
    *["type", "number", "jinja", "12", "no", "user:", "{{ x }}", "{% if", "%}", "sk-abcdefghijkl", "name: x\n"],
]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=25).map("".join)


def assert_within(text: str, part: Problem | TextEdit) -> None:
    lines = text.split("\n")
    for line, column in ((part.line, part.column), (part.end_line, part.end_column)):
        assert 1 <= line <= len(lines)
        assert 1 <= column <= len(lines[line - 1]) + 1
    assert (part.line, part.column) <= (part.end_line, part.end_column)


@pytest.mark.slow
@given(texts | texts.map(lambda text: f"---\n{text}\n---\n{text}"))
@settings(max_examples=300 if SOAK else 60)
def test_positions_lie_within_any_text_and_an_edit_removes_its_problem(text: str) -> None:
    text = normalize(text)
    problems = problems_of(text)
    for problem in problems:
        assert_within(text, problem)
        for edit in problem.edits:
            assert_within(text, edit)
        if problem.edits:
            summary = (problem.code, problem.key, problem.message)
            assert summaries(problems_of(apply(text, problem.edits)))[summary] < summaries(problems)[summary]


# One half does not hide the other.

HALVES = {
    "YAML that cannot be read": ("name: [", ["invalid-yaml"]),
    "a wrong value": ("name: 12\ninputs: {who: a}", ["wrong-value"]),
    "a warning": ("modle: x\ninputs: {who: a}", ["unknown-key"]),
    "nothing": ("inputs: {who: a}", []),
}
BODIES = {
    "a secret": ("{{ who }} sk-abcdefghijkl", ["secret-in-prompt"]),
    "a role": ("{{ who }}:\nhi", ["role-from-variable"]),
    "a broken template": ("{{ who", ["template-syntax"]),
}


@pytest.mark.parametrize(("frontmatter", "above"), HALVES.values(), ids=HALVES)
@pytest.mark.parametrize(("body", "below"), BODIES.values(), ids=BODIES)
def test_a_problem_in_one_half_does_not_hide_those_of_the_other(
    frontmatter: str, above: list[str], body: str, below: list[str]
) -> None:
    problems = check_text(f"---\n{frontmatter}\n---\n{body}")
    assert [problem.code for problem in problems] == above + below


def test_a_wrong_value_does_not_hide_what_is_not_declared_or_not_used() -> None:
    tools = "tools: [{name: t, kind: function, bindings: {x: {input: b}}}]"
    problems = check_text(f"---\nname: 12\ninputs: {{a: 1, b: 2}}\n{tools}\n---\n{{{{ c }}}}")
    assert [problem.code for problem in problems] == ["wrong-value", "unused-input", "undeclared-variable"]


UNKNOWN = {
    "inputs that cannot be read": ("inputs: text", "{{ who }}"),
    "frontmatter that cannot be read": ("inputs: {who: a}\nname: [", "{{ who }}"),
    "another engine, perhaps": ("template: mustache\nname: [", "{{#who}}{{/who}}"),
}


@pytest.mark.parametrize(("frontmatter", "body"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_mistake_is_not_followed_by_guesses(frontmatter: str, body: str) -> None:
    assert len(check_text(f"---\n{frontmatter}\n---\n{body}")) == 1


# Unsaved buffers.


def test_an_unsaved_buffer_is_checked_in_place_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.prompty"
    file.write_text("---\nmodel: x\n---\n")
    assert check(file) == []
    [problem] = check(file, buffers={file: "---\nmodle: x\n---\n"})
    assert (problem.code, problem.path) == ("unknown-key", str(file))


def test_a_buffer_need_not_have_a_file_yet(tmp_path: Path) -> None:
    text = "---\nmodel: x\n---\nHello"
    assert check(tmp_path / "new.prompty", buffers={str(tmp_path / "new.prompty"): text}) == []


def test_a_file_that_is_referred_to_may_be_a_buffer(tmp_path: Path) -> None:
    file, options = tmp_path / "a.prompty", tmp_path / "options.yaml"
    file.write_text("---\nmodel: {id: x, options: '${file:options.yaml}'}\n---\n")
    options.write_text("temperature: 1")
    assert check(file, buffers={options: "temperature: 0"}) == []
    [problem] = check(file, buffers={options: "temperature: hot"})
    assert (problem.code, problem.line) == ("wrong-value", 2)


def test_a_buffer_outside_the_allowed_roots_is_refused_like_a_file(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    file = tmp_path / "app" / "a.prompty"
    file.write_text("---\ndescription: ${file:../secret.txt}\n---\n")
    [problem] = check(file, buffers={tmp_path / "secret.txt": "the secret"})
    assert problem.code == "file-outside"
