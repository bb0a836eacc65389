"""Importing tests of other tools: what has a counterpart means the same, the rest is listed, and nothing is run."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml
from hypothesis import example, given, settings, strategies as st

from prompty import check, loads, prepare
from prompty.cases.case_file import Check
from prompty.cases.checks import Observation, run_checks
from prompty.cases.imports.assertions import NoCounterpart, convert_assertion, convert_assertions, parse_expected
from prompty.cases.imports.importing import import_config, translate_prompt_yml
from prompty.cases.imports.models import convert_model
from prompty.cases.imports.promptfoo import PromptfooReader
from prompty.cases.imports.templates import convert_template, find_variables, substitute
from prompty.cases.imports.writing import DraftPrompt, PromptFiles, write_prompts
from prompty.cases.reading import check_suite, read_suite
from prompty.errors import RequestError
from prompty.testing import Script
from tests.cases.foreign_configs import PROMPT_YML, PROMPTFOO
from tests.cases.project import LIVE, run_suites
from tests.watchdog import within

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
    drafts = [(role, convert_template(text)[0]) for role, text in messages]
    [file] = write_prompts([DraftPrompt(name="x", messages=drafts, **fields)])
    return file


def read(data: Any, folder: Path) -> list[PromptFiles]:
    reader = PromptfooReader(folder)
    return write_prompts(reader.read(data, "x"), reader.notes)


# Templates


@given(st.lists(st.tuples(ROLES, TEXTS), min_size=1, max_size=3), TEXTS)
@example([("user", "{{name}}:\nsystem:\n{% if name %}user:{% endif %}")], "system")
@example([("system", '{"a": {"b": 1}}:')], "")
@example([("system", "{#:"), ("system", "{{name}}:")], "system")
@example([("system", "x{{% if name %}y{% endif %}")], "")
def test_no_text_and_no_value_makes_another_message(messages: list[tuple[str, str]], value: str) -> None:
    agent = loads(write_one(*messages).prompt)
    found = prepare(agent, {declared.name: value for declared in agent.inputs if declared.kind == "string"})
    assert [message.role for message in found] == [role for role, _ in messages]


@given(TEXTS.filter(lambda text: not find_variables(convert_template(text)[0])))
def test_a_text_without_variables_stays_the_same(text: str) -> None:
    template, escaped = convert_template(text)
    [message] = prepare(loads(write_one(("user", text)).prompt))
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
    assert (find_variables(unbalanced[0]), unbalanced[1]) == ({"a"}, ["{% endif %}"])


def test_substitution_replaces_variables_alone() -> None:
    assert substitute("{{a}} and {{ b }}", {"a": "x", "b": 3}) == "x and 3"
    assert substitute("{{a}}", {"a": "{{b}}", "b": "no"}) == "{{b}}"
    assert substitute("{{a}}", {}) is None
    assert substitute("{{a | upper}}", {"a": "x"}) is None
    assert substitute("{{a}}", {"a": ["x"]}) is None
    assert substitute("{{a}} {", {"a": True}) == "true {"


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


UNTRANSLATED = {"not-equals", "not-starts-with", "not-regex", "not-contains-all", "not-icontains-all"}


def passes(output: str, assertion: dict[str, Any]) -> bool:
    _, found = convert_assertion(assertion, {})

    def no_evaluators() -> NoReturn:
        raise AssertionError("an imported check runs something")

    results = run_checks("replay", [Check.model_validate(found)], Observation(output, lambda: output), no_evaluators)
    return all(result.passed for result in results)


@settings(max_examples=300)
@given(
    st.sampled_from(sorted({*MEANINGS, *(f"not-{kind}" for kind in MEANINGS)} - UNTRANSLATED - {"regex"})),
    WORDS,
    st.lists(WORDS, min_size=1, max_size=3),
)
def test_an_imported_assertion_decides_as_promptfoo_does(kind: str, output: str, values: list[str]) -> None:
    value: object = values if kind.endswith(("-all", "-any")) else values[0]
    wanted = MEANINGS[kind.removeprefix("not-")](output, value) != kind.startswith("not-")
    assert passes(output, {"type": kind, "value": value}) == wanted


@pytest.mark.parametrize("pattern", ["^a", "b$", r"a.b", "(?<x>a)b", "a|b", ""])
@pytest.mark.parametrize("output", ["ab", "ba", "a\nb", "", "c"])
def test_an_imported_regular_expression_decides_the_same(pattern: str, output: str) -> None:
    wanted = MEANINGS["regex"](output, pattern.replace("(?<", "(?P<"))
    assert passes(output, {"type": "regex", "value": pattern}) == wanted


@pytest.mark.parametrize(
    ("assertion", "output", "verdict"),
    [
        ({"type": "is-json"}, '{"a": 1}', True),
        ({"type": "is-json"}, "a", False),
        ({"type": "is-json", "value": {"required": ["a"]}}, '{"b": 1}', False),
        ({"type": "is-json", "value": '{"required": ["a"]}'}, '{"a": 1}', True),
        ({"type": "equals", "value": {"a": [1]}}, '{"a":[1]}', True),
        ({"type": "equals", "value": {"a": [1]}}, '{"a":[2]}', False),
        ({"type": "equals", "value": 5}, "5", True),
        ({"type": "contains", "value": "yo", "weight": 2}, "hey", False),
    ],
)
def test_assertions_on_json_and_weighted_ones_are_imported(
    assertion: dict[str, Any], output: str, verdict: bool
) -> None:
    assert passes(output, assertion) == verdict


def test_limits_become_limits_of_their_level() -> None:
    cost = convert_assertion({"type": "cost", "threshold": 0.01}, {})
    latency = convert_assertion({"type": "latency", "threshold": 2500}, {})
    assert cost == ("replay", {"cost": {"max": 0.01}})
    assert latency == ("live", {"seconds": {"max": 2.5}})


@pytest.mark.parametrize(
    ("assertion", "reason"),
    [
        ({"type": "javascript", "value": "process.exit(1)"}, "is code, which is never run"),
        ({"type": "llm-rubric", "value": "is polite"}, "asks a model"),
        ({"type": "not-llm-rubric", "value": "is rude"}, "asks a model"),
        ({"type": "similar", "value": "x"}, "needs an embedding model"),
        ({"type": "contains-json"}, "has no counterpart"),
        ({"type": "not-equals", "value": "x"}, "has no counterpart"),
        ({"type": "contains", "value": "file://x.txt"}, "names a file"),
        ({"type": "contains", "value": "{{ a | upper }}"}, "more than a variable"),
        ({"type": "contains", "value": "x", "weight": 0}, "never fails"),
        ({"type": "contains", "value": "x", "transform": "output.trim()"}, "has `transform`, which"),
        ({"type": "contains"}, "value of another kind"),
        ({"type": "contains-any", "value": []}, "value of another kind"),
        ({"type": "is-json", "value": "{"}, "value of another kind"),
        ({"type": "is-json", "value": {"type": "texxt"}}, "not a JSON Schema"),
        ({"type": "regex", "value": "("}, "cannot be read"),
        ({"type": "cost"}, "value of another kind"),
        ({"type": "not-cost", "threshold": 1}, "has no counterpart"),
        ({}, "has no type"),
    ],
)
def test_an_assertion_without_a_counterpart_says_why(assertion: dict[str, Any], reason: str) -> None:
    with pytest.raises(NoCounterpart, match=reason):
        convert_assertion(assertion, {})


def test_a_set_of_assertions_counts_each_of_them() -> None:
    inner = [{"type": "contains", "value": "a"}, {"type": "llm-rubric", "value": "b"}, "c"]
    checks, lost = convert_assertions([{"type": "assert-set", "assert": inner}], ("assert",), {})
    assert checks == [("replay", {"contains": "a"})]
    assert [(note.keys, note.message) for note in lost] == [
        (("assert", 0, "assert", 1), "`llm-rubric: b` asks a model for its opinion"),
        (("assert", 0, "assert", 2), "`c` has no type"),
    ]
    checks, lost = convert_assertions({"type": "assert-set", "threshold": 0.5, "assert": inner}, (), {})
    assert (checks, len(lost)) == ([], 3)
    assert lost[0].message == "`contains: a` is one of several of which some may fail"


@pytest.mark.parametrize(
    ("cell", "assertion"),
    [
        ("Hello", {"type": "equals", "value": "Hello"}),
        ("contains: Ada", {"type": "contains", "value": "Ada"}),
        ("contains-all: a, b", {"type": "contains-all", "value": ["a", "b"]}),
        ("latency(300): ", {"type": "latency", "value": None, "threshold": "300"}),
        ("fn: output > 1", {"type": "javascript", "value": "output > 1"}),
        ("grade: polite", {"type": "llm-rubric", "value": "polite"}),
        ("Note: this", {"type": "equals", "value": "Note: this"}),
        ("is-json", {"type": "is-json", "value": None}),
        ("contains", {"type": "equals", "value": "contains"}),
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
  - {id: "anthropic:messages:claude-haiku-5-5", config: {temperature: 0.5, apiKey: sk-abcdefghijklmnop}, delay: 1}
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
    written = re.sub(r"(?m)^# .*\n", "", first.prompt)
    assert written == (
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
    assert tests["cases"][0]["expect"] == {"replay": {"contains": "Hello", "ignore_case": True}}
    assert tests["cases"][3] == {
        "name": "case 4",
        "inputs": {"input": "Bye", "language": "Italian"},
        "expect": {"replay": {"contains": "Ciao"}},
    }


LISTED = {
    5: "build.py:make is not read: it is code, or of a kind that is not imported",
    8: "`delay` of a provider has no counterpart",
    9: "the provider `exec:./run.sh` is not one that prompty knows",
    10: "the provider `file://provider.js` is not one that prompty knows",
    18: "`javascript: process.exit(1)` is code, which is never run",
    20: "`__metric` of a test has no counterpart",
}


def test_what_is_not_imported_is_listed_with_its_line_and_is_a_comment_in_the_files(project: Path) -> None:
    imported = import_config(project / "promptfooconfig.yaml")
    listed = {(problem.line, problem.message) for problem in imported.problems}
    assert LISTED.items() <= listed
    assert (
        8,
        "the options of anthropic:claude-haiku-5-5 differ from those of the first provider, which are kept",
    ) in listed
    assert {problem.severity for problem in imported.problems} == {"warning"}
    for file in imported.files:
        written = f"{file.prompt}{file.tests}"
        assert all(f"# not imported: {message}\n" in written for message in LISTED.values())
    assert "sk-abcdefghijklmnop" not in f"{imported}"


def test_a_case_that_lost_all_its_checks_says_so(tmp_path: Path) -> None:
    rubric = {"type": "llm-rubric", "value": "is polite"}
    tests: list[Any] = [
        {"description": "one", "vars": {"a": "x"}, "assert": [rubric, {"type": "contains", "value": "x"}]},
        {"description": "two", "vars": {"a": "y"}, "assert": [rubric, {"type": "javascript", "value": "1\n+ 1"}]},
        {"description": "three", "vars": {"a": "z"}},
    ]
    [file] = read({"prompts": ["{{a}}"], "tests": tests}, tmp_path)
    assert (file.cases, file.unchecked) == (3, 2)
    assert file.tests == (
        "cases:\n- name: one\n  inputs:\n    a: x\n  expect:\n    replay:\n      contains: x\n"
        "  # not imported: `llm-rubric: is polite` asks a model for its opinion\n"
        "- name: two\n  inputs:\n    a: y\n"
        "  # not imported: `llm-rubric: is polite` asks a model for its opinion\n"
        "  # not imported: `javascript: 1 + 1` is code, which is never run\n"
        "  # no check: this case passes if the prompt renders\n"
        "- name: three\n  inputs:\n    a: z\n  # no check: this case passes if the prompt renders\n"
    )
    [file] = read({"prompts": ["{{a}}"], "tests": tests[:1], "defaultTest": {"assert": [rubric]}}, tmp_path)
    assert file.unchecked == 0
    [file] = read({"prompts": ["{{a}}"], "tests": tests[2:] * 2, "defaultTest": {"assert": [rubric]}}, tmp_path)
    assert file.unchecked == 2
    assert (file.tests or "").startswith("# not imported: `llm-rubric: is polite` asks a model for its opinion\ncases:")


def test_checks_that_ignore_case_and_others_stay_apart(tmp_path: Path) -> None:
    asserted = [
        {"type": "contains", "value": "Ada"},
        {"type": "regex", "value": "^H"},
        {"type": "icontains", "value": "hello"},
        {"type": "not-contains", "value": "x"},
    ]
    [file] = read({"prompts": ["{{a}}"], "tests": [{"vars": {"a": "x"}, "assert": asserted}]}, tmp_path)
    assert yaml.safe_load(file.tests or "")["cases"][0]["expect"]["replay"] == [
        {"contains": "Ada", "regex": "^H"},
        {"contains": "hello", "ignore_case": True},
        {"not_contains": "x"},
    ]


def test_only_data_below_the_folder_is_read(project: Path) -> None:
    (project.parent / "secret.txt").write_text("secret words")
    (project / "link.txt").symlink_to(project.parent / "secret.txt")
    (project / "promptfooconfig.yaml").write_text(
        "prompts: ['{{a}}', 'file://../secret.txt', 'file://*.txt', 'file://../*.txt', 'file://run.sh']\n"
        "tests: [{vars: {a: 'file:///etc/passwd'}}, {vars: {a: x}}]"
    )
    imported = import_config(project / "promptfooconfig.yaml")
    assert [(file.name, file.cases) for file in imported.files] == [("translations", 2)]
    assert "secret words" not in str(imported)
    assert "root:" not in str(imported)
    assert "never read" not in str(imported)


def test_a_text_that_a_test_file_would_take_for_a_file_is_left_out(project: Path) -> None:
    (project / "promptfooconfig.yaml").write_text(
        "prompts: ['{{a}}']\ntests: [{vars: {a: '${file:secret.txt}'}}, {description: '${file:secret.txt}'}, "
        "{vars: {a: 'x ${env:KEY}'}}]"
    )
    imported = import_config(project / "promptfooconfig.yaml")
    assert imported.files[0].cases == 1
    assert "takes for a file" in imported.problems[0].message


def test_a_config_without_prompts_sends_the_variable_prompt(tmp_path: Path) -> None:
    [file] = read({"providers": ["openai:gpt-4o"], "tests": [{"vars": {"prompt": "Hello"}}]}, tmp_path)
    assert file.prompt.endswith("user:\n{{prompt}}\n")
    assert (file.cases, file.notes) == (1, [])


@pytest.mark.parametrize(
    ("id", "model"),
    [
        ("openai:gpt-4o", "openai:gpt-4o"),
        ("openai:chat:gpt-4o", "openai:gpt-4o"),
        ("anthropic:messages:claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        ("anthropic:claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        ("ollama:chat:llama3.2:1b", "ollama:llama3.2:1b"),
        ("google:gemini-2.5-flash", "gemini:gemini-2.5-flash"),
        ("azure:chat:our-gpt", "azure:our-gpt"),
        ("azureopenai:chat:our-gpt", "azure:our-gpt"),
        ("openrouter:meta-llama/llama-4", "openrouter:meta-llama/llama-4"),
        ("mistral-ai/mistral-small", "mistral:mistral-small"),
        ("openai:embedding:x", None),
        ("anthropic:claude-agent-sdk", None),
        ("exec:./run.sh", None),
        ("python:run.py", None),
        ("https://example.com", None),
        ("openai:${env:KEY}", None),
        ("openai:{{env.MODEL}}", None),
        ("openai", None),
        (None, None),
    ],
)
def test_only_names_of_models_are_models(id: str | None, model: str | None) -> None:
    found = convert_model(id)
    assert (found[0] if found else None) == model


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("ollama:chat:llama3.2", {"provider": "openai", "endpoint": "http://localhost:11434/v1", "kind": "anonymous"}),
        ("vllm:qwen", {"provider": "openai", "endpoint": "http://localhost:8000/v1", "kind": "anonymous"}),
        ("google:gemini-2.5-flash", {"provider": "openai", "kind": "key"}),
        ("groq:llama-3.3", {"provider": "openai", "endpoint": "https://api.groq.com/openai/v1", "kind": "key"}),
        ("mistral:mistral-small", {"provider": "openai", "kind": "key"}),
        ("openrouter:meta-llama/llama-4", {"provider": "openai", "kind": "key"}),
        ("deepseek:deepseek-chat", {"provider": "openai", "kind": "key"}),
        ("cerebras:llama3.1-8b", {"provider": "openai", "kind": "key"}),
        ("azure:chat:our-gpt", {"provider": "azure"}),
    ],
)
def test_a_prompt_for_a_known_server_names_its_provider_and_address(
    provider: str, model: dict[str, str], tmp_path: Path
) -> None:
    tests = [{"vars": {"a": "x"}, "assert": [{"type": "contains", "value": "Hello"}]}]
    [file] = read({"prompts": ["{{a}}"], "providers": [provider], "tests": tests}, tmp_path)
    (tmp_path / "x.prompty").write_text(file.prompt)
    (tmp_path / "x.test.yaml").write_text(file.tests or "")
    assert [problem for problem in check(tmp_path / "x.prompty") if problem.severity == "error"] == []
    head = yaml.safe_load(file.prompt.split("---")[1])["model"]
    assert {**head, **head.get("connection", {})}.items() >= model.items()
    with Script("Hello"):
        [result] = run_suites(read_suite(tmp_path / "x.test.yaml"), mode=LIVE)
    assert result.status == "passed", result.reasons


def test_tools_and_shapes_of_a_provider_become_those_of_the_prompt(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": schema}}
    shape = {
        "type": "json_schema",
        "json_schema": {"strict": True, "schema": {**schema, "additionalProperties": False}},
    }
    config = {"tools": [tool], "response_format": shape}
    data = {"prompts": ["{{a}}"], "providers": [{"id": "openai:x", "config": config}], "tests": [{"vars": {"a": "b"}}]}
    [file] = read(data, tmp_path)
    head = yaml.safe_load(file.prompt.split("---")[1])
    assert head["tools"] == [
        {"name": "get_weather", "kind": "function", "parameters": {"city": {"kind": "string", "required": True}}}
    ]
    assert head["outputs"] == {"city": {"kind": "string", "required": True}}
    assert yaml.safe_load(file.tests or "")["defaults"] == {"tools": {"get_weather": "no result"}}
    assert file.notes == []


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("cases: []")
    (tmp_path / "b.yaml").write_text("- x")
    for name in ("a.yaml", "b.yaml"):
        with pytest.raises(RequestError):
            import_config(tmp_path / name)


# Forty configs


def import_and_run(config: Path) -> Counter[str]:
    """Import a config, check what it becomes, run it offline with a scripted model, and count."""
    imported = import_config(config)
    counts = Counter({"configs": 1, "things that are not imported": len(imported.problems)})
    for file in imported.files:
        path = config.with_name(f"{file.name}.prompty")
        path.write_text(file.prompt)
        assert [problem for problem in check(path) if problem.severity == "error"] == []
        counts.update({"prompts": 1, "cases": file.cases, "cases without a check": file.unchecked})
        written = f"{file.prompt}{file.tests}"
        assert all(f"# not imported: {note.message}"[:40] in written for note in file.notes)
        if file.tests is None:
            continue
        tests = config.with_name(f"{file.name}.test.yaml")
        tests.write_text(file.tests)
        assert check_suite(tests) == []
        suite = read_suite(tests)
        counts["checks"] += sum(1 for case in suite.cases for _ in list_conditions(case))
        with Script(*['{"a": 1}'] * 50):
            results = run_suites(suite, mode=LIVE)
        counts["results"] += len(results)
        counts.update(result.status for result in results)
        assert "error" not in {result.status for result in results}, [result.reasons for result in results]
    if not imported.files:
        assert imported.problems
        counts["configs without a prompt"] += 1
    return counts


def list_conditions(case: Any) -> Iterator[str]:
    for level in case.expect.levels:
        for one in getattr(case.expect, level):
            yield from (name for name in one.conditions if name not in ("path", "ignore_case"))


@pytest.fixture
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_no_keys")
def test_forty_configs_run_offline_or_say_what_is_missing(tmp_path: Path) -> None:
    total: Counter[str] = Counter()
    configs = [(style, number, one) for style, several in PROMPTFOO.items() for number, one in enumerate(several)]
    for style, number, config in configs:
        folder = tmp_path / f"{style.replace(' ', '-')}-{number}"
        for name, text in ({"promptfooconfig.yaml": config} if isinstance(config, str) else config).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        total += import_and_run(folder / "promptfooconfig.yaml")
    for name, text in PROMPT_YML.items():
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        (folder / "greet.prompt.yml").write_text(text)
        total += import_and_run(folder / "greet.prompt.yml")
    sys.stdout.write("; ".join(f"{count} {what}" for what, count in total.items()) + "\n")
    assert (len(PROMPTFOO), total["configs"], total["configs without a prompt"]) == (10, 40, 1)
    assert total["results"] == total["passed"] + total["failed"]


# Any config

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
        "weight",
        "tools",
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
PROMPT_YML_DATA = st.fixed_dictionaries(
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
        loads(file.prompt)
        if file.tests is not None:
            (folder / f"{file.name}.prompty").write_text(file.prompt, encoding="utf-8")
            path = folder / f"{file.name}.test.yaml"
            path.write_text(file.tests, encoding="utf-8", newline="\n")
            assert len(read_suite(path).cases) == file.cases


@settings(max_examples=200, deadline=None)
@given(CONFIGS)
def test_any_config_becomes_files_that_can_be_read(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    folder = tmp_path_factory.mktemp("written")
    check_files(read(data, folder), folder)


@settings(max_examples=200, deadline=None)
@given(PROMPT_YML_DATA)
def test_any_prompt_yml_becomes_files_that_can_be_read(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    folder = tmp_path_factory.mktemp("written")
    check_files(read(translate_prompt_yml(data, "x"), folder), folder)


KINDS = st.sampled_from(
    [*MEANINGS, *UNTRANSLATED, "not-contains", "is-json", "contains-json", "llm-rubric", "javascript", "cost", "x"]
)
ANY_ASSERTION = st.recursive(
    st.fixed_dictionaries(
        {"type": KINDS},
        optional={
            "value": st.sampled_from(
                ["a", "{{a}}", "{{b | dump}}", "(", "file://x", 5, True, None, ["a", "b"], [], {}]
            ),
            "threshold": st.sampled_from([0.5, 1, "x"]),
            "weight": st.sampled_from([0, 1, 2]),
            "transform": st.just("output"),
        },
    )
    | st.sampled_from(["contains", 5, {}]),
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("assert-set"), "assert": st.lists(inner, max_size=3)},
        optional={"threshold": st.sampled_from([0.5, 1])},
    ),
    max_leaves=5,
)


def count_assertions(entries: list[Any]) -> int:
    return sum(
        count_assertions(entry["assert"]) if isinstance(entry, dict) and entry.get("type") == "assert-set" else 1
        for entry in entries
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(ANY_ASSERTION, max_size=3), st.lists(st.lists(ANY_ASSERTION, max_size=4), min_size=1, max_size=3))
def test_every_assertion_becomes_a_check_or_a_comment(
    tmp_path_factory: pytest.TempPathFactory, default: list[Any], tests: list[list[Any]]
) -> None:
    data = {
        "prompts": ["{{a}}"],
        "defaultTest": {"assert": default},
        "tests": [{"vars": {"a": "x"}, "assert": one} for one in tests],
    }
    folder = tmp_path_factory.mktemp("counted")
    [file] = read(data, folder)
    check_files([file], folder)
    checks = [len(list(list_conditions(case))) for case in read_suite(folder / "x.test.yaml").cases]
    head, *cases = re.split(r"(?m)^- name: ", file.tests or "")
    common = head.count("# not imported: ")
    lost = [common + case.count("# not imported: ") for case in cases]
    wanted = [count_assertions(default) + count_assertions(one) for one in tests]
    assert [found + left for found, left in zip(checks, lost, strict=True)] == wanted
    assert [count == 0 for count in checks] == ["# no check" in case for case in cases]


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
    assert file.tests is not None
    agent = loads(file.prompt)
    assert (agent.model.provider, agent.model.id, agent.model.options.temperature) == ("openai", "gpt-4o-mini", 0.5)
    assert [one.role for one in prepare(agent, {"input": "x", "language": "y"})] == ["system", "user"]
    assert yaml.safe_load(file.tests)["cases"][0] == {
        "name": "case 1",
        "inputs": {"input": "Long text", "language": "French"},
        "expect": {"replay": {"contains": "Court", "regex": r"\.$"}},
    }
    assert [(problem.key, problem.line) for problem in imported.problems] == [
        ("modelParameters.logprobs", 4),
        ("responseFormat", 5),
        ("evaluators.1", 14),
    ]


def test_a_json_schema_becomes_outputs_and_rules_for_braces_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "shaped.prompt.yml"
    path.write_text(PROMPT_YML["a shape"])
    [file] = import_config(path).files
    assert yaml.safe_load(file.prompt.split("---")[1])["outputs"] == {"n": {"kind": "string", "required": True}}
    path.write_text(PROMPT_YML["starts and ends"])
    [file] = import_config(path).files
    expect = yaml.safe_load(file.tests or "")["cases"][0]["expect"]
    assert expect == {"replay": [{"regex": r"^\{"}, {"regex": r"\}$"}]}


PATTERNS = [
    "**",
    "**/**/**/**/*.txt",
    "**.txt",
    "*" * 300,
    "*/" * 2000 + "x.txt",
    "[",
    "\0*",
    "loop/**/*.txt",
    "*/*/*.txt",
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern[:20])
def test_a_pattern_of_a_config_neither_breaks_the_import_nor_follows_links(tmp_path: Path, pattern: str) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "config"
    (outside / "a").mkdir(parents=True)
    (outside / "a" / "x.txt").write_text("secret")
    (folder / "own" / "b").mkdir(parents=True)
    (folder / "own" / "b" / "x.txt").write_text("own")
    (folder / "loop").symlink_to(folder)
    (folder / "out").symlink_to(outside)
    config = folder / "promptfooconfig.yaml"
    config.write_text(json.dumps({"prompts": [f"file://{pattern}"], "providers": ["openai:gpt-4o"]}))
    found = within(partial(import_config, config))
    assert [file.prompt.endswith("user:\nown\n") for file in found.files] == [True] * len(found.files)
    assert len(found.files) == (pattern in ("**", "**/**/**/**/*.txt", "*/*/*.txt"))
    assert "outside" not in str(found.problems)
    assert not any("loop" in problem.message for problem in found.problems if "no file matches" not in problem.message)
