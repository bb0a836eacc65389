"""Completion, hover, definitions, references, renames, symbols and lenses."""

from pathlib import Path
from typing import Any

import pytest

from tests.lsp.client import Editor, ServerError

PROMPT = """---
model: {id: gpt-5-mini, provider: openai}
inputs:
  who: {kind: string, default: you, description: Whom to greet.}
  mood:
    kind: string
tools:
  - name: look
    kind: function
    bindings: {place: {input: who}}
  - name: sub
    kind: prompty
    path: other.prompty
---
system:
Be {{ mood | upper }}. {% include "_rules.md" %}
user:
Hello {{ who }} and {{ who.name }}{% if who is defined %}!{% endif %}
"""
TESTS = """defaults:
  inputs: {mood: kind}
cases:
  - name: greets
    inputs:
      who: Ada
    tools: {look 2: nothing}
    expect:
      replay: {tools: [look, {sub: {x: 1}}]}
"""


@pytest.fixture
def editor(tmp_path: Path) -> Editor:
    (tmp_path / "_rules.md").write_text("Be brief.\n")
    (tmp_path / "other.prompty").write_text("---\nmodel: m\n---\nHi\n")
    (tmp_path / "a.prompty").write_text(PROMPT)
    (tmp_path / "a.test.yaml").write_text(TESTS)
    (tmp_path / "data.json").write_text("{}")
    return Editor()


def find(text: str, marked: str) -> tuple[str, int, int]:
    """Return the text, and the position of the mark `|` in the part `marked` of it."""
    before, _, after = marked.partition("¦")
    at = text.index(before + after) + len(before)
    line = text.count("\n", 0, at)
    return text, line, at - (text.rfind("\n", 0, at) + 1)


def offer(editor: Editor, path: Path, text: str) -> dict[str, Any]:
    """Return the completion at the mark `¦` of an unsaved text, by label."""
    before, _, after = text.partition("¦")
    uri = editor.open(path, before + after)
    items = editor.ask("completion", uri, before.count("\n"), len(before) - (before.rfind("\n") + 1))
    return {item["label"]: item for item in items}


OFFERS = {
    "a key": ("---\nmo¦\n---\n", "model"),
    "a key while the YAML is broken": ("---\nname: [\nmodel:\n  op¦\n---\n", "options"),
    "a key of a flow mapping": ("---\nmodel: {id: x, pro¦}\n---\n", "provider"),
    "a key of an input": ("---\ninputs:\n  who:\n    ki¦\n---\n", "kind"),
    "a key of a tool": ("---\ntools:\n  - name: x\n    ki¦\n---\n", "kind"),
    "a kind": ("---\ninputs:\n  who: {kind: ¦}\n---\n", "boolean"),
    "a kind of tool": ("---\ntools:\n  - name: x\n    kind: ¦\n---\n", "mcp"),
    "a flag": ("---\ninputs:\n  who: {required: ¦}\n---\n", "true"),
    "a provider": ("---\nmodel:\n  provider: ¦\n---\n", "anthropic"),
    "a model": ("---\nmodel:\n  id: gpt¦\n---\n", "gpt-5-mini"),
    "a model of another provider": ("---\nmodel:\n  provider: anthropic\n  id: ¦\n---\n", "claude-opus-5"),
    "an engine": ("---\ntemplate: ¦\n---\n", "mustache"),
    "a bound input": (
        "---\ninputs: {who: a}\ntools: [{name: t, kind: function, bindings: {x: {input: ¦}}}]\n---\n",
        "who",
    ),
    "a variable of the environment": ("---\ndescription: ${env:HO¦}\n---\n", "HOME"),
    "a file": ("---\ndescription: ${file:¦}\n---\n", "data.json"),
    "an input": ("---\ninputs: {who: a}\n---\nHi {{ ¦", "who"),
    "an input in Mustache": ("---\ninputs: {who: a}\ntemplate: mustache\n---\nHi {{#¦", "who"),
    "an input while the YAML is broken": ("---\ninputs:\n  who: a\nname: [\n---\nHi {{ w¦ }}", "who"),
    "a filter": ("---\ninputs: {who: a}\n---\nHi {{ who | up¦ }}", "upper"),
    "a tag": ("---\nname: x\n---\nHi {% ¦", "endif"),
    "a partial": ('---\nname: x\n---\nHi {% include "¦', "_rules.md"),
    "a role": ("---\nname: x\n---\nus¦", "user:"),
}


@pytest.mark.parametrize(("text", "label"), OFFERS.values(), ids=OFFERS)
def test_what_fits_is_offered(editor: Editor, tmp_path: Path, text: str, label: str) -> None:
    assert label in offer(editor, tmp_path / "b.prompty", text)


TEST_OFFERS = {
    "a key of the file": ("ca¦", "cases"),
    "a key of a case": ("cases:\n  - na¦", "name"),
    "a level": ("cases:\n  - expect:\n      re¦", "replay"),
    "a condition": ("cases:\n  - expect:\n      render: {con¦}", "contains"),
    "an input of the prompt": ("cases:\n  - inputs:\n      w¦", "who"),
    "a tool of the prompt": ("cases:\n  - tools: {¦}", "look"),
    "a tool that was called": ("cases:\n  - expect: {replay: {tools: [¦]}}", "sub"),
    "a model": ("defaults:\n  models: [¦]", "openai:gpt-5-mini"),
}


@pytest.mark.parametrize(("text", "label"), TEST_OFFERS.values(), ids=TEST_OFFERS)
def test_what_fits_in_a_test_file_is_offered(editor: Editor, tmp_path: Path, text: str, label: str) -> None:
    assert label in offer(editor, tmp_path / "a.test.yaml", text)


def test_a_model_is_offered_with_the_day_it_ends(editor: Editor, tmp_path: Path) -> None:
    offered = offer(editor, tmp_path / "b.prompty", "---\nmodel:\n  id: gpt-5¦\n---\n")
    assert offered["gpt-5-mini"]["detail"] == "ends 2026-12-11"
    assert offered["gpt-5-mini"]["textEdit"] == {
        "range": {"start": {"line": 2, "character": 6}, "end": {"line": 2, "character": 11}},
        "newText": "gpt-5-mini",
    }
    assert "gpt-4" not in offered  # it has ended


def test_values_of_variables_are_not_offered(editor: Editor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOUSE_KEY", "the value of the environment")
    (tmp_path / ".env").write_text("OTHER_KEY=the value of the file\n")
    offered = offer(editor, tmp_path / "b.prompty", "---\ndescription: ${env:¦}\n---\n")
    assert {"HOUSE_KEY", "OTHER_KEY"} <= offered.keys()
    assert "the value" not in str(editor.received)


def test_keys_of_a_connection_fit_its_kind(editor: Editor, tmp_path: Path) -> None:
    offered = offer(editor, tmp_path / "b.prompty", "---\nmodel:\n  connection:\n    kind: oauth\n    ¦\n---\n")
    assert "tokenUrl" in offered
    assert "apiKey" not in offered


def locate(editor: Editor, path: Path, text: str, marked: str) -> tuple[str, int, int]:
    return (editor.open(path), *find(text, marked)[1:])


HOVERS = {
    "a key": ("provi¦der", "**provider**"),
    "an input": ("{{ wh¦o }}", "default: you"),
    "an input's description": ("{{ wh¦o }}", "Whom to greet."),
    "a model": ("gpt-5-m¦ini", "ends: 2026-12-11"),
    "a tool": ("name: loo¦k", "**look** (tool)"),
}


@pytest.mark.parametrize(("marked", "expected"), HOVERS.values(), ids=HOVERS)
def test_a_word_is_explained(editor: Editor, tmp_path: Path, marked: str, expected: str) -> None:
    assert expected in editor.ask("hover", *locate(editor, tmp_path / "a.prompty", PROMPT, marked))["contents"]["value"]


def test_plain_text_is_not_explained(editor: Editor, tmp_path: Path) -> None:
    assert editor.ask("hover", *locate(editor, tmp_path / "a.prompty", PROMPT, "Hel¦lo")) is None


DEFINITIONS = {
    "an input": ("{{ wh¦o }}", "a.prompty", 3),
    "an input of a binding": ("{input: wh¦o}", "a.prompty", 3),
    "a partial": ("_ru¦les.md", "_rules.md", 0),
    "the file of a tool": ("path: oth¦er", "other.prompty", 0),
}


@pytest.mark.parametrize(("marked", "file", "line"), DEFINITIONS.values(), ids=DEFINITIONS)
def test_a_name_leads_to_its_definition(editor: Editor, tmp_path: Path, marked: str, file: str, line: int) -> None:
    [found] = editor.ask("definition", *locate(editor, tmp_path / "a.prompty", PROMPT, marked))
    assert (found["uri"].rpartition("/")[2], found["range"]["start"]["line"]) == (file, line)


TEST_DEFINITIONS = {
    "an input": ("wh¦o: Ada", 3),
    "a default": ("moo¦d: kind", 4),
    "the second call of a tool": ("loo¦k 2", 7),
    "a call": ("[loo¦k,", 7),
    "a call with arguments": ("{su¦b:", 10),
}


@pytest.mark.parametrize(("marked", "line"), TEST_DEFINITIONS.values(), ids=TEST_DEFINITIONS)
def test_a_name_in_a_test_file_leads_to_the_prompt(editor: Editor, tmp_path: Path, marked: str, line: int) -> None:
    [found] = editor.ask("definition", *locate(editor, tmp_path / "a.test.yaml", TESTS, marked))
    assert (found["uri"].rpartition("/")[2], found["range"]["start"]["line"]) == ("a.prompty", line)


def apply(editor: Editor, changes: dict[str, list[dict[str, Any]]], folder: Path) -> dict[str, str]:
    """Return the files after edits, by name."""
    files = {}
    for uri, edits in changes.items():
        text = editor.server.workspace.get_text(uri)
        assert text is not None
        ordered = sorted(edits, key=lambda edit: text.to_offset(edit["range"]["start"]), reverse=True)
        result = text.text
        for edit in ordered:
            start, end = (text.to_offset(edit["range"][side]) for side in ("start", "end"))
            result = result[:start] + edit["newText"] + result[end:]
        files[uri.rpartition("/")[2]] = result
    return files


def test_a_rename_changes_the_prompt_its_variants_and_its_test_files(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "a.short.prompty").write_text("---\nname: s\n---\nuser:\n{{ who }}\n")
    (tmp_path / "more.test.yaml").write_text("prompt: a.prompty\ncases: [{inputs: {who: Bo}}]\n")
    (tmp_path / "another.test.yaml").write_text("prompt: other.prompty\ncases: [{inputs: {who: Bo}}]\n")
    place = locate(editor, tmp_path / "a.prompty", PROMPT, "{{ wh¦o }}")
    assert editor.ask("prepareRename", *place)["placeholder"] == "who"
    changed = apply(editor, editor.ask("rename", *place, newName="person")["changes"], tmp_path)
    assert changed == {
        "a.prompty": PROMPT.replace("who:", "person:")
        .replace("input: who", "input: person")
        .replace("{{ who", "{{ person")
        .replace("if who", "if person"),
        "a.short.prompty": "---\nname: s\n---\nuser:\n{{ person }}\n",
        "a.test.yaml": TESTS.replace("who:", "person:"),
        "more.test.yaml": "prompt: a.prompty\ncases: [{inputs: {person: Bo}}]\n",
    }
    references = editor.ask("references", *place, context={"includeDeclaration": False})
    assert len(references) == 7


REFUSED = {
    "a name that is taken": (PROMPT, "{{ wh¦o }}", "mood", "already used"),
    "no name": (PROMPT, "{{ wh¦o }}", "a b", "no name"),
    "a tool": (PROMPT, "name: loo¦k", "x", "only inputs"),
    "a local name": (
        "---\ninputs: {who: a}\n---\n{% for who in who %}{{ who }}{% endfor %}",
        "{{ wh¦o",
        "x",
        "by hand",
    ),
    "a name that is not declared": ("{{ who }}", "{{ wh¦o", "x", "not declared"),
}


@pytest.mark.parametrize(("text", "marked", "new", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_rename_that_would_change_the_meaning_is_refused(
    editor: Editor, tmp_path: Path, text: str, marked: str, new: str, reason: str
) -> None:
    (tmp_path / "c.prompty").write_text(text)
    with pytest.raises(ServerError, match=reason):
        editor.ask("rename", *locate(editor, tmp_path / "c.prompty", text, marked), newName=new)


def test_a_rename_of_what_a_partial_reads_is_refused(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "_rules.md").write_text("Be brief, {{ who }}.\n")
    with pytest.raises(ServerError, match="other prompts"):
        editor.ask("rename", *locate(editor, tmp_path / "a.prompty", PROMPT, "{{ wh¦o }}"), newName="x")


def test_symbols_are_keys_with_their_names_and_messages(editor: Editor, tmp_path: Path) -> None:
    uri = editor.open(tmp_path / "a.prompty")
    symbols = editor.request("textDocument/documentSymbol", {"textDocument": {"uri": uri}})
    assert [(one["name"], [child["name"] for child in one["children"]]) for one in symbols] == [
        ("model", []),
        ("inputs", ["who", "mood"]),
        ("tools", ["look", "sub"]),
        ("system", []),
        ("user", []),
    ]


def test_lenses_run_test_and_preview(editor: Editor, tmp_path: Path) -> None:
    prompt, tests = editor.open(tmp_path / "a.prompty"), editor.open(tmp_path / "a.test.yaml")
    lenses = [editor.request("textDocument/codeLens", {"textDocument": {"uri": uri}}) for uri in (prompt, tests)]
    assert [one["command"] for one in lenses[0]] == [
        {"title": "Run", "command": "prompty.run", "arguments": [prompt]},
        {"title": "Test", "command": "prompty.test", "arguments": [prompt]},
        {"title": "Preview", "command": "prompty.preview", "arguments": [prompt]},
    ]
    assert [one["command"]["arguments"] for one in lenses[1]] == [[tests], [tests, "greets"]]
