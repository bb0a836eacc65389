"""Values of `connection.headers` are credentials whatever their names are. No error shows a sensitive input."""

import logging
import traceback
from pathlib import Path

import pytest

from prompty import ModelError, invoke, loads, trace_to
from prompty.analysis.explain import explain
from tests.drivers.wires import Chat
from tests.loopback import Server, json_reply

TEAM, VERSION, INPUT = "planted-team-0003", "planted-beta-0004", "planted-input-0009"


def prompt(url: str) -> str:
    headers = f"headers: {{X-Team: {TEAM}, X-Parts: 'Part {VERSION}'}}"
    return (
        f"---\nname: a\nmodel: {{id: m, connection: {{kind: key, endpoint: '{url}/v1', apiKey: k, {headers}}}}}\n"
        "inputs: {s: {kind: string, sensitive: true}}\n---\nuser:\nHi {{s}}\n"
    )


def assert_hidden(text: str) -> None:
    assert [one for one in (TEAM, VERSION, INPUT) if one in text] == []


def test_explain_and_repr_mask_the_values_of_headers() -> None:
    agent = loads(prompt("http://127.0.0.1:9"))
    shown = explain(agent, {"s": "x"})
    assert "x-team: ••••" in shown.headers
    assert_hidden("".join((*shown.headers, shown.curl, repr(agent), repr(agent.model), str(agent.model.connection))))


@pytest.mark.usefixtures("clean_registry")
def test_a_trace_masks_the_values_of_headers(tmp_path: Path) -> None:
    with Server() as server:
        server.answer(json_reply(Chat().whole(f"{TEAM} {VERSION}")))
        trace_to(f"file:{tmp_path}", capture="wire")
        invoke(loads(prompt(server.url)), {"s": INPUT})
        assert server.requests[0].headers["x-team"] == TEAM
    files = [file.read_text() for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    assert_hidden("".join(files))


def test_errors_mask_what_a_server_echoes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Server() as server:
        message = f"bad: x-team: {TEAM} parts Part {VERSION} body Hi {INPUT}"
        server.answer(json_reply({"error": {"message": message}}, 401))
        with pytest.raises(ModelError) as caught:
            invoke(loads(prompt(server.url)), {"s": INPUT}, max_retries=0)
    assert "bad" in str(caught.value)
    error = caught.value
    assert_hidden(f"{error} {error!r}")
    assert_hidden("".join(traceback.format_exception(error)))
    assert_hidden(caplog.text)
