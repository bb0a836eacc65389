"""Commands use the variant that `--variant` chooses, with its partials, and `prompty check --list` shows variants."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prompty.cli.app import app
from tests.drivers.wires import Chat
from tests.loopback import Server, json_reply, stream

BASE = """\
---
model:
  provider: scripted
  id: small
  script: [Small.]
inputs:
  question: {kind: string, required: true}
  tone: {kind: string, default: warm}
---
user:
{{ tone }}: {% include "_rules.md" %}: {{ question }}
"""
BIG = """\
---
model:
  id: big
  script: [Big.]
inputs: {tone: null}
---
user:
Loud: {% include "_rules.md" %}: {{ question }}
"""


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    (tmp_path / "answer.prompty").write_text(BASE)
    (tmp_path / "answer.big.prompty").write_text(BIG)
    (tmp_path / "_rules.md").write_text("Be kind")
    (tmp_path / "broken.prompty").write_text("---\nmodel: [\n---\nuser:\nHi\n")
    return tmp_path / "answer.prompty"


def run(*arguments: object, env: dict[str, str] | None = None) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], env=env)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("command", ["render", "explain"])
def test_a_command_that_sends_nothing_uses_the_variant(answer: Path, command: str) -> None:
    assert "Loud: Be kind: hi" in run(command, answer, "hi", "--variant", "big")
    assert "warm: Be kind: hi" in run(command, answer, "hi")
    assert "Loud: Be kind: hi" in run(command, answer, "hi", env={"PROMPTY_VARIANT": "big"})


def test_run_uses_the_variant(answer: Path) -> None:
    assert run("run", answer, "hi", "--variant", "big") == "Big.\n"
    assert run("run", answer, "hi") == "Small.\n"
    assert run("run", answer, "hi", env={"PROMPTY_VARIANT": "big"}) == "Big.\n"


def test_a_mistake_in_a_variant_does_not_stop_another(answer: Path) -> None:
    answer.with_name("answer.bad.prompty").write_text("---\nmodel: {id: [3]}\n---\n")
    assert run("run", answer, "hi", "--variant", "big") == "Big.\n"
    assert run("run", answer, "hi") == "Small.\n"
    done = CliRunner().invoke(app, ["run", str(answer), "hi", "--variant", "bad"])
    assert done.exit_code == 1
    assert "answer.bad.prompty:2" in done.output


def test_batch_uses_the_variant(answer: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("question\nhi\n")
    run("batch", answer, rows, "-o", tmp_path / "out.jsonl", "--variant", "big")
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["result"] == "Big."


@pytest.mark.process
def test_chat_uses_the_variant(answer: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "prompty", "chat", str(answer), "--variant", "big"]
    command += ["--database", str(tmp_path / "talk.db")]
    done = subprocess.run(command, input="hi\n", capture_output=True, text=True, check=True)  # noqa: S603  our own command
    assert "Big." in done.stdout


def test_a_prompt_of_standard_input_has_no_variants() -> None:
    done = CliRunner().invoke(app, ["render", "-", "hi", "--variant", "big"], input=BASE)
    assert done.exit_code == 1
    assert "a prompt from standard input has no variants" in done.output


def test_check_checks_each_combination_of_a_folder_once(answer: Path) -> None:
    answer.with_name("broken.prompty").unlink()
    answer.with_name("answer.de.prompty").write_text("user:\n{{ question }} {{ ton }}\n")
    done = CliRunner().invoke(app, ["check", str(answer.parent), "--json"])
    problems = [(Path(entry["path"]).name, entry["code"]) for entry in json.loads(done.stdout)]
    assert problems == [("answer.de.prompty", "undeclared-variable"), ("answer.prompty", "unused-input")]
    assert run("check", answer, "--variant", "big").splitlines()[-1].endswith("no problems")


def test_a_variant_is_not_portable_and_the_command_that_prints_its_body_is_named(answer: Path) -> None:
    done = CliRunner().invoke(app, ["check", str(answer), "--portable"])
    message = "answer.big.prompty:1:1: warning: other runtimes do not merge this variant with answer.prompty"
    assert message in done.output.replace(f"{answer.parent}/", "").replace("\n", " ")
    assert "prompty render --template" in done.output.replace("\n", " ")


def test_the_body_of_a_variant_is_printed_with_its_partials(answer: Path) -> None:
    (answer.parent / "_rules.md").write_text("Be {{ tone }}.\n")
    answer.with_name("answer.x.prompty").write_text('system:\n{% include "_rules.md" %}\nuser:\n{{ question }}\n')
    assert run("render", answer, "--variant", "x", "--template") == "system:\nBe {{ tone }}.\nuser:\n{{ question }}\n"


def test_list_shows_prompts_variants_models_and_inputs(answer: Path) -> None:
    lines = [line.split() for line in run("check", "--list", answer.parent).splitlines()]
    assert lines[0] == ["answer.prompty", "scripted:small", "question*,", "tone"]
    assert lines[1] == ["big", "scripted:big", "question*"]
    assert lines[2][:3] == ["broken.prompty", "no", "model"]
    entries = json.loads(run("check", "--list", answer.parent, "--json"))
    assert entries[1] == {
        "name": "answer.prompty",
        "variant": "big",
        "inputs": {"question": True},
        "model": "scripted:big",
        "description": "",
        "problem": "",
    }


@pytest.mark.process
def test_every_command_sends_the_same_text(answer: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("question\nhi\n")
    more = {
        "run": ["hi"],
        "batch": [str(rows), "--output", str(tmp_path / "out.jsonl")],
        "chat": ["--database", str(tmp_path / "talk.db")],
    }
    with Server() as server:
        whole = json_reply(Chat().whole("Hello."))
        server.answer(whole, whole, stream(*Chat().stream("Hello.")))
        connection = f"{{kind: key, endpoint: {server.url}, apiKey: sk-none}}"
        head = BIG.replace("model:\n", f"model:\n  provider: openai\n  connection: {connection}\n")
        answer.with_name("answer.big.prompty").write_text(head.replace("script: [Big.]", "script: null"))
        for command, arguments in more.items():
            line = [sys.executable, "-m", "prompty", command, str(answer), *arguments, "--variant", "big"]
            subprocess.run(line, input="hi\n", capture_output=True, text=True, check=True)  # noqa: S603  our own command
        sent = [request.body["messages"] for request in server.requests]
    assert sent == [[{"role": "user", "content": "Loud: Be kind: hi"}]] * 3
    rendered = json.loads(run("render", answer, "hi", "--variant", "big", "--json"))
    assert [message["content"] for message in rendered] == ["Loud: Be kind: hi"]
    explained = json.loads(run("explain", answer, "hi", "--variant", "big", "--json"))
    assert explained["body"]["messages"] == sent[0]
