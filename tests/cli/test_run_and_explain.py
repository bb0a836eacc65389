"""`prompty run` and `prompty explain`, as a person uses them, against a server on loopback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loopback import Server, event, json_reply, stream

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "prompty.cli"]
CHAT = """---
model:
  id: gpt-4o
  connection: {{kind: key, endpoint: "{url}/v1", apiKey: "${{env:TEST_KEY}}"}}
  options: {{temperature: 0.5, topK: 3, allowMultipleToolCalls: true}}
inputs: {{q: hello}}
tools:
  - name: look_up
    kind: function
    parameters: {{word: {{kind: string, required: true}}, user: {{kind: string}}}}
    bindings: {{user: {{input: q}}, secret: sk-abcdefgh12345678}}
---
system:
Be brief.
user:
{{{{ q }}}}
"""
ANSWER = {
    "id": "1",
    "model": "gpt-4o",
    "choices": [{"message": {"role": "assistant", "content": "Hi \x1b[31mthere"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"word":"x"}'}}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.fixture
def prompt(tmp_path: Path, server: Server) -> Path:
    file = tmp_path / "chat.prompty"
    file.write_text(CHAT.format(url=server.url))
    return file


def run(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "PYTHONIOENCODING": "utf-8", "TEST_KEY": "sk-testtest1234", **env}
    return subprocess.run(  # noqa: S603  our own command
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=60, check=False
    )


def test_run_prints_the_answer_and_nothing_in_it_controls_the_terminal(server: Server, prompt: Path) -> None:
    server.answer(json_reply(ANSWER))
    done = run("run", prompt, "-i", "q=hey")
    assert (done.returncode, done.stdout) == (0, "Hi \\x1b[31mthere\n")
    assert "warning: tools.0.bindings.secret: this looks like a secret" in done.stderr
    assert server.requests[0].body["messages"][1] == {"role": "user", "content": "hey"}
    assert server.requests[0].headers["authorization"] == "Bearer sk-testtest1234"


def test_run_streams(server: Server, prompt: Path) -> None:
    chunks = [{"choices": [{"delta": {"content": text}}]} for text in ("Hi", " there")]
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    server.answer(stream(*map(event, [*chunks, end, "[DONE]"])))
    done = run("run", prompt, "--stream")
    assert (done.returncode, done.stdout) == (0, "Hi there\n")
    assert server.requests[0].body["stream"] is True


def test_run_as_json_has_the_result_and_the_usage(server: Server, prompt: Path) -> None:
    server.answer(json_reply(ANSWER))
    shown = json.loads(run("run", prompt, "--json").stdout)
    assert shown == {
        "result": "Hi \x1b[31mthere",
        "model": "gpt-4o",
        "finishReason": "stop",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }


def test_run_shows_calls_and_takes_another_model(server: Server, prompt: Path) -> None:
    answer = json_reply({"choices": [{"message": {"tool_calls": [CALL]}, "finish_reason": "tool_calls"}]})
    server.answer(answer, answer)
    done = run("run", prompt, "--model", "other")
    assert done.stdout == 'look_up {"word":"x"}\n'
    assert "not run: look_up. To run them, add --tools FILE.py with functions of these names." in done.stderr
    assert server.requests[0].body["model"] == "other"
    shown = json.loads(run("run", prompt, "--json").stdout)
    assert shown["result"] == [{"id": "c1", "name": "look_up", "arguments": '{"word":"x"}'}]


def test_run_tells_of_retries_and_failures_without_a_traceback_or_the_key(server: Server, prompt: Path) -> None:
    busy = json_reply({"error": {"message": "busy sk-testtest1234"}}, 503, {"retry-after": "0"})
    server.answer(busy, json_reply({"error": {"message": "no sk-testtest1234"}}, 400))
    done = run("run", prompt)
    assert done.returncode == 1
    assert "attempt 1 failed" in done.stderr
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
    assert "testtest" not in done.stdout + done.stderr


def test_explain_shows_the_request_and_sends_nothing(server: Server, prompt: Path) -> None:
    done = run("explain", prompt, "-i", "q=hey")
    assert done.returncode == 0
    assert server.accepted == 0
    assert f"── POST {server.url}/v1/chat/completions ──" in done.stdout
    assert "topK: `apiType: chat` of openai has no such option" in done.stdout
    assert "look_up  (function; runs without approval)\n    secret: filled in by the host" in done.stdout
    assert '-H "Authorization: Bearer $OPENAI_API_KEY"' in done.stdout
    assert "sk-" not in done.stdout


def test_explain_as_json_has_the_exact_body(server: Server, prompt: Path) -> None:
    shown = json.loads(run("explain", prompt, "--json", "--stream").stdout)
    server.answer(json_reply({}, 400))
    run("run", prompt, "--stream")
    assert shown["body"] == server.requests[0].body
    assert [(one["name"], one["bound"]) for one in shown["functions"]] == [("look_up", {"secret": [], "user": []})]


def test_explain_for_another_provider(prompt: Path) -> None:
    shown = json.loads(run("explain", prompt, "--json", "--provider", "anthropic", "--model", "claude").stdout)
    assert shown["url"] == "https://api.anthropic.com/v1/messages"
    assert shown["body"]["system"] == "Be brief."
    assert shown["body"]["top_k"] == 3
    assert "x-api-key: $ANTHROPIC_API_KEY" in shown["headers"]


def test_explain_quotes_for_the_shell(prompt: Path, tmp_path: Path) -> None:
    line = json.loads(run("explain", prompt, "--json", "-i", 'q=it\'s $HOME `id` "x"').stdout)["curl"]
    script = f"curl() {{ printf '%s\\0' \"$@\"; }}\n{line}"
    echoed = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)  # noqa: S603  our own line
    body = json.loads(echoed.stdout.split("\0")[-2])
    assert body["messages"][1]["content"] == 'it\'s $HOME `id` "x"'


@pytest.mark.parametrize("api", ["image", "nope"])
def test_an_api_the_provider_does_not_have_is_named_with_those_it_has(prompt: Path, api: str) -> None:
    done = run("explain", prompt, "--provider", "foundry", "--api", api)
    assert done.returncode == 1
    assert "one of chat, responses, embedding" in done.stderr
