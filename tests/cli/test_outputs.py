"""What the commands say of answers that do not have the declared shape, and of those that a content filter blocked."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from prompty.cli.app import app
from prompty.cli.inputs import StandardInput
from tests.drivers.clients import close_clients
from tests.drivers.unfit import UNFIT, Unfit, fitting
from tests.drivers.wires import Chat
from tests.loopback import Server, json_reply, stream

FILE = """---
model: {{id: m, connection: {{kind: key, endpoint: "{url}/v1", apiKey: the-key-of-a-file}}}}
{outputs}---
user:
Hi
"""
OUTPUTS = "outputs: {name: {kind: string}, age: {kind: integer}}\n"
BLOCKED = "error: The provider's content filter blocked the answer.\n"
FIXES = {
    "text": "add --lenient-outputs",
    "shape": "add --lenient-outputs",
    "cut": "Add --option maxOutputTokens=N.",
    "filtered": "use another model",
    "empty": "use another model",
    "refusal": "use another model",
}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
        close_clients()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr("prompty.cli.chat.STDIN", StandardInput())  # each command has its own
    return tmp_path


def run(server: Server, command: str, *words: str, outputs: str = OUTPUTS) -> Result:
    Path("ask.prompty").write_text(FILE.format(url=server.url, outputs=outputs))
    return CliRunner().invoke(app, [command, "ask.prompty", *words], input="Hello\n")


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("unfit", UNFIT.values(), ids=UNFIT)
def test_an_answer_that_does_not_fit_ends_the_command_with_1(server: Server, unfit: Unfit, streamed: bool) -> None:
    server.answer(unfit.encode(Chat(), streamed=streamed))
    flags = ["--stream"] if streamed else []
    for more in ([], ["--turn"]):
        done = run(server, "run", *flags, *more)
        assert done.exit_code == 1
        assert done.stderr.splitlines()[-2].startswith("error: ")
        assert FIXES[unfit.reason] in done.stderr.splitlines()[-1]
        assert "outputs_mode" not in done.stderr
        assert streamed or done.stdout == ""


def test_a_turn_says_that_it_asks_for_a_correction(server: Server) -> None:
    server.answer(UNFIT["shape"].encode(Chat(), streamed=False), fitting(Chat(), streamed=False))
    done = run(server, "run", "--turn")
    assert (done.exit_code, "Ada" in done.stdout) == (0, True)
    assert "`age` is missing; `years` is not declared; asking the model to correct it" in done.stderr


@pytest.mark.parametrize("reason", ["text", "shape", "cut", "empty"])
def test_a_lenient_command_prints_what_came(server: Server, reason: str) -> None:
    server.answer(UNFIT[reason].encode(Chat(), streamed=False))
    for command in (["run"], ["run", "--turn"]):
        done = run(server, *command, "--lenient-outputs")
        assert done.exit_code == 0
        assert "".join(done.stdout.split()) == "".join(UNFIT[reason].text.split())
    assert len(server.requests) == 2


@pytest.mark.parametrize("flags", [[], ["--json"], ["--output", "out.txt"]], ids=str)
def test_an_answer_that_the_content_filter_blocked_is_explained(server: Server, flags: list[str]) -> None:
    server.answer(UNFIT["filtered"].encode(Chat(), streamed=False))
    done = run(server, "run", *flags, outputs="")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", BLOCKED)
    assert not Path("out.txt").exists()


def test_a_streamed_answer_that_the_content_filter_blocked_is_explained(server: Server) -> None:
    server.answer(UNFIT["filtered"].encode(Chat(), streamed=True))
    done = run(server, "run", "--stream", outputs="")
    assert (done.exit_code, done.stdout.strip(), done.stderr) == (1, "", BLOCKED)


def test_an_answer_that_the_content_filter_ended_is_printed_with_a_warning(server: Server) -> None:
    server.answer(json_reply(Chat().whole("Well, you", "content_filter")))
    done = run(server, "run", outputs="")
    assert (done.exit_code, done.stdout) == (0, "Well, you\n")
    assert done.stderr.startswith("warning: the provider's content filter ended the answer")


@pytest.mark.parametrize(("finish", "code"), [("content_filter", 1), ("stop", 0)])
def test_a_chat_says_why_an_answer_is_empty(server: Server, finish: str, code: int) -> None:
    server.answer(stream(*Chat().stream(finish=finish)))
    done = run(server, "chat", outputs="")
    assert (done.exit_code, BLOCKED in done.stdout) == (code, code == 1)


def test_a_chat_shows_the_correction_and_the_error(server: Server) -> None:
    server.answer(UNFIT["text"].encode(Chat(), streamed=True))
    done = run(server, "chat")
    assert done.exit_code == 1
    assert "asking the model to correct it" in done.stdout
    assert "error: the answer is text" in done.stdout
    assert len(server.requests) == 2


def test_a_lenient_chat_shows_what_came(server: Server) -> None:
    server.answer(UNFIT["text"].encode(Chat(), streamed=True))
    done = run(server, "chat", "--lenient-outputs")
    assert (done.exit_code, UNFIT["text"].text in done.stdout) == (0, True)
    assert len(server.requests) == 1
