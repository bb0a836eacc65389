"""The server shows what `prompty check` prints: the same codes at the same places, for a hundred files."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from prompty.cli.app import app
from prompty.errors import Problem
from tests.lsp.client import PULLING, Editor, Process
from tests.lsp.corpus import BROKEN, RIGHT, SAMPLES, Sample, to_protocol


def order(problems: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(problem, sort_keys=True) for problem in problems)


def check_on_the_command_line(file: Path) -> list[dict[str, Any]]:
    printed = json.loads(CliRunner().invoke(app, ["check", "--json", str(file)]).stdout)
    return [
        to_protocol(Problem(**{key: value for key, value in problem.items() if key != "url"} | {"edits": ()}))
        for problem in printed
    ]


def show(diagnostics: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {"file": uri.rpartition("/")[2], "code": one["code"], "range": one["range"]}
        for uri, shown in diagnostics.items()
        for one in shown
    ]


def test_there_are_sixty_broken_and_forty_right_files() -> None:
    assert (len(BROKEN) >= 60, len(RIGHT)) == (True, 40)


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_the_server_agrees_with_the_command_line(sample: Sample, tmp_path: Path) -> None:
    file = sample.write(tmp_path)
    expected = check_on_the_command_line(file)
    assert bool(expected) == (sample in BROKEN.values())
    editor = Editor()
    uri = editor.open(file)
    assert order(show(editor.diagnostics)) == order(expected)
    pulling = Editor(PULLING)
    assert pulling.open(file) == uri
    pulled = pulling.request("textDocument/diagnostic", {"textDocument": {"uri": uri}})["items"]
    assert order(show({**pulling.diagnostics, uri: pulled})) == order(expected)


@pytest.mark.process
def test_a_server_process_agrees_with_the_command_line(tmp_path: Path) -> None:
    server = Process(tmp_path)
    try:
        server.request("initialize", {"capabilities": {}})
        server.notify("initialized", {})
        for number, sample in enumerate(BROKEN.values()):
            file = sample.write(tmp_path / str(number))
            document = {"uri": file.as_uri(), "languageId": "prompty", "version": 1, "text": file.read_bytes().decode()}
            server.notify("textDocument/didOpen", {"textDocument": document})
            own = [one for one in check_on_the_command_line(file) if one["file"] == file.name]
            if own:
                assert order(show({file.as_uri(): server.wait_for_diagnostics(file.as_uri())})) == order(own)
    finally:
        assert server.stop() == 0
