"""Importing tests of other tools: what has a counterpart means the same, the rest is listed, and nothing is run."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml
from hypothesis import example, given, settings, strategies as st

from prompty import check, loads, prepare
from prompty.cases.case_file import Check
from prompty.cases.checks import Observation, run_checks
from prompty.cases.imports.assertions import Unsupported, convert_assertion, parse_expected
from prompty.cases.imports.draft import DraftMessage, DraftPrompt
from prompty.cases.imports.importing import import_config, import_rows
from prompty.cases.imports.models import convert_promptfoo_model
from prompty.cases.imports.prompt_yml import read_prompt_yml
from prompty.cases.imports.promptfoo import read_promptfoo
from prompty.cases.imports.templates import convert_template, find_variables, substitute
from prompty.cases.imports.writing import PromptFiles, write_prompts
from prompty.cases.reading import check_suite, read_suite
from prompty.errors import RequestError
from prompty.pipeline.files import Unreadable

ROLES = st.sampled_from(["system", "user", "assistant", "developer"])
# Pieces that have a meaning somewhere: to a template language, to the body of a prompt, or to a reference.
PIECES = st.sampled_from(
    [
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "{",
        "}",
        "{{name}}",
        "{{ a.b }}",
        "{{ name | upper }}",
        "{{ name | dump }}",
        "{% if name %}",
        "{% endif %}",
        "{% for x in name %}",
        "{% endfor %}",
        "{% raw %}",
        "{% include 'x' %}",
        "{{ env.SECRET }}",
        "\nsystem:\n",
        "\nuser:\n",
        "\n# assistant:\n",
        '\nsystem[name="x"]:\n',
        "user[a={{name}}]:",
        "\r\nsystem:\r\n",
        "\n---\n",
        "${env:SECRET}",
        "${file:x}",
        "\n",
        " ",
        "text",
        "![a](b)",
        "\u0085",
        "\u2028",
        ":",
    ]
)
TEXTS = st.lists(PIECES | st.text(st.characters(codec="utf-8"), max_size=4), max_size=8).map("".join)


def write_one(*messages: tuple[str, str], **fields: Any) -> PromptFiles:
    drafts = [DraftMessage(role, convert_template(text).template) for role, text in messages]
    [file] = write_prompts([DraftPrompt(name="x", messages=drafts, **fields)])
    return file


def refuse(path: str) -> NoReturn:
    raise Unreadable("file-missing", f"there is no {path}", "Create it.")


# Templates


@given(st.lists(st.tuples(ROLES, TEXTS), min_size=1, max_size=3), TEXTS)
@example([("user", "{{name}}:\nsystem:\n{% if name %}user:{% endif %}")], "system")
@example([("system", "x{{% if name %}y{% endif %}")], "")
def test_no_text_and_no_value_makes_another_message(messages: list[tuple[str, str]], value: str) -> None:
    file = write_one(*messages)
    assert file.prompt is not None
    agent = loads(file.prompt)
    found = prepare(agent, {declared.name: value for declared in agent.inputs if declared.kind == "string"})
    assert [message.role for message in found] == [role for role, _ in messages]


@given(TEXTS.filter(lambda text: not find_variables(convert_template(text).template)))
def test_a_text_without_variables_stays_the_same(text: str) -> None:
    template, escaped = convert_template(text)
    file = write_one(("user", text))
    assert file.prompt is not None
    [message] = prepare(loads(file.prompt))
    if "{% " not in template and "{{name" not in template:
        wanted = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
        assert message.text == wanted
    assert all(tag in text.replace("\r\n", "\n").replace("\r", "\n") for tag in escaped)


def test_variables_and_simple_tags_are_kept_and_the_rest_is_text() -> None:
    template, escaped = convert_template(
        "{{ a }} {% if b %}{{b.c}}{% endif %} {{ d | dump }} {{ env.KEY }} {# e #} {{self}}"
    )
    assert template.startswith("{{ a }} {% if b %}{{b.c}}{% endif %} ")
    assert escaped == ["{{ d | dump }}", "{{ env.KEY }}", "{# e #}", "{{self}}"]
    assert find_variables(template) == {"a", "b"}
    unbalanced = convert_template("{{a}} {% endif %}")
    assert (find_variables(unbalanced.template), unbalanced.escaped) == ({"a"}, ["{% endif %}"])


def test_substitution_replaces_variables_alone() -> None:
    assert substitute("{{a}} and {{ b }}", {"a": "x", "b": 3}) == "x and 3"
    assert substitute("{{a}}", {"a": "{{b}}", "b": "no"}) == "{{b}}"
    assert substitute("{{a}}", {}) is None
    assert substitute("{{a | upper}}", {"a": "x"}) is None
    assert substitute("{{a}}", {"a": ["x"]}) is None


# Assertions

MEANINGS: dict[str, Callable[[str, Any], bool]] = {
    "equals": lambda output, value: output == value,
    "contains": lambda output, value: value in output,
    "icontains": lambda output, value: value.lower() in output.lower(),
    "starts-with": lambda output, value: output.startswith(value),
    "contains-all": lambda output, values: all(value in output for value in values),
    "contains-any": lambda output, values: any(value in output for value in values),
    "icontains-all": lambda output, values: all(value.lower() in output.lower() for value in values),
    "icontains-any": lambda output, values: any(value.lower() in output.lower() for value in values),
    "regex": lambda output, value: re.search(value.replace("$", r"\Z"), output) is not None,
}
WORDS = st.text("ab A.\n(+\\", max_size=5)


def passes(output: str, assertion: dict[str, object]) -> bool:
    checks = [check for _, check in convert_assertion(assertion, {})]

    def no_evaluators() -> NoReturn:
        raise AssertionError("an imported check runs something")

    results = run_checks(
        "replay",
        [Check.model_validate(one) for one in checks],
        Observation(output, lambda: output),
        no_evaluators,
    )
    return all(result.passed for result in results)


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(MEANINGS.keys() - {"regex"})), st.booleans(), WORDS, st.lists(WORDS, min_size=1, max_size=3)
)
def test_an_imported_assertion_decides_as_promptfoo_does(
    kind: str, negated: bool, output: str, values: list[str]
) -> None:
    value: object = values if kind.endswith(("-all", "-any")) else values[0]
    wanted = MEANINGS[kind](output, value) != negated
    assert passes(output, {"type": f"not-{kind}" if negated else kind, "value": value}) == wanted


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("pattern", ["^a", "b$", r"a.b", "(?<x>a)b", "a|b", ""])
@pytest.mark.parametrize("output", ["ab", "ba", "a\nb", "", "c"])
def test_an_imported_regular_expression_decides_the_same(pattern: str, output: str, negated: bool) -> None:
    wanted = MEANINGS["regex"](output, pattern.replace("(?<", "(?P<")) != negated
    assert passes(output, {"type": "not-regex" if negated else "regex", "value": pattern}) == wanted


def test_limits_become_limits_of_their_level() -> None:
    [cost] = convert_assertion({"type": "cost", "threshold": 0.01}, {})
    [latency] = convert_assertion({"type": "latency", "threshold": 2500}, {})
    assert cost == ("replay", {"cost": {"max": 0.01}})
    assert latency == ("live", {"seconds": {"max": 2.5}})


@pytest.mark.parametrize(
    ("assertion", "reason"),
    [
        ({"type": "javascript", "value": "process.exit(1)"}, "names code, which is never run"),
        ({"type": "python", "value": "file://check.py"}, "the assertion names a file"),
        ({"type": "llm-rubric", "value": "is polite"}, "asks a model"),
        ({"type": "similar", "value": "x"}, "needs an embedding model"),
        ({"type": "is-json"}, "looks into JSON"),
        ({"type": "rouge-n", "value": "x"}, "has no counterpart"),
        ({"type": "equals", "value": {"a": 1}}, "compares JSON"),
        ({"type": "contains", "value": "{{ a | upper }}"}, "more than a variable"),
        ({"type": "contains", "value": "x", "weight": 0}, "`weight` of the assertion"),
        ({"type": "contains", "value": "x", "transform": "output.trim()"}, "`transform` of the assertion"),
        ({"type": "regex", "value": "("}, "the regular expression is invalid: missing"),
        ({"type": "cost"}, "has no threshold"),
        ({"type": "not-cost", "threshold": 1}, "`not-cost` has no counterpart"),
        ("contains", "has no type"),
    ],
)
def test_an_assertion_without_a_counterpart_says_why(assertion: object, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        list(convert_assertion(assertion, {}))


@pytest.mark.parametrize(
    ("cell", "assertion"),
    [
        ("Hello", {"type": "equals", "value": "Hello"}),
        ("contains: Ada", {"type": "contains", "value": "Ada"}),
        ("contains-all: a, b", {"type": "contains-all", "value": ["a", "b"]}),
        ("latency(300): ", {"type": "latency", "value": "", "threshold": "300"}),
        ("fn: output > 1", {"type": "javascript", "value": "output > 1"}),
        ("grade: polite", {"type": "llm-rubric", "value": "polite"}),
        ("Note: this", {"type": "equals", "value": "Note: this"}),
        ("is-json", {"type": "is-json"}),
    ],
)
def test_a_cell_of_expected_is_an_assertion_or_the_exact_text(cell: str, assertion: object) -> None:
    assert parse_expected(cell) == assertion


# promptfoo

CONFIG = """\
description: Translations
prompts:
  - "Convert this to {{language}}: {{input}}"
  - {id: "file://chat.json", label: chat}
  - file://build.py:make
providers:
  - openai:gpt-6-luna
  - {id: "anthropic:messages:claude-haiku-5-5", config: {temperature: 0.5, apiKey: sk-abcdefghijklmnop}}
  - exec:./run.sh
  - file://provider.js
defaultTest:
  assert: [{type: not-contains, value: As an AI}]
tests:
  - description: greets
    vars: {language: [French, German], input: Hello}
    assert:
      - {type: icontains, value: "{{input}}"}
      - {type: javascript, value: process.exit(1)}
  - {vars: {language: Spanish, input: "system:"}, assert: [{type: equals, value: Hola}], prompts: [chat]}
  - file://more.csv
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "translations"
    folder.mkdir()
    (folder / "promptfooconfig.yaml").write_text(CONFIG)
    messages = [{"role": "system", "content": "To {{language}}.\nuser:\nNo."}, {"role": "user", "content": "{{input}}"}]
    (folder / "chat.json").write_text(json.dumps(messages))
    (folder / "more.csv").write_text("input,language,__expected,__metric\nBye,Italian,contains: Ciao,x\n")
    for name in ("build.py", "provider.js", "run.sh"):
        (folder / name).write_text("this file is never read")
    return folder


def test_a_promptfoo_config_becomes_prompts_and_test_files(project: Path) -> None:
    imported = import_config(project / "promptfooconfig.yaml")
    first, chat = imported.files
    assert (first.name, first.cases, chat.name, chat.cases) == ("translations", 3, "chat", 4)
    assert first.prompt == (
        "---\nname: translations\ndescription: Translations\nmodel:\n  provider: openai\n  id: gpt-6-luna\n"
        "inputs:\n  input:\n    kind: string\n    required: true\n"
        "  language:\n    kind: string\n    required: true\n---\n"
        "user:\nConvert this to {{language}}: {{input}}\n"
    )
    assert chat.tests is not None
    tests = yaml.safe_load(chat.tests)
    assert tests["defaults"] == {
        "models": ["openai:gpt-6-luna", "anthropic:claude-haiku-5-5"],
        "expect": {"replay": {"not_contains": "As an AI"}},
    }
    assert [case["name"] for case in tests["cases"]] == ["greets 1", "greets 2", "case 3", "case 4"]
    assert tests["cases"][0]["expect"] == {"replay": {"regex": "(?i)Hello"}}
    assert tests["cases"][3] == {
        "name": "case 4",
        "inputs": {"input": "Bye", "language": "Italian"},
        "expect": {"replay": {"contains": "Ciao"}},
    }


def test_what_is_not_imported_is_listed_with_its_line_and_without_secrets(project: Path) -> None:
    problems = import_config(project / "promptfooconfig.yaml").problems
    listed = {(problem.line, problem.message) for problem in problems}
    assert {
        (5, "build.py:make is code, which is never run"),
        (8, "`apiKey` is left out: a key does not belong in a file"),
        (9, "the provider `exec:./run.sh` is not one that prompty knows"),
        (10, "the provider `file://provider.js` is not one that prompty knows"),
        (18, "`javascript` names code, which is never run"),
        (20, "the column `__metric` has no counterpart"),
    } <= listed
    assert {problem.severity for problem in problems} == {"warning"}
    assert "sk-abcdefghijklmnop" not in "".join(map(str, problems))


def test_written_files_have_no_problems(project: Path) -> None:
    for file in import_config(project / "promptfooconfig.yaml").files:
        assert file.prompt is not None
        assert file.tests is not None
        (project / f"{file.name}.prompty").write_text(file.prompt)
        (project / f"{file.name}.test.yaml").write_text(file.tests)
        assert check(project / f"{file.name}.prompty") == []
        assert check_suite(project / f"{file.name}.test.yaml") == []


def test_only_data_below_the_folder_is_read(project: Path) -> None:
    asked: list[str] = []

    def read(path: str) -> str:
        asked.append(path)
        return "[]"

    read_promptfoo(yaml.safe_load(CONFIG), "x", read)
    assert asked == ["chat.json", "more.csv"]
    (project.parent / "secret.txt").write_text("secret")
    (project / "promptfooconfig.yaml").write_text(
        "prompts: ['{{a}}', 'file://../secret.txt']\ntests: [{vars: {a: 'file:///etc/passwd'}}, {vars: {a: x}}]"
    )
    imported = import_config(project / "promptfooconfig.yaml")
    assert [(file.name, file.cases) for file in imported.files] == [("translations", 1)]
    assert "secret" not in str(imported.files)


def test_a_text_that_a_test_file_would_take_for_a_file_is_left_out(project: Path) -> None:
    (project / "promptfooconfig.yaml").write_text(
        "prompts: ['{{a}}']\ntests: [{vars: {a: '${file:secret.txt}'}}, {description: '${file:secret.txt}'}, "
        "{vars: {a: 'x ${env:KEY}'}}]"
    )
    imported = import_config(project / "promptfooconfig.yaml")
    assert imported.files[0].cases == 1
    assert "would take for a file" in imported.problems[0].message


def test_a_config_without_prompts_sends_the_variable_prompt() -> None:
    found = read_promptfoo({"providers": ["openai:gpt-4o"], "tests": [{"vars": {"prompt": "Hello"}}]}, "x", refuse)
    [file] = write_prompts(found.prompts)
    assert file.prompt is not None
    assert file.prompt.endswith("user:\n{{prompt}}\n")
    assert (file.cases, found.notes) == (1, [])


@pytest.mark.parametrize(
    ("id", "model"),
    [
        ("openai:gpt-4o", "openai:gpt-4o"),
        ("openai:chat:gpt-4o", "openai:gpt-4o"),
        ("anthropic:messages:claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        ("ollama:chat:llama3.2:1b", "ollama:llama3.2:1b"),
        ("google:gemini-2.5-flash", "gemini:gemini-2.5-flash"),
        ("openrouter:meta-llama/llama-4", "openrouter:meta-llama/llama-4"),
        ("openai:embedding:x", None),
        ("anthropic:claude-agent-sdk", None),
        ("exec:./run.sh", None),
        ("python:run.py", None),
        ("https://example.com", None),
        ("openai:${env:KEY}", None),
        ("openai:{{env.MODEL}}", None),
        ("openai", None),
    ],
)
def test_only_names_of_models_are_models(id: str, model: str | None) -> None:
    found = convert_promptfoo_model(id)
    assert (found.name if found else None) == model


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("cases: []")
    (tmp_path / "b.yaml").write_text("- x")
    for name in ("a.yaml", "b.yaml"):
        with pytest.raises(RequestError):
            import_config(tmp_path / name)


SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
KEYS = st.sampled_from(
    [
        "prompts",
        "providers",
        "tests",
        "defaultTest",
        "vars",
        "assert",
        "type",
        "value",
        "threshold",
        "id",
        "label",
        "raw",
        "config",
        "description",
        "temperature",
        "stop",
        "repeat",
        "evaluateOptions",
        "role",
        "content",
        "messages",
        "model",
        "modelParameters",
        "testData",
        "evaluators",
        "string",
        "contains",
        "equals",
        "startsWith",
        "name",
        "a",
    ]
)
KNOWN = st.sampled_from(
    [
        *MEANINGS,
        "not-equals",
        "javascript",
        "openai:gpt-4o",
        "openai:chat:x",
        "file://a.txt",
        "file://a.py",
        "user",
        "{{a}}",
    ]
)
DATA = st.recursive(
    SCALARS | KNOWN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
ASSERTIONS = st.fixed_dictionaries({"type": KNOWN, "value": DATA}, optional={"threshold": SCALARS, "weight": SCALARS})
TESTS = st.fixed_dictionaries(
    {"vars": st.dictionaries(st.sampled_from(["a", "name", "x"]), DATA, max_size=3)},
    optional={"assert": st.lists(ASSERTIONS, max_size=3), "description": TEXTS},
)
CONFIGS = st.fixed_dictionaries(
    {"prompts": st.lists(TEXTS, max_size=2) | DATA, "tests": st.lists(TESTS, max_size=3) | DATA},
    optional={"providers": st.lists(KNOWN, max_size=3) | DATA, "defaultTest": TESTS | DATA, "evaluateOptions": DATA},
)
PROMPT_YML = st.fixed_dictionaries(
    {"messages": st.lists(st.fixed_dictionaries({"role": ROLES, "content": TEXTS}), max_size=3) | DATA},
    optional={
        "testData": DATA,
        "evaluators": DATA,
        "model": SCALARS | st.just("openai/gpt-4o"),
        "modelParameters": DATA,
    },
)


def check_files(files: list[PromptFiles], folder: Path) -> None:
    for file in files:
        if file.prompt is not None:
            loads(file.prompt)
        if file.tests is not None:
            (folder / f"{file.name}.prompty").write_text(file.prompt or "", encoding="utf-8")
            path = folder / f"{file.name}.test.yaml"
            path.write_text(file.tests, encoding="utf-8", newline="\n")
            assert len(read_suite(path).cases) == file.cases


@settings(max_examples=200, deadline=None)
@given(CONFIGS)
def test_any_config_becomes_files_that_can_be_read(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    found = read_promptfoo(data, "x", refuse)
    check_files(write_prompts(found.prompts), tmp_path_factory.mktemp("written"))


@settings(max_examples=200, deadline=None)
@given(PROMPT_YML)
def test_any_prompt_yml_becomes_files_that_can_be_read(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    found = read_prompt_yml(data, "x")
    check_files(write_prompts(found.prompts), tmp_path_factory.mktemp("written"))


# .prompt.yml

PROMPT = """\
name: Summarizer
description: Summarizes
model: openai/gpt-4o-mini
modelParameters: {temperature: 0.5, logprobs: true}
responseFormat: json_object
messages:
  - {role: system, content: "Answer in {{language}}."}
  - {role: user, content: "{{input}}"}
testData:
  - {input: Long text, language: French, expected: Court}
  - {input: Other text, language: German, expected: Kurz, extra: 1}
evaluators:
  - {name: has it, string: {contains: "{{expected}}", endsWith: "."}}
  - {name: is similar, uses: github/similarity}
"""


def test_a_prompt_yml_becomes_a_prompt_and_its_tests(tmp_path: Path) -> None:
    (tmp_path / "summarize.prompt.yml").write_text(PROMPT)
    imported = import_config(tmp_path / "summarize.prompt.yml")
    [file] = imported.files
    assert file.name == "summarize"
    assert file.prompt is not None
    assert file.tests is not None
    agent = loads(file.prompt)
    assert (agent.model.provider, agent.model.id, agent.model.options.temperature) == ("openai", "gpt-4o-mini", 0.5)
    assert [one.role for one in prepare(agent, {"input": "x", "language": "y"})] == ["system", "user"]
    assert yaml.safe_load(file.tests)["cases"][0] == {
        "name": "case 1",
        "inputs": {"input": "Long text", "language": "French"},
        "expect": {"replay": {"contains": "Court", "regex": r"\.$"}},
    }
    assert [problem.key for problem in imported.problems] == [
        "modelParameters.logprobs",
        "responseFormat",
        "testData.1.extra",
        "evaluators.1",
    ]


# Rows

GREET = (
    "---\nmodel: m\ninputs:\n  name: {kind: string}\n  age: {kind: integer, default: 1}\n---\nuser:\n{{name}} {{age}}\n"
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.csv", "name,age,__expected,__description,note\nAda,36,contains: Ada,greets,x\n"),
        ("rows.csv", "case,name,age,expect.replay.contains,note\ngreets,Ada,36,Ada,x\n"),
        (
            "rows.jsonl",
            '{"vars": {"name": "Ada", "age": 36, "note": "x"}, '
            '"assert": [{"type": "contains", "value": "Ada"}], '
            '"description": "greets"}\n',
        ),
    ],
)
def test_rows_become_cases_of_a_prompt(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "greet.prompty").write_text(GREET)
    (tmp_path / name).write_text(text)
    imported = import_rows(tmp_path / name, tmp_path / "greet.prompty")
    [file] = imported.files
    assert (file.name, file.prompt, file.cases) == ("greet", None, 1)
    assert file.tests is not None
    [case] = yaml.safe_load(file.tests)["cases"]
    assert (case["name"], case["inputs"]) == ("greets", {"name": "Ada", "age": 36})
    assert case["expect"] == {"replay": {"contains": "Ada"}}
    assert [problem.message for problem in imported.problems] == [
        "the prompt has no input `note`, so the cases have none"
    ]
