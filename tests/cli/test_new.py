"""`prompty new`: prompts that run at once, and the commands that it prints."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prompty import check, load
from prompty.cli.new import TEMPLATES
from prompty.providers.facts import read_package_facts
from tests.loopback import Server, json_reply

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "prompty.cli"]
ANSWERS = {
    "chat": "Hello! I am the script in mine.prompty. To ask a real model, add --model.\n",
    "structured": '{\n  "name": "Ada",\n  "age": 36\n}\n',
    "tools": "Take a coat. It is cold in Oslo.\n",
    "vision": "A red circle on a white background.\n",
    "embedding": "[\n  0.12,\n  -0.05,\n  0.33\n]\n",
    "agent-mcp": "You have two tasks. Buy milk, and call Ada.\n",
}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


def run(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "PYTHONIOENCODING": "utf-8", **env}
    return subprocess.run(  # noqa: S603  our own command
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=90,
        stdin=subprocess.DEVNULL,
    )


def printed_commands(text: str) -> list[list[str]]:
    """The commands that `new` prints, without the name of the program."""
    return [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("    prompty ")]


def test_every_template_has_an_answer_here() -> None:
    assert set(ANSWERS) == set(TEMPLATES)


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_printed_commands_answer_without_a_key_and_with_a_real_model(
    template: str, tmp_path: Path, server: Server
) -> None:
    made = run(tmp_path, "new", template, "mine")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.startswith("Created mine.prompty")
    assert check(tmp_path / "mine.prompty") == []
    scripted, hosted, *_ = printed_commands(made.stdout)
    done = run(tmp_path, *scripted)
    assert (done.returncode, done.stdout) == (0, ANSWERS[template])
    assert "error" not in done.stderr
    vector = {"data": [{"index": 0, "embedding": [1.0]}]}
    text = json.dumps({"name": "Bob", "age": 7}) if template == "structured" else "A real answer."
    message = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    server.answer(json_reply(vector if template == "embedding" else message))
    asked = run(tmp_path, *hosted, OPENAI_BASE_URL=f"{server.url}/v1", OPENAI_API_KEY="sk-test")
    assert (asked.returncode, asked.stderr) == (0, "")
    [request] = server.requests
    default = read_package_facts()["choices"]["default_model_openai"]
    assert request.body["model"] == (TEMPLATES[template].hosted or f"openai:{default}").partition(":")[2]
    assert "script" not in request.body
    if template in ("tools", "agent-mcp"):
        assert request.body["tools"]
    if template == "vision":
        assert "data:image/png;base64," in json.dumps(request.body)


def test_the_first_template_is_chat_and_its_name_is_that_of_the_file(tmp_path: Path) -> None:
    assert run(tmp_path, "new").returncode == 0
    assert load(tmp_path / "chat.prompty").name == "chat"
    (tmp_path / "sub").mkdir()
    assert "prompty run sub/ask.prompty" in run(tmp_path, "new", "chat", "sub/ask.prompty").stdout
    assert load(tmp_path / "sub" / "ask.prompty").name == "ask"


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("mine")
    done = run(tmp_path, "new", "tools")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: tools.py already exists\n    Choose another name: prompty new tools NAME.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["tools.py"]
    assert (tmp_path / "tools.py").read_text() == "mine"


def test_a_link_that_leads_nowhere_is_not_written_through(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "tools.py").symlink_to(tmp_path / "outside")
    done = run(folder, "new", "tools")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: tools.py already exists\n    Choose another name: prompty new tools NAME.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["app"]
    assert [path.name for path in folder.iterdir()] == ["tools.py"]


WRONG = {
    "template": (("chatt",), "Did you mean `chat`?"),
    "folder": (("chat", "none/x"), "there is no folder 'none'"),
    "name": (("chat", "a b"), "'a b' is not a valid prompt name"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_named_with_the_fix(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run(tmp_path, "new", *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_prompt_with_a_server_says_which_option_names_it(tmp_path: Path) -> None:
    run(tmp_path, "new", "agent-mcp")
    done = run(tmp_path, "run", "agent-mcp.prompty", "What is left?")
    assert done.returncode == 1
    assert "Add --mcp FILE.json" in done.stderr
    assert "register_mcp_server" not in done.stderr
