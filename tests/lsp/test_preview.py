"""Preview: the messages and the request of unsaved text, with sample inputs, and without values of the environment."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from prompty import load
from prompty.analysis.explain import explain
from tests.lsp.client import PULLING, Editor, ServerError

PROMPT = """---
model: {id: gpt-5-mini, provider: openai}
inputs:
  who: {kind: string, default: you}
  age: {kind: integer}
---
system:
Be kind.
user:
Hello {{ who }}, {{ age }}
"""


def preview(editor: Editor, uri: str, **options: object) -> dict[str, Any]:
    params = {"command": "prompty.preview", "arguments": [uri, options]}
    return dict(editor.request("workspace/executeCommand", params))


def test_a_preview_is_of_the_text_that_is_not_saved(tmp_path: Path) -> None:
    (tmp_path / "a.prompty").write_text(PROMPT)
    editor = Editor()
    assert editor.capabilities["executeCommandProvider"] == {"commands": ["prompty.preview"]}
    uri = editor.open(tmp_path / "a.prompty", PROMPT.replace("Hello", "Goodbye"))
    shown = preview(editor, uri, inputs={"age": 36})
    assert [(one["role"], one["content"]) for one in shown["messages"]] == [
        ("system", "Be kind."),
        ("user", "Goodbye you, 36"),
    ]
    assert shown["inputs"] == {"who": "you", "age": 36}


def test_the_request_is_the_one_that_is_sent(tmp_path: Path) -> None:
    (tmp_path / "a.prompty").write_text(PROMPT)
    editor = Editor()
    shown = preview(editor, editor.open(tmp_path / "a.prompty"), inputs={"age": 36})
    expected = explain(load(tmp_path / "a.prompty"), {"age": 36})
    request = shown["request"]
    assert isinstance(request, dict)
    assert (request["url"], request["body"]) == (expected.url, json.loads(json.dumps(expected.body)))
    cost = shown["cost"]
    assert isinstance(cost, dict)
    assert 10 < cost["inputTokens"] < 100
    assert 0 < cost["dollars"] < 0.001


def test_the_inputs_are_those_of_the_test_file_even_if_it_is_not_saved(tmp_path: Path) -> None:
    (tmp_path / "a.prompty").write_text(PROMPT)
    tests = tmp_path / "a.test.yaml"
    tests.write_text("cases: [{inputs: {who: Ada, age: 1}}, {name: second, inputs: {who: Bo, age: 2}}]\n")
    editor = Editor()
    uri = editor.open(tmp_path / "a.prompty")
    assert preview(editor, uri)["inputs"] == {"who": "Ada", "age": 1}
    assert preview(editor, uri, case="second")["inputs"] == {"who": "Bo", "age": 2}
    assert preview(editor, uri, inputs={"who": "Cy"})["inputs"] == {"who": "Cy", "age": 1}
    editor.open(tests, "cases: [{inputs: {who: Dee, age: 1}}]\n")
    assert preview(editor, uri)["inputs"] == {"who": "Dee", "age": 1}


def test_a_form_has_a_field_for_each_input_and_each_variable_without_one(tmp_path: Path) -> None:
    inputs = "age: {kind: integer, description: In years.}\n  tone: {kind: string, enumValues: [warm, cold]}\n"
    text = PROMPT.replace("age: {kind: integer}\n", inputs).replace("{{ age }}", "{{ age }} {{ tone }} {{ nobody }}")
    editor = Editor()
    shown = preview(editor, editor.open(tmp_path / "a.prompty", text), inputs={"age": 36, "tone": "cold"})
    assert shown["fields"] == [
        {"name": "who", "kind": "string", "description": None, "choices": None, "value": "you"},
        {"name": "age", "kind": "integer", "description": "In years.", "choices": None, "value": 36},
        {"name": "tone", "kind": "string", "description": None, "choices": ["warm", "cold"], "value": "cold"},
        {"name": "nobody", "kind": "string", "description": None, "choices": None, "value": "text"},
    ]


def test_a_value_of_the_wrong_kind_from_a_form_is_refused_with_its_name(tmp_path: Path) -> None:
    editor = Editor()
    uri = editor.open(tmp_path / "a.prompty", PROMPT)
    with pytest.raises(ServerError, match="age"):
        preview(editor, uri, inputs={"age": "many"})


def test_a_value_for_an_input_that_was_renamed_is_left_out(tmp_path: Path) -> None:
    editor = Editor()
    uri = editor.open(tmp_path / "a.prompty", PROMPT)
    assert preview(editor, uri, inputs={"whom": "Ada", "age": 1})["inputs"] == {"who": "you", "age": 1}


def test_values_of_the_environment_never_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOUSE_WORD", "value-of-the-word")
    monkeypatch.setenv("HOUSE_KEY", "value-of-the-key")
    monkeypatch.setenv("HOUSE_URL", "https://value-of-the-url.test")
    (tmp_path / ".env").write_text("HOUSE_FILE=value-of-the-file\n")
    connection = "{kind: key, endpoint: '${env:HOUSE_URL}', apiKey: '${env:HOUSE_KEY}'}"
    text = PROMPT.replace("provider: openai", f"provider: openai, connection: {connection}")
    text = text.replace("default: you", "default: '${env:HOUSE_WORD} ${env:HOUSE_FILE}'")
    (tmp_path / "a.prompty").write_text(text)
    (tmp_path / "a.test.yaml").write_text("cases: [{inputs: {who: '${env:HOUSE_WORD} ${env:HOUSE_FILE}'}}]\n")
    editor = Editor(PULLING)
    uri = editor.open(tmp_path / "a.prompty")
    editor.ask("completion", uri, 0, 0)  # reads `.env`
    shown = preview(editor, uri, inputs={"age": 1})
    assert "Environment variable 'HOUSE_URL' not set" in str(shown["request"])
    content = editor.request("workspace/textDocumentContent", {"uri": f"prompty-preview:/a.md?{quote(uri)}"})
    assert "Hello" in content["text"]
    assert "value-of" not in str(editor.received)


def test_a_preview_is_a_document_that_follows_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.prompty").write_text(PROMPT)
    editor = Editor(PULLING)
    assert editor.capabilities["workspace"] == {"textDocumentContent": {"schemes": ["prompty-preview"]}}
    uri = editor.open(tmp_path / "a.prompty")
    address = f"prompty-preview:/preview.md?{quote(uri, safe='')}"
    text = editor.request("workspace/textDocumentContent", {"uri": address})["text"]
    assert "## user\n\nHello you" in text
    assert "POST https://api.openai.com" in text
    editor.received.clear()
    editor.change(uri, {"text": PROMPT.replace("Hello", "Goodbye")})
    refreshed = [one for one in editor.received if one["method"] == "workspace/textDocumentContent/refresh"]
    assert [one["params"] for one in refreshed] == [{"uri": address}]
    assert "Goodbye you" in editor.request("workspace/textDocumentContent", {"uri": address})["text"]
    editor.change(uri, {"text": "---\nname: [\n---\n"})
    assert "invalid-yaml" not in (text := editor.request("workspace/textDocumentContent", {"uri": address})["text"])
    assert text.startswith("There is no preview.")


def test_a_client_without_such_documents_is_not_offered_them() -> None:
    assert "workspace" not in Editor().capabilities


def test_a_prompt_with_a_mistake_has_no_preview(tmp_path: Path) -> None:
    editor = Editor()
    uri = editor.open(tmp_path / "a.prompty", "---\ninputs: 3\n---\nHi")
    with pytest.raises(ServerError, match=r"a\.prompty:2:9"):
        preview(editor, uri)
