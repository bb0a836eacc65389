"""How long an editor waits: from a keystroke to its diagnostics, for completion, and for the first diagnostics."""

import time
from pathlib import Path
from statistics import quantiles

import pytest

from tests.lsp.client import Process
from tests.machine import time_factor

pytestmark = [pytest.mark.timing, pytest.mark.process]
LINES = 500


def write_long_prompt() -> str:
    """Return a prompt with an expression in every other line: more than prompts usually have."""
    inputs = "".join(f"  in{number}: {{kind: string, default: value}}\n" for number in range(20))
    tools = "".join(
        f"  - name: tool{number}\n    kind: function\n    parameters: {{city: {{kind: string}}}}\n"
        for number in range(8)
    )
    head = f"---\nmodel: {{id: house-model, provider: openai}}\ninputs:\n{inputs}tools:\n{tools}---\nsystem:\n"
    lines = ["You use {{ in%d }} well.", "{%% if in%d %%}yes{%% endif %%}", "Plain text, %d.", "- an item %d"]
    count = LINES - head.count("\n")
    return head + "".join(lines[number % 4] % (number % 20) + "\n" for number in range(count))


def test_an_editor_does_not_wait(tmp_path: Path) -> None:
    factor = time_factor()
    file = tmp_path / "a.prompty"
    text, uri = write_long_prompt(), file.as_uri()
    start = time.perf_counter()
    server = Process(tmp_path)
    try:
        server.request("initialize", {"capabilities": {}})
        server.notify("initialized", {})
        document = {"uri": uri, "languageId": "prompty", "version": 1, "text": text + "{{ nobody }}\n"}
        server.notify("textDocument/didOpen", {"textDocument": document})
        server.wait_for_diagnostics(uri, 1)
        first = time.perf_counter() - start
        keystrokes, completions = [], []
        for number in range(60):
            place = {"line": LINES, "character": 9 + number}
            change = {"range": {"start": place, "end": place}, "text": "x"}  # renames the undeclared variable
            start = time.perf_counter()
            changes = {"textDocument": {"uri": uri, "version": number + 2}, "contentChanges": [change]}
            server.notify("textDocument/didChange", changes)
            server.wait_for_diagnostics(uri, number + 2)
            keystrokes.append(time.perf_counter() - start)
            start = time.perf_counter()
            place = {"line": LINES, "character": 10 + number}
            offered = server.request("textDocument/completion", {"textDocument": {"uri": uri}, "position": place})
            completions.append(time.perf_counter() - start)
            assert len(offered) == 20
    finally:
        server.stop()
    keystroke = quantiles(keystrokes[5:], n=20)[-1]
    completion = quantiles(completions[5:], n=20)[-1]
    figures = f"first {first:.2f} s, keystroke {keystroke * 1000:.0f} ms, completion {completion * 1000:.1f} ms"
    assert keystroke <= 0.06 * factor, figures
    assert completion <= 0.01 * factor, figures
    assert first <= 0.7 * factor, figures
