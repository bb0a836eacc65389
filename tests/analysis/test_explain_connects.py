"""`explain` and the preview ask no server for a tool's functions, unless `--connect` is written."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from prompty import load
from prompty.analysis.explain import explain
from prompty.cli.app import app
from prompty.tools import openapi
from tests.loopback import Server, json_reply
from tests.lsp.client import Editor

DOCUMENT: Any = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {"/order": {"get": {"operationId": "getOrder", "responses": {"200": {"description": "ok"}}}}},
}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.answer(json_reply(DOCUMENT))
        yield server


@pytest.fixture(params=["openapi", "mcp"])
def prompt(request: pytest.FixtureRequest, tmp_path: Path, server: Server, clean_registry: None) -> Path:
    openapi.allow(hosts=["127.0.0.1"])
    connection = f"connection: {{kind: anonymous, endpoint: '{server.url}/x'}}"
    tools = {
        "openapi": f"{{name: shop, kind: openapi, specification: '{server.url}/spec.json', {connection}}}",
        "mcp": f"{{name: shop, kind: mcp, serverName: shop, {connection}}}",
    }
    file = tmp_path / "a.prompty"
    look = "{name: look, kind: function}"
    file.write_text(
        f"---\nmodel: {{id: m, provider: openai}}\ntools:\n- {look}\n- {tools[request.param]}\n---\nuser:\nHi\n"
    )
    return file


def test_explain_lists_tools_whose_server_is_not_asked(prompt: Path, server: Server) -> None:
    shown = explain(load(prompt))
    assert ([function.name for function in shown.functions], shown.not_asked) == (["look"], ("shop",))
    done = CliRunner().invoke(app, ["explain", str(prompt)])
    assert done.exit_code == 0, done.output
    assert "── not asked ──\nshop: add --connect to ask its server\n" in done.output
    data = json.loads(CliRunner().invoke(app, ["explain", str(prompt), "--json"]).output)
    assert (data["not_asked"], [one["function"]["name"] for one in data["body"]["tools"]]) == (["shop"], ["look"])
    assert server.accepted == 0


def test_explain_asks_if_it_may_connect(prompt: Path, server: Server) -> None:
    done = CliRunner().invoke(app, ["explain", str(prompt), "--connect"])
    assert server.accepted > 0, done.output
    assert "not asked" not in done.output
    if "kind: openapi" in prompt.read_text():
        assert "getOrder  (openapi shop; runs without approval)" in done.output
        shown = explain(load(prompt), connect=True)
        assert ([function.name for function in shown.functions], shown.not_asked) == (["look", "getOrder"], ())


def test_the_preview_asks_no_server(prompt: Path, server: Server) -> None:
    editor = Editor()
    params = {"command": "prompty.preview", "arguments": [editor.open(prompt), {}]}
    shown: Any = editor.request("workspace/executeCommand", params)
    assert shown["request"]["notAsked"] == ["shop"]
    assert [one["function"]["name"] for one in shown["request"]["body"]["tools"]] == ["look"]
    document = editor.request("workspace/textDocumentContent", {"uri": f"prompty-preview:/a.md?{prompt.as_uri()}"})
    assert "`shop` is not asked for its functions" in document["text"]
    assert server.accepted == 0
