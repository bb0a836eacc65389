"""Headers of a file: they go with every request of its model, and to no server that may not get them (F14)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import prompty
from prompty.errors import LoadError, RequestError
from tests import hosted
from tests.hosted import answer
from tests.loopback import Server, json_reply


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def write(folder: Path, endpoint: str, headers: str, provider: str = "anthropic") -> Path:
    connection = f"{{kind: key, endpoint: '{endpoint}', apiKey: k, headers: {headers}}}"
    path = folder / "a.prompty"
    model = [f"  provider: {provider}", "  id: m", "  apiType: responses"] if provider == "openai" else []
    model = model or ["  provider: anthropic", "  id: m"]
    path.write_text("\n".join(["---", "model:", *model, f"  connection: {connection}", "---", "user:", "Hi", ""]))
    return path


@pytest.mark.parametrize("streamed", [False, True])
def test_headers_of_the_file_go_with_every_piece_of_an_answer(server: Server, tmp_path: Path, streamed: bool) -> None:
    server.answer(
        answer("messages", hosted.search(), stop="pause_turn", streamed=streamed),
        answer("messages", hosted.search_result(), hosted.text_block("So."), streamed=streamed),
    )
    path = write(tmp_path, server.url, "{Anthropic-Beta: 'a-2025-01-01,b-2025-01-01'}")
    result = prompty.turn(path, stream=True).result if streamed else prompty.turn(path)
    assert result == "So."
    assert [request.headers["anthropic-beta"] for request in server.requests] == ["a-2025-01-01,b-2025-01-01"] * 2
    assert {request.headers["anthropic-version"] for request in server.requests} != {None}
    assert "anthropic_beta" not in server.requests[0].body


def test_headers_of_the_file_go_with_a_poll(server: Server, tmp_path: Path) -> None:
    server.answer(json_reply(hosted.response(status="queued")), json_reply(hosted.response(hosted.spoken("Done."))))
    assert prompty.turn(write(tmp_path, server.url, "{X-Team: blue}", "openai")) == "Done."
    assert [(request.method, request.headers["x-team"]) for request in server.requests] == [
        ("POST", "blue"),
        ("GET", "blue"),
    ]


def test_a_value_of_the_environment_goes_to_loopback_and_not_to_a_server_that_only_the_file_names(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM", "the-blue-team")
    server.answer(answer("messages", hosted.text_block("So."), streamed=False))
    assert prompty.turn(write(tmp_path, server.url, "{X-Team: '${env:TEAM}'}")) == "So."
    assert server.requests[0].headers["x-team"] == "the-blue-team"
    with pytest.raises(RequestError, match=r"the value of TEAM would go to https://elsewhere\.example"):
        prompty.turn(write(tmp_path, "https://elsewhere.example", "{X-Team: '${env:TEAM}'}"))


def test_a_header_with_a_variable_that_is_not_set_fails_the_call(server: Server, tmp_path: Path) -> None:
    path = write(tmp_path, server.url, "{X-Team: '${env:PROMPTY_TEST_NO_TEAM}'}")
    assert prompty.load(path, missing_env="defer").trust.missing
    with pytest.raises(RequestError, match="PROMPTY_TEST_NO_TEAM"):
        prompty.turn(path)
    assert server.requests == []


@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "Host", "Content-Length", "'a b'", "''"])
def test_a_file_cannot_set_headers_of_the_transport(tmp_path: Path, name: str) -> None:
    with pytest.raises(LoadError, match="header"):
        prompty.load(write(tmp_path, "https://api.anthropic.com", f"{{{name}: x}}"))


def test_a_value_that_is_no_header_is_refused(server: Server, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="the header 'X-Team' of the connection cannot be sent"):
        prompty.turn(write(tmp_path, server.url, '{X-Team: "a\\r\\nX-Other: b"}'))
    assert server.requests == []
