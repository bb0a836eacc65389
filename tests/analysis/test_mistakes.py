"""Fifty files with one mistake each: `check`, `prompty run` and Python report the same problem at the same place."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prompty import check, invoke, load, loads
from prompty.cli.app import app
from prompty.errors import LoadError, Problem, UnknownName
from prompty.testing import Script
from tests.ways import WAYS

HEAD = "---\nname: shop\nmodel: {id: m, provider: scripted}\n"
BODY = "---\nsystem:\nBe kind.\nuser:\nHello\n"


def keys(text: str) -> str:
    return f"{HEAD}{text}\n{BODY}"


def input_n(declaration: str) -> str:
    return f"{HEAD}inputs:\n  n: {declaration}\n---\nuser:\n{{{{ n }}}}\n"


def body(text: str) -> str:
    return f"{HEAD}---\n{text}\n"


# Name: the file, the code of its problem, its line and its column.
MISTAKES: dict[str, tuple[str, str, int, int]] = {
    # YAML and the frame of the file
    "wrong indentation": (keys("inputs:\n  a: {kind: string}\n   b: c"), "invalid-yaml", 6, 4),
    "a tab": (keys("inputs:\n\ta: b"), "invalid-yaml", 5, 1),
    "a quote that is not closed": (keys('description: "x'), "invalid-yaml", 5, 1),
    "a key twice": (keys("name: again"), "duplicate-key", 4, 1),
    "a tag": (keys("description: !!python/name:os x"), "invalid-yaml", 4, 14),
    "a list as frontmatter": ("---\n- a\n---\nHi\n", "invalid-yaml", 2, 1),
    "no closing line": ("---\nname: x\n", "unclosed-frontmatter", 1, 1),
    "an empty file": ("", "empty-file", 1, 1),
    # values
    "a kind of Python": (keys("inputs:\n  q: {kind: str}"), "wrong-value", 5, 13),
    "a kind that does not exist": (keys("inputs:\n  q: {kind: stirng}"), "wrong-value", 5, 13),
    "inputs as text": (keys("inputs: question"), "wrong-value", 4, 9),
    "tools as a word": (keys("tools: search"), "wrong-value", 4, 8),
    "an input without a name": (keys("inputs:\n  - kind: string"), "missing-key", 5, 5),
    "a tool without a name": (keys("tools:\n  - {kind: function}"), "missing-key", 5, 5),
    "a temperature as text": (
        "---\nmodel: {id: m, provider: scripted, options: {temperature: hot}}\n" + BODY,
        "wrong-value",
        2,
        59,
    ),
    "required as text": (keys("inputs:\n  q: {kind: string, required: maybe}"), "wrong-value", 5, 31),
    "a description as a list": (keys("description: [a]"), "wrong-value", 4, 14),
    "a seed as text": (
        "---\nmodel: {id: m, provider: scripted, options: {seed: x}}\n" + BODY,
        "wrong-value",
        2,
        52,
    ),
    # defaults and shapes
    "a default of another kind": (input_n("{kind: integer, default: x}"), "wrong-default", 5, 31),
    "a default outside of the enum": (
        input_n("{kind: string, enumValues: [a, b], default: c}"),
        "wrong-default",
        5,
        50,
    ),
    "a default of a parameter": (
        keys("tools:\n  - {name: f, kind: function, parameters: {n: {kind: integer, default: x}}}"),
        "wrong-default",
        5,
        72,
    ),
    "a default inside a list": (
        input_n("{kind: array, items: {kind: integer}, default: [x]}"),
        "wrong-default",
        5,
        53,
    ),
    "parameters as JSON Schema": (
        keys(
            "tools:\n  - name: f\n    kind: function\n    parameters: {type: object, properties: {a: {type: string}}}"
        ),
        "json-schema",
        7,
        32,
    ),
    "outputs as JSON Schema": (
        keys("outputs: {type: object, properties: {a: {type: string}}}"),
        "json-schema",
        4,
        25,
    ),
    "inputs as JSON Schema": (keys("inputs: {type: object, properties: {a: {type: string}}}"), "json-schema", 4, 24),
    # references
    "an unset variable": (keys("description: ${env:PROMPTY_TEST_UNSET}"), "env-missing", 4, 14),
    "a file that does not exist": (keys("metadata: {a: '${file:no.json}'}"), "file-missing", 4, 15),
    "a file outside": (keys("metadata: {a: '${file:../../etc/passwd}'}"), "file-outside", 4, 15),
    # names
    "an unknown provider": ("---\nmodel: {id: m, provider: opnai}\n" + BODY, "unknown-provider", 2, 26),
    "an unknown apiType": (
        "---\nmodel: {id: m, provider: scripted, apiType: chatt}\n" + BODY,
        "unknown-api-type",
        2,
        45,
    ),
    "a connection that the provider cannot use": (
        "---\nmodel: {id: m, provider: openai, connection: {kind: foundry, endpoint: 'https://api.openai.com'}}\n"
        + BODY,
        "wrong-connection-kind",
        2,
        53,
    ),
    "an unknown tool kind": (keys("tools:\n  - {name: f, kind: fuction}"), "unknown-tool-kind", 5, 21),
    "an unknown engine": (keys("template: jnja2"), "unknown-engine", 4, 11),
    "an unknown parser": (keys("template: {format: {kind: jinja2}, parser: {kind: x}}"), "unknown-engine", 4, 51),
    # the template
    "a tag that is not closed": (body("user:\n{% if x %}"), "template-syntax", 6, 1),
    "an unknown filter": (body("user:\n{{ 'a'|uper }}"), "template-syntax", 6, 1),
    "an include of a file that is not a partial": (body('user:\n{% include "part.txt" %}'), "include-name", 6, 1),
    "an include of no file": (body('user:\n{% include "_part.txt" %}'), "file-missing", 6, 1),
    "an include with a computed name": (body("user:\n{% include name %}"), "include-form", 6, 1),
    "an import": (body('user:\n{% import "part.txt" as p %}'), "template-syntax", 6, 1),
    # warnings
    "a misspelt key": (keys("descripton: x"), "unknown-key", 4, 1),
    "a misplaced option": (keys("temperature: 0.5"), "misplaced-key", 4, 1),
    "a misplaced key of a connection": (keys("endpoint: https://x.y"), "misplaced-key", 4, 1),
    "an option with the name of an API": (keys("max_tokens: 5"), "misplaced-key", 4, 1),
    "a script of another provider": (
        f"---\nmodel:\n  id: m\n  script: [Hi]\n{BODY}",
        "misplaced-key",
        4,
        3,
    ),
    "a script among the options": (
        f"---\nmodel:\n  provider: scripted\n  options: {{additionalProperties: {{script: [Hi]}}}}\n{BODY}",
        "misplaced-key",
        4,
        36,
    ),
    "a script that is no list": (f"---\nmodel: {{provider: scripted, script: Hi}}\n{BODY}", "wrong-value", 2, 37),
    "no script": (f"---\nmodel: {{provider: scripted}}\n{BODY}", "missing-model", 2, 8),
    "a provider in the id of the model": (
        f"---\nmodel: {{id: openai:gpt-6-luna}}\n{BODY}",
        "provider-in-model-id",
        2,
        13,
    ),
    "a model of another company": (f"---\nmodel: claude-haiku-5-5\n{BODY}", "foreign-model", 2, 8),
    "a misspelt provider of a model": (f"---\nmodel: antropic:claude\n{BODY}", "foreign-model", 2, 8),
    "no model": ("---\nname: x\n---\nuser:\nHi\n", "missing-model", 2, 1),
    "a misspelt role": (body("sytem:\nBe kind.\nuser:\nHi"), "misspelt-role", 5, 1),
    "a role of another format": (body("system:\nBe kind.\nhuman:\nHi"), "misspelt-role", 7, 1),
    "text behind a role": (body("system:\nBe kind.\nUser: hello"), "text-after-role", 7, 1),
    "an output without a shape": (keys("outputs:\n  a: {kind: object}"), "open-output", 5, 6),
    "an output list without a shape": (keys("outputs:\n  a: {kind: array}"), "open-output", 5, 6),
    "an input that is not used": (keys("inputs:\n  q: {kind: string}"), "unused-input", 5, 6),
    "a variable without an input": (
        f"{HEAD}inputs:\n  question: {{kind: string}}\n---\nuser:\n{{{{ question }}}} {{{{ qestion }}}}\n",
        "undeclared-variable",
        8,
        19,
    ),
    "a secret in the prompt": (body("user:\nUse sk-abcdefghijkl"), "secret-in-prompt", 6, 5),
}


def test_there_are_fifty() -> None:
    assert len(MISTAKES) >= 50


@pytest.mark.parametrize(("text", "code", "line", "column"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_reported_alike_everywhere(text: str, code: str, line: int, column: int, tmp_path: Path) -> None:
    file = tmp_path / "a.prompty"
    file.write_text(text, encoding="utf-8")
    [problem] = check(file)
    assert (problem.code, problem.line, problem.column) == (code, line, column)
    if code == "env-missing":  # a scripted model needs no variable
        return
    shown = CliRunner().invoke(app, ["run", str(file)])
    assert f"{problem.place}: {problem.severity}: " in shown.stderr.replace("\n", "")
    if problem.severity == "error":
        assert shown.exit_code == 1
        _assert_python_agrees(file, problem)


# Names may be registered after a file is loaded, and templates are read when they are rendered.
LATE = {
    "unknown-provider",
    "foreign-model",
    "unknown-api-type",
    "wrong-connection-kind",
    "unknown-tool-kind",
    "unknown-engine",
    "template-syntax",
    "empty-file",
    "missing-model",
}


def _assert_python_agrees(file: Path, problem: Problem) -> None:
    """Loading the file, or a run of it, reports the same problem. A script does not care for connections."""
    if problem.code in LATE:
        load(file)
        for way in WAYS:
            with nullcontext() if problem.code in ("wrong-connection-kind", "foreign-model") else Script("answer"):
                error = way.turn(file, sendable=False).error
            assert error is not None
            assert error.problem is not None
            assert error.problem.path == problem.path
            assert error.problem.line == problem.line
            assert str(error) == str(error.problem)
        return
    with pytest.raises(LoadError) as caught:
        load(file)
    assert [(found.code, found.place) for found in caught.value.problems] == [(problem.code, problem.place)]


def test_an_agent_that_is_not_from_a_file_has_the_cause_alone() -> None:
    agent = loads("---\nmodel: {id: m, provider: opnai}\n" + BODY)
    with pytest.raises(UnknownName) as caught:
        invoke(agent)
    assert caught.value.problem is None
    assert str(caught.value).startswith("no provider is called 'opnai'\n    Did you mean `openai`? Use one of ")


def test_another_provider_than_the_file_s_has_no_place_in_it(tmp_path: Path) -> None:
    file = tmp_path / "a.prompty"
    file.write_text(keys("description: x"))
    agent = load(file)
    other = agent.model_copy(update={"model": agent.model.model_copy(update={"provider": "opnai"})})
    with pytest.raises(UnknownName) as caught:
        invoke(other)
    assert caught.value.problem is None


@pytest.mark.parametrize(
    "model", ["ollama:llama3.2", "{provider: anthropic, id: 'openai:gpt-5-mini'}", "ft:gpt-6-luna:acme"]
)
def test_an_id_with_a_colon_is_no_mistake_by_itself(model: str, tmp_path: Path) -> None:
    (tmp_path / "a.prompty").write_text(f"---\nmodel: {model}\n{BODY}", encoding="utf-8")
    assert check(tmp_path / "a.prompty") == []
