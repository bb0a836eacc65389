"""Random messages in random order, broken JSON and cancelled requests: the server survives, and shows nothing stale.
`make soak` runs 500 sessions."""

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from prompty.lsp.server import LanguageServer
from prompty.lsp.wire import read_message, serve, write_frame
from tests.lsp.client import Editor
from tests.lsp.corpus import SAMPLES
from tests.soak import SOAK

SESSIONS = 500 if SOAK else 15
REQUESTS = [
    "diagnostic", "codeAction", "completion", "hover", "definition", "references", "prepareRename", "rename",
    "documentSymbol", "codeLens",
]  # fmt: skip
TEXTS = [text for sample in SAMPLES.values() for text in sample.files.values()]
ODD: list[Any] = [None, -1, 2**40, "x", [], {}, {"line": -1}, {"uri": 3}, "\ud800", True]
BROKEN = [
    b"Content-Length: 5\r\n\r\n{{{{{",
    b"Content-Length: x\r\n\r\n",
    b"Nonsense\r\n\r\n",
    b"Content-Length: 2\r\n\r\n[]",
    b'Content-Length: 4\r\nContent-Type: x\r\n\r\n"\xff"x',
    b"\r\n\r\n",
]


def make_message(chance: random.Random, uris: list[str], number: int) -> dict[str, Any]:
    uri = chance.choice(uris)
    position = {"line": chance.randint(0, 12), "character": chance.randint(0, 30)}
    params: dict[str, Any] = {"textDocument": {"uri": uri, "version": number}, "position": position}
    kind = chance.random()
    if kind < 0.2:
        params["textDocument"] |= {"text": chance.choice(TEXTS), "languageId": "prompty"}
        return {"method": "textDocument/didOpen", "params": params}
    if kind < 0.5:
        change: dict[str, Any] = {"text": chance.choice(["a", "\n", "{{ who", "}}", "😀", chance.choice(TEXTS)])}
        if chance.random() < 0.8:
            change["range"] = {"start": position, "end": chance.choice([position, {"line": 20, "character": 0}])}
        return {"method": "textDocument/didChange", "params": {**params, "contentChanges": [change]}}
    if kind < 0.55:
        return {"method": "textDocument/didClose", "params": params}
    if kind < 0.6:
        return {"method": "$/cancelRequest", "params": {"id": chance.randint(0, number + 3)}}
    params |= {"range": {"start": position, "end": position}, "newName": "other", "context": {}}
    method = f"textDocument/{chance.choice(REQUESTS)}"
    if kind < 0.65:
        method, params = "workspace/executeCommand", {"command": "prompty.preview", "arguments": [uri]}
    if kind > 0.9:
        params = {key: chance.choice(ODD) if chance.random() < 0.5 else value for key, value in params.items()}
    if kind > 0.97:
        method = chance.choice(["nothing", "$/x", "initialize", "workspace/executeCommand"])
    return {"id": number, "method": method, "params": params}


def run_session(chance: random.Random, folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Send random messages through the wire. Return what was sent and what the server answered."""
    names = ["a.prompty", "a.short.prompty", "_p.md", "a.test.yaml"]
    uris = [*((folder / name).as_uri() for name in names), "untitled:One", "file:///%00", "x"]
    messages = [{"id": 0, "method": "initialize", "params": {"capabilities": {}}}]
    messages += [make_message(chance, uris, number) for number in range(1, 40)]
    stdin, stdout = io.BytesIO(), io.BytesIO()
    for message in messages:
        if chance.random() < 0.05:
            stdin.write(chance.choice(BROKEN))
        write_frame(stdin, message)
    write_frame(stdin, {"id": "end", "method": "shutdown"})
    write_frame(stdin, {"method": "exit"})
    stdin.seek(0)
    assert serve(stdin, stdout, LanguageServer) == 0
    stdout.seek(0)
    answers = []
    while (content := read_message(stdout)) is not None:
        answers.append(json.loads(content))
    return messages, answers


@pytest.mark.slow
def test_no_session_crashes_and_every_request_is_answered_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(SESSIONS):
        messages, answers = run_session(random.Random(seed), tmp_path)  # noqa: S311  no secret
        sent = [message["id"] for message in messages if "id" in message]
        answered = [answer["id"] for answer in answers if "method" not in answer and isinstance(answer["id"], int)]
        assert answered == sent, seed
        assert {answer["error"]["code"] for answer in answers if "error" in answer}.isdisjoint({-32603}), seed
        assert "Traceback" not in capsys.readouterr().err, seed


@pytest.mark.slow
def test_no_diagnostics_are_stale_after_a_session(tmp_path: Path) -> None:
    for seed in range(SESSIONS):
        chance = random.Random(seed)  # noqa: S311  no secret
        uris = [(tmp_path / name).as_uri() for name in ("a.prompty", "b.prompty", "_p.md", "a.test.yaml")]
        editor = Editor()
        for number in range(1, 30):
            editor.send(make_message(chance, uris, number))
        fresh = Editor()
        for uri, text in editor.server.workspace.texts.items():
            document = {"uri": uri, "languageId": "prompty", "version": 1, "text": text.text}
            fresh.notify("textDocument/didOpen", {"textDocument": document})
        shown = {uri: found for uri, found in editor.diagnostics.items() if found}
        assert shown == {uri: found for uri, found in fresh.diagnostics.items() if found}, seed


def test_a_cancelled_request_is_answered_as_cancelled() -> None:
    stdin, stdout = io.BytesIO(), io.BytesIO()
    document = {"textDocument": {"uri": "untitled:a", "languageId": "prompty", "version": 1, "text": "Hi"}}
    for message in (
        {"id": 0, "method": "initialize", "params": {}},
        {"method": "textDocument/didOpen", "params": document},
        {"id": 1, "method": "textDocument/codeLens", "params": document},
        {"method": "$/cancelRequest", "params": {"id": 1}},
        {"id": 2, "method": "textDocument/codeLens", "params": document},
        {"method": "exit"},
    ):
        write_frame(stdin, message)
    stdin.seek(0)
    assert serve(stdin, stdout, _SlowServer) == 1  # without a shutdown
    stdout.seek(0)
    answers = {}
    while (content := read_message(stdout)) is not None:
        answer = json.loads(content)
        answers[answer.get("id")] = answer
    assert answers[1]["error"]["code"] == -32800
    assert len(answers[2]["result"]) == 3


class _SlowServer(LanguageServer):
    """Starts only after all messages have been read."""

    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        import time  # the thread that reads needs a moment

        time.sleep(0.3)
        return super().initialize(params)
