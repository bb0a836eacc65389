"""`prompty run` with inputs of every origin, and with tools, as a person uses it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loopback import Server, json_reply
from tests.terminal import Terminal

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "prompty.cli"]
ASK = """---
name: ask
model: {{id: m, connection: {{kind: anonymous, endpoint: "{url}/v1"}}}}
inputs:
  question: {{kind: string, required: true}}
  tone: {{kind: string, default: kind}}
---
user:
{{{{ tone }}}}: {{{{ question }}}}
"""
ANSWER = json_reply({"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]})
BANK = """---
name: bank
model:
  id: any
  provider: scripted
  script:
    - [{call: look, arguments: {account: ada}}, {call: pay, arguments: {amount: 5}}]
    - Paid.
inputs:
  question: {kind: string, default: Pay my debts}
tools:
  - {name: look, kind: function, parameters: [{name: account, kind: string, required: true}]}
  - {name: pay, kind: function, approvalMode: always, parameters: [{name: amount, kind: integer, required: true}]}
---
user:
{{question}}
"""
TOOLS = """
from prompty import tool

@tool
def look(account: str) -> str:
    return f"{account} owes 5"

@tool
def pay(amount: int) -> str:
    return f"paid {amount}"

@tool
def wipe() -> str:
    return "wiped"
"""


def run(folder: Path, *arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "PYTHONIOENCODING": "utf-8", **env}
    return subprocess.run(  # noqa: S603  our own command
        [*COMMAND, *arguments], input=stdin, capture_output=True, text=True, cwd=folder, env=environment, timeout=90
    )


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        started.answer(ANSWER)
        yield started


@pytest.fixture
def folder(tmp_path: Path, server: Server) -> Path:
    (tmp_path / "ask.prompty").write_text(ASK.format(url=server.url))
    (tmp_path / "bank.prompty").write_text(BANK)
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


def sent(server: Server) -> object:
    return server.requests[-1].body["messages"][-1]["content"]


def test_the_last_argument_is_the_only_required_input(folder: Path, server: Server) -> None:
    done = run(folder, "run", "ask.prompty", "What is a monad?")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Yes.\n", "")
    assert sent(server) == "kind: What is a monad?"


def test_the_last_argument_is_read_like_an_input(folder: Path, server: Server) -> None:
    (folder / "question.txt").write_text("From a file?")
    assert run(folder, "run", "ask.prompty", "@question.txt").returncode == 0
    assert sent(server) == "kind: From a file?"
    server.answer(ANSWER)
    assert run(folder, "run", "ask.prompty", "-", stdin="From a pipe?").returncode == 0
    assert sent(server) == "kind: From a pipe?"


NOT_ONE = {
    "none": (
        "inputs: {a: x, b: y}",
        "no required input is left to set",
        "Set the input by name: -i a=… -i b=….",
    ),
    "no inputs": ("description: none", "the prompt has no inputs", "Remove the last argument."),
    "two": (
        "inputs: {a: {kind: string, required: true}, b: {kind: string, required: true}}",
        "more than one required input has no value: 'a', 'b'",
        "-i a=… -i b=….",
    ),
}


@pytest.mark.parametrize(("inputs", "cause", "fix"), NOT_ONE.values(), ids=NOT_ONE)
def test_a_last_argument_without_exactly_one_input_is_an_error(
    tmp_path: Path, inputs: str, cause: str, fix: str
) -> None:
    (tmp_path / "n.prompty").write_text(f"---\nmodel: m\n{inputs}\n---\nuser:\n{{{{a}}}}{{{{b}}}}\n")
    done = run(tmp_path, "run", "n.prompty", "hello")
    assert done.returncode == 1
    assert f"error: {cause}" in done.stderr
    assert fix in done.stderr


def test_an_input_that_has_a_value_leaves_the_other_for_the_last_argument(tmp_path: Path) -> None:
    inputs = "inputs: {a: {kind: string, required: true}, b: {kind: integer, required: true}}"
    (tmp_path / "n.prompty").write_text(f"---\nmodel: m\n{inputs}\n---\nuser:\n{{{{a}}}} {{{{b + 1}}}}\n")
    assert "── user ──\nx 42" in run(tmp_path, "render", "n.prompty", "41", "-i", "a=x").stdout


def test_the_prompt_comes_from_standard_input(folder: Path, server: Server) -> None:
    done = run(folder, "run", "-", "Hello?", stdin=(folder / "ask.prompty").read_text())
    assert (done.returncode, done.stdout) == (0, "Yes.\n")
    assert sent(server) == "kind: Hello?"


def test_mistakes_in_a_prompt_of_standard_input_are_named_with_their_line(folder: Path) -> None:
    done = run(folder, "run", "-", stdin="---\nmodel: {temperature: hot\n---\nHello")
    assert done.returncode == 1
    assert "<stdin>:" in done.stderr


def test_an_input_of_ten_megabytes_comes_from_standard_input(folder: Path, server: Server) -> None:
    text = "word " * 2_000_000
    done = run(folder, "run", "ask.prompty", "-i", "question=-", stdin=text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Yes.\n", "")
    assert sent(server) == f"kind: {text}"


def test_standard_input_is_read_once(folder: Path) -> None:
    done = run(folder, "run", "-", "-i", "question=-", stdin=(folder / "ask.prompty").read_text())
    assert done.returncode == 1
    assert "standard input is used for the prompt, so the input 'question' cannot be read from it" in done.stderr
    assert "standard input is used for your messages" in run(folder, "chat", "ask.prompty", "-i", "tone=-").stderr


FILES = {"in.json": '{"question": "Why?", "tone": "dry"}', "in.yaml": "question: Why?\ntone: dry\n"}


@pytest.mark.parametrize("name", FILES)
def test_inputs_come_from_a_file_and_options_override_them(folder: Path, server: Server, name: str) -> None:
    (folder / name).write_text(FILES[name])
    assert run(folder, "run", "ask.prompty", "--inputs", name, "-i", "tone=wry").returncode == 0
    assert sent(server) == "wry: Why?"


BAD_FILES = {
    "in.json": ("[1]", "is not a mapping of inputs"),
    "broken.json": ('{"question": ', "cannot be read"),
    "in.yaml": ("a: 1\na: 2\n", "duplicate key"),
    "none.yaml": (None, "cannot be read"),
}


@pytest.mark.parametrize(("name", "text", "cause"), [(name, *rest) for name, rest in BAD_FILES.items()], ids=BAD_FILES)
def test_a_file_without_inputs_is_an_error(folder: Path, name: str, text: str | None, cause: str) -> None:
    if text is not None:
        (folder / name).write_text(text)
    done = run(folder, "run", "ask.prompty", "--inputs", name)
    assert done.returncode == 1
    assert cause in done.stderr
    assert "Traceback" not in done.stderr


def test_the_answer_goes_to_a_file(folder: Path) -> None:
    done = run(folder, "run", "ask.prompty", "Hm?", "--output", "answer.txt")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "wrote answer.txt\n")
    assert (folder / "answer.txt").read_text() == "Yes.\n"


def test_a_file_that_cannot_be_written_is_named_before_the_call(folder: Path, server: Server) -> None:
    done = run(folder, "run", "ask.prompty", "Hm?", "--output", "nowhere/answer.txt")
    assert done.returncode == 1
    assert "'nowhere/answer.txt' cannot be written" in done.stderr
    assert server.requests == []


def test_without_functions_the_calls_are_readable_and_the_option_is_named(folder: Path) -> None:
    done = run(folder, "run", "bank.prompty")
    assert (done.returncode, done.stdout) == (0, 'look {"account":"ada"}\npay {"amount":5}\n')
    assert done.stderr == "not run: look, pay. To run them, add --tools FILE.py with functions of these names.\n"


def test_tools_run_and_what_needs_approval_is_refused_without_a_terminal(folder: Path) -> None:
    done = run(folder, "run", "bank.prompty", "--tools", "tools.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert "not offered, because the file does not declare it: wipe (see --all-tools)\n" in done.stderr
    assert 'pay {"amount":5} needs approval, but standard input is not a terminal.' in done.stderr
    assert "or add --allow pay." in done.stderr
    assert "paid 5" not in done.stderr


def test_calls_of_an_allowed_tool_run_without_a_question(folder: Path) -> None:
    done = run(folder, "run", "bank.prompty", "--tools", "tools.py", "--allow", "pay")
    assert (done.returncode, done.stdout) == (0, "Paid.\n")
    assert "→ pay" in done.stderr
    assert "← pay paid 5" in done.stderr
    streamed = run(folder, "run", "bank.prompty", "--tools", "tools.py", "--allow", "pay", "--stream")
    assert (streamed.returncode, streamed.stdout) == (0, "Paid.\n")
    shown = json.loads(run(folder, "run", "bank.prompty", "--tools", "tools.py", "--allow", "pay", "--json").stdout)
    assert shown["result"] == "Paid."
    assert shown["usage"] == {"input_tokens": 20, "output_tokens": 10}


def test_functions_that_the_file_does_not_declare_need_a_flag(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    script = "script: [{call: wipe}, Clean.]"
    (tmp_path / "p.prompty").write_text(f"---\nmodel: {{id: a, provider: scripted, {script}}}\n---\nuser:\nWipe\n")
    refused = run(tmp_path, "run", "p.prompty", "--tools", "tools.py")
    assert refused.returncode == 1
    assert "the file declares none of the functions in tools.py: look, pay, wipe" in refused.stderr
    assert "or add --all-tools." in refused.stderr
    done = run(tmp_path, "run", "p.prompty", "--tools", "tools.py", "--all-tools")
    assert (done.returncode, done.stdout) == (0, "Clean.\n")
    assert "← wipe wiped" in done.stderr


BROKEN = {
    "syntax": ("def look(:\n", "tools.py:1: invalid syntax"),
    "import": ("\nimport nothing_of_this_name\n", "tools.py:2: ModuleNotFoundError"),
    "no function": ("from prompty import tool\n@tool\ndef look(account: str) -> str: ...\n", "tools.py has no such"),
    "no tools": ("x = 1\n", "'tools.py' has no tools"),
}


@pytest.mark.parametrize(("code", "cause"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_of_functions_is_named_with_its_line(folder: Path, code: str, cause: str) -> None:
    (folder / "tools.py").write_text(code)
    done = run(folder, "run", "bank.prompty", "--tools", "tools.py")
    assert done.returncode == 1
    assert cause in done.stderr
    assert "Traceback" not in done.stderr


def test_a_tool_without_a_function_names_the_option(folder: Path) -> None:
    done = run(folder, "run", "bank.prompty", "--turn")
    assert done.returncode == 1
    assert "Add --tools FILE.py with a function named look." in done.stderr


def test_a_person_approves_calls_on_the_terminal(folder: Path) -> None:
    terminal = Terminal(folder, "run", "bank.prompty", "--tools", "tools.py")
    try:
        asked = terminal.until('allow pay {"amount":5}?')
        assert "paid 5" not in asked
        terminal.type("y")
        terminal.until("← pay paid 5")
        terminal.until("Paid.")
        terminal.until("exit code 0")
    finally:
        terminal.close()


def test_a_person_sees_which_variable_a_call_gets(folder: Path) -> None:
    bound = "{name: pay, kind: function, approvalMode: always, bindings: {key: '${env:BANK_KEY}'}, "
    bound += "parameters: [{name: amount, kind: integer}, {name: key}]}"
    script = "model: {provider: scripted, script: [{call: pay, arguments: {amount: 5}}, Paid.]}"
    (folder / "bound.prompty").write_text(f"---\nname: bound\n{script}\ntools:\n  - {bound}\n---\nuser:\nHi\n")
    (folder / "keys.py").write_text(f"{TOOLS}\n@tool\ndef pay(amount: int, key: str) -> str:\n    return 'paid'\n")
    done = run(folder, "run", "bound.prompty", "--tools", "keys.py", BANK_KEY="hunter2-hunter2")
    assert done.returncode == 1
    assert 'pay {"amount":5,"key":"•••• from BANK_KEY"} needs approval' in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


def test_options_of_the_model_are_json_or_text(folder: Path, server: Server) -> None:
    arguments = ("--option", "temperature=0.5", "--option", 'stopSequences=["x"]', "--option", "maxOutputTokens=7")
    assert run(folder, "run", "ask.prompty", "Hm?", *arguments).returncode == 0
    body = server.requests[-1].body
    assert (body["temperature"], body["stop"], body["max_completion_tokens"]) == (0.5, ["x"], 7)


def test_a_misspelt_option_of_the_model_is_met_with_the_right_one(folder: Path, server: Server) -> None:
    done = run(folder, "run", "ask.prompty", "Hm?", "--option", "temprature=1")
    assert done.returncode == 1
    assert "unknown model option `temprature`" in done.stderr
    assert "Did you mean `temperature`?" in done.stderr
    assert "--option NAME=VALUE" in run(folder, "run", "ask.prompty", "Hm?", "--option", "temperature").stderr
    assert server.requests == []


def test_another_provider_gets_neither_the_connection_nor_the_script_of_the_file(folder: Path, server: Server) -> None:
    server.answer(ANSWER)
    environment = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-test"}
    done = run(folder, "run", "bank.prompty", "--model", "openai:gpt-4o-mini", **environment)
    assert (done.returncode, done.stdout) == (0, "Yes.\n")
    assert "script" not in server.requests[0].body
    assert server.requests[0].body["model"] == "gpt-4o-mini"
    assert run(folder, "run", "ask.prompty", "Hm?", "--model", "llama3:8b").returncode == 0
    assert server.requests[1].body["model"] == "llama3:8b"


def test_a_variable_names_a_model_for_files_without_one(folder: Path, server: Server) -> None:
    server.answer(ANSWER)
    environment = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-test", "PROMPTY_MODEL": "openai:gpt-9"}
    (folder / "bare.prompty").write_text("user:\nHello\n")
    assert run(folder, "run", "bare.prompty", **environment).stdout == "Yes.\n"
    assert run(folder, "run", "ask.prompty", "Hm?", **environment).stdout == "Yes.\n"
    assert [request.body["model"] for request in server.requests] == ["gpt-9", "m"]
