"""`prompty models`, against a server on loopback."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prompty.providers.profiles import PROFILES
from tests.loopback import Server, event, json_reply, stream

COMMAND = [sys.executable, "-m", "prompty.cli"]
KEY = "a-key-of-the-environment"
LIST = {"object": "list", "data": [{"id": "small"}, {"id": "big \x1b[31mred"}, {"name": "no id"}]}

pytestmark = pytest.mark.process


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.answer(json_reply(LIST))
        yield server


def run(
    *arguments: str | Path, stdin: str = "", cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "PYTHONIOENCODING": "utf-8", "TEST_KEY": KEY, **env}
    return subprocess.run(  # noqa: S603  our own command
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        input=stdin,
        cwd=cwd,
        timeout=60,
        check=False,
    )


def write(folder: Path, connection: str, provider: str = "openai") -> Path:
    file = folder / "a.prompty"
    file.write_text(f"---\nmodel:\n  id: m\n  provider: {provider}\n  connection: {connection}\n---\nuser:\nHi\n")
    return file


def test_providers_lists_every_server_with_its_hosts_and_variables() -> None:
    lines = run("models").stdout.splitlines()
    assert [line.split("  (")[0] for line in lines if not line.startswith(" ")] == [one.name for one in PROFILES]
    start = lines.index("groq  (Groq)")
    assert lines[start + 1 : start + 6] == [
        "    provider: openai",
        "    endpoint: https://api.groq.com/openai/v1",
        "    hosts: api.groq.com",
        "    variables: GROQ_API_KEY, OPENAI_BASE_URL",
        "    apiTypes: chat, responses",
    ]
    assert [one["name"] for one in json.loads(run("models", "--json").stdout)] == [one.name for one in PROFILES]


PATHS = {
    "openai": ("{kind: key, endpoint: '%s/v1', apiKey: '${env:TEST_KEY}'}", "/v1/models"),
    "anthropic": ("{kind: key, endpoint: '%s', apiKey: '${env:TEST_KEY}'}", "/v1/models?limit=1000"),
    "foundry": ("{kind: key, endpoint: '%s', apiKey: '${env:TEST_KEY}'}", "/openai/v1/models"),
    "azure": (
        "{kind: key, endpoint: '%s', apiKey: '${env:TEST_KEY}', apiVersion: '2024-10-21'}",
        "/openai/models?api-version=2024-10-21",
    ),
}


@pytest.mark.parametrize("provider", PATHS)
def test_models_asks_the_server_of_the_file(provider: str, server: Server, tmp_path: Path) -> None:
    connection, path = PATHS[provider]
    done = run("models", write(tmp_path, connection % server.url, provider))
    assert (done.stdout.splitlines(), done.stderr) == (["small", "big \\x1b[31mred"], "")
    (request,) = server.requests
    assert (request.method, request.path, request.content) == ("GET", path, b"")
    assert KEY in str(request.headers)


OLLAMA = 11434  # the port of its profile


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return bool(probe.connect_ex(("127.0.0.1", port)) == 0)


@pytest.mark.skipif(is_taken(OLLAMA), reason="an Ollama is running here")
def test_ollama_lists_its_models_and_talks_without_a_file(tmp_path: Path) -> None:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "llama3.2"}
    texts = [{"index": 0, "delta": {"role": "assistant", "content": text}} for text in ("Hel", "lo.")]
    parts = [event({**chunk, "choices": [choice]}) for choice in texts]
    parts.append(event({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    with Server(OLLAMA) as server:
        server.answer(json_reply(LIST), stream(*parts, b"data: [DONE]\n\n"))
        assert run("models", "ollama").stdout.splitlines()[0] == "small"
        done = run("chat", "-m", "ollama:llama3.2", stdin="Hi\nAgain\n", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Hello.") == 2
    assert [request.path for request in server.requests] == ["/v1/models", *["/v1/chat/completions"] * 2]
    sent = json.loads(server.requests[2].content)
    assert sent["model"] == "llama3.2"
    assert [(message["role"], message["content"]) for message in sent["messages"]] == [
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "Again"),
    ]


def test_a_chat_without_a_file_needs_a_model(tmp_path: Path) -> None:
    done = run("chat", stdin="Hi\n", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "error: there is no model to talk to\n    Name one, or a file: prompty chat -m ollama:llama3.2\n"
    )


def test_models_in_json(server: Server, tmp_path: Path) -> None:
    done = run("models", write(tmp_path, f"{{endpoint: '{server.url}/v1'}}"), "--json")
    listed = json.loads(done.stdout)
    assert [model["id"] for model in listed] == ["small", "big \x1b[31mred"]
    assert listed[0] == {"id": "small", "ends": None, "lifecycle": None, "max_output": None, "capabilities": []}


def test_a_server_without_a_list_is_named_in_the_error(server: Server, tmp_path: Path) -> None:
    file = write(tmp_path, f"{{kind: key, endpoint: '{server.url}/v1', apiKey: '${{env:TEST_KEY}}'}}")
    for answer, cause in (
        (json_reply({"error": {"message": "no route for a-key-of-the-environment"}}, 404), "HTTP 404: no route for"),
        (json_reply({"models": []}), "its answer has no list of models"),
    ):
        server.answer(answer)
        done = run("models", file)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"error: {server.url}/v1 did not say which models it has: {cause}")
        assert KEY not in done.stderr


def test_a_client_of_a_program_cannot_be_asked(tmp_path: Path) -> None:
    done = run("models", write(tmp_path, "{kind: reference, name: mine}"))
    assert done.returncode == 1
    assert "Write an `endpoint:` in the connection of the file." in done.stderr


def test_a_provider_without_a_list_says_so(tmp_path: Path) -> None:
    done = run("models", write(tmp_path, "{endpoint: 'http://localhost'}", "scripted"))
    assert done.returncode == 1
    assert "the provider 'scripted' has no list of models" in done.stderr
