"""Open documents: incremental changes, positions in UTF-16, line ends, push and pull, files that are not saved."""

from pathlib import Path

import pytest

from tests.lsp.client import PULLING, Editor

PROMPT = "---\nmodel: house-model\n---\nuser:\nHello\n"


def codes(editor: Editor, uri: str) -> list[str]:
    return [one["code"] for one in editor.diagnostics.get(uri, [])]


def insert(line: int, character: int, text: str, end: tuple[int, int] | None = None) -> dict[str, object]:
    last = end or (line, character)
    place = {"start": {"line": line, "character": character}, "end": {"line": last[0], "character": last[1]}}
    return {"range": place, "text": text}


def test_a_change_moves_and_removes_diagnostics(tmp_path: Path) -> None:
    editor = Editor()
    uri = editor.open(tmp_path / "a.prompty", PROMPT)
    assert codes(editor, uri) == []
    editor.change(uri, insert(4, 5, " {{ who }}"))
    [found] = editor.diagnostics[uri]
    assert found["code"] == "undeclared-variable"
    assert "codeDescription" not in found
    assert found["range"] == {"start": {"line": 4, "character": 9}, "end": {"line": 4, "character": 12}}
    editor.change(uri, insert(0, 0, "\n\n"), version=3)
    assert editor.diagnostics[uri][0]["range"]["start"]["line"] == 6
    editor.change(uri, insert(6, 5, "", (6, 15)), version=4)
    assert codes(editor, uri) == []


def test_a_diagnostic_links_to_the_site_once_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prompty.errors.SITE", "https://docs.example/")
    editor = Editor()
    uri = editor.open(tmp_path / "a.prompty", PROMPT + "{{ who }}\n")
    href = "https://docs.example/reference/problems/#undeclared-variable"
    assert [found["codeDescription"] for found in editor.diagnostics[uri]] == [{"href": href}]


def test_columns_count_units_of_utf_16(tmp_path: Path) -> None:
    editor = Editor()
    uri = editor.open(tmp_path / "a.prompty", PROMPT.replace("Hello", "😀 e\u0301 {{ who }}"))
    [found] = editor.diagnostics[uri]
    assert found["range"] == {"start": {"line": 4, "character": 9}, "end": {"line": 4, "character": 12}}
    editor.change(uri, insert(4, 2, "😀😀"))  # behind the first emoji, which has two units
    assert editor.server.workspace.texts[uri].lines[4].startswith("😀😀😀 e\u0301")
    assert editor.diagnostics[uri][0]["range"]["start"] == {"line": 4, "character": 13}


def test_every_line_end_of_the_protocol_counts_and_no_other(tmp_path: Path) -> None:
    editor = Editor()
    for number, end in enumerate(("\r\n", "\r", "\n")):
        text = PROMPT.replace("Hello", "a\u2028b\x0cc\nx {{ who }}").replace("\n", end)
        uri = editor.open(tmp_path / f"{number}.prompty", text)
        [found] = editor.diagnostics[uri]
        assert found["range"] == {"start": {"line": 5, "character": 5}, "end": {"line": 5, "character": 8}}
    editor.change(to := uri, insert(5, 0, "\r"), insert(6, 0, "\n"), version=3)
    assert editor.server.workspace.texts[to].lines[4:7] == ["a\u2028b\x0cc", "", "x {{ who }}"]


def test_a_byte_order_mark_shifts_only_the_first_line(tmp_path: Path) -> None:
    editor = Editor()
    uri = editor.open(tmp_path / "a.prompty", "\ufeff{{ who }}")
    starts = {one["code"]: one["range"]["start"]["character"] for one in editor.diagnostics[uri]}
    assert starts["undeclared-variable"] == 4


def test_an_unsaved_partial_is_used_and_its_problems_are_shown_in_it(tmp_path: Path) -> None:
    (tmp_path / "_rules.md").write_text("Be kind.\n")
    (tmp_path / "a.prompty").write_text(PROMPT.replace("Hello", '{% include "_rules.md" %}'))
    editor = Editor()
    prompt, partial = editor.open(tmp_path / "a.prompty"), editor.open(tmp_path / "_rules.md", language="markdown")
    assert codes(editor, prompt) == codes(editor, partial) == []
    editor.change(partial, insert(0, 0, "{{ who }} "))
    assert (codes(editor, prompt), codes(editor, partial)) == ([], ["undeclared-variable"])
    editor.notify("textDocument/didClose", {"textDocument": {"uri": partial}})
    assert codes(editor, partial) == []


def test_a_base_that_is_open_checks_its_variants(tmp_path: Path) -> None:
    (tmp_path / "a.prompty").write_text(PROMPT)
    (tmp_path / "a.short.prompty").write_text("---\nmodle: x\n---\n")
    editor = Editor()
    variant = editor.open(tmp_path / "a.short.prompty")
    assert codes(editor, variant) == ["unknown-key"]
    base = editor.open(tmp_path / "a.prompty")
    assert (codes(editor, base), codes(editor, variant)) == ([], ["unknown-key"])
    editor.change(variant, {"text": "---\nmodel: x\n---\n"})
    assert codes(editor, variant) == []


def test_a_test_file_is_checked_with_its_prompt_and_alone(tmp_path: Path) -> None:
    (tmp_path / "a.prompty").write_text(PROMPT)
    tests = tmp_path / "a.test.yaml"
    tests.write_text("cases:\n  - nmae: x\n")
    editor = Editor()
    editor.open(tmp_path / "a.prompty")
    uri = tests.as_uri()
    assert codes(editor, uri) == ["unknown-key"]
    assert editor.open(tests, "cases:\n  - name: x\n", "yaml") == uri
    assert codes(editor, uri) == []


def test_a_client_that_pulls_gets_answers_and_is_told_to_ask_again(tmp_path: Path) -> None:
    (tmp_path / "_rules.md").write_text("Be kind.\n")
    editor = Editor(PULLING)
    assert editor.capabilities["diagnosticProvider"]["interFileDependencies"]
    prompt = editor.open(tmp_path / "a.prompty", PROMPT.replace("Hello", '{% include "_rules.md" %}'))
    partial = editor.open(tmp_path / "_rules.md", language="markdown")
    assert editor.diagnostics == {}
    editor.received.clear()
    editor.change(partial, insert(0, 0, "{{ who }} "))
    assert [one["method"] for one in editor.received] == ["workspace/diagnostic/refresh"]
    answers = [editor.request("textDocument/diagnostic", {"textDocument": {"uri": uri}}) for uri in (prompt, partial)]
    assert [[item["code"] for item in one["items"]] for one in answers] == [[], ["undeclared-variable"]]


def test_a_client_that_only_says_diagnostic_is_not_expected_to_pull(tmp_path: Path) -> None:
    editor = Editor({"textDocument": {"diagnostic": {}}})
    assert "diagnosticProvider" not in editor.capabilities
    uri = editor.open(tmp_path / "a.prompty", "{{ who }}")
    assert "undeclared-variable" in codes(editor, uri)


def test_a_quick_fix_is_the_edit_of_check(tmp_path: Path) -> None:
    editor = Editor()
    uri = editor.open(tmp_path / "a.prompty", PROMPT.replace("model", "modle", 1))
    place = {"start": {"line": 1, "character": 3}, "end": {"line": 1, "character": 3}}
    context = {"diagnostics": editor.diagnostics[uri]}
    params = {"textDocument": {"uri": uri}, "range": place, "context": context}
    [fix] = editor.request("textDocument/codeAction", params)
    assert fix["title"] == "Replace with `model`"
    assert [one["code"] for one in fix["diagnostics"]] == ["unknown-key"]
    [edit] = fix["edit"]["changes"][uri]
    assert edit == {"range": insert(1, 0, "", (1, 5))["range"], "newText": "model"}


def test_an_unsaved_file_without_a_path_is_checked(tmp_path: Path) -> None:
    editor = Editor()
    document = {"uri": "untitled:Untitled-1", "languageId": "prompty", "version": 1, "text": "{{ who }}"}
    editor.notify("textDocument/didOpen", {"textDocument": document})
    assert "undeclared-variable" in codes(editor, "untitled:Untitled-1")


def test_a_file_without_problems_is_said_to_have_none_each_time_it_is_opened(tmp_path: Path) -> None:
    editor = Editor()
    for _ in range(2):
        uri = editor.open(tmp_path / "a.prompty", PROMPT)
        assert editor.diagnostics.pop(uri) == []
        editor.notify("textDocument/didClose", {"textDocument": {"uri": uri}})


def test_a_request_for_fixes_right_after_a_change_does_not_keep_its_diagnostics_back(tmp_path: Path) -> None:
    editor = Editor()
    uri = editor.open(tmp_path / "a.prompty", PROMPT)
    document = {"uri": uri, "version": 2}
    change = {"textDocument": document, "contentChanges": [insert(4, 5, " {{ who }}")]}
    everything = {"start": {"line": 0, "character": 0}, "end": {"line": 9, "character": 0}}
    waiting = {"method": "textDocument/didChange", "params": change}
    editor.connection.receive(waiting, editor.server)  # and the request arrives before the server has checked
    editor.request("textDocument/codeAction", {"textDocument": document, "range": everything, "context": {}})
    assert codes(editor, uri) == ["undeclared-variable"]
