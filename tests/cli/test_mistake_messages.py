"""What people read after a common mistake, on the command line and in Python: the exact messages.

The messages are in `mistakes.txt`. After a deliberate change, run the tests with PROMPTY_WRITE_MISTAKES=1 and read the
difference: a message names the place, the cause and a fix in the terms of its reader.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import prompty
from prompty.cli.app import app
from prompty.errors import PromptyError
from tests.drivers.clients import close_clients
from tests.drivers.conftest import short_waits as short_waits
from tests.loopback import Hold, Server, json_reply, reply

SNAPSHOTS = Path(__file__).with_name("mistakes.txt")
WRITE = bool(os.environ.get("PROMPTY_WRITE_MISTAKES"))

SCRIPTED = "{id: m, provider: scripted, script: [Hi]}"
HEAD = f"---\nname: shop\nmodel: {SCRIPTED}\n"
BODY = "---\nuser:\nHello\n"
REMOTE = "---\nmodel: {id: m, connection: {kind: key, apiKey: a-key-of-the-file, endpoint: '%s'}}\n" + BODY
INPUTS = (
    HEAD + "inputs:\n  q: {kind: string, required: true}\n  n: {kind: integer}\n  b: {kind: boolean}\n"
    "  e: {kind: string, enumValues: [a, b]}\n---\nuser:\n{{q}}{{n}}{{b}}{{e}}\n"
)
CALL = "{call: look, arguments: {}}"
TOOL = (
    "---\nname: shop\nmodel: {id: m, provider: scripted, script: [" + CALL + ", Hi]}\n"
    "tools:\n  - {name: look, kind: function}\n" + BODY
)

# Name: the file, and the arguments of the command.
FILES: dict[str, tuple[str, list[str]]] = {
    "3 misspelt keys": ("---\nmodell: gpt-4\ninput: x\n" + BODY, ["run"]),
    "4 an option at the top": (HEAD + "temperature: 1\n" + BODY, ["run"]),
    "5 a key under model": (
        "---\nmodel: {id: m, apiKey: a-secret-value, endpoint: 'https://x.example'}\n" + BODY,
        ["check"],
    ),
    "7 a missing input": (INPUTS, ["run"]),
    "8 a misspelt role": (HEAD + "---\nsytem:\nBe kind.\nuser:\nHi\n", ["run"]),
    "9 a fraction for an integer": (INPUTS, ["run", "-i", "q=x", "-i", "n=3.5"]),
    "9 a word for an integer": (INPUTS, ["run", "-i", "q=x", "-i", "n=abc"]),
    "9 a value outside of enumValues": (INPUTS, ["run", "-i", "q=x", "-i", "e=z"]),
    "10 an unknown input": (INPUTS, ["run", "-i", "q=x", "-i", "qq=3"]),
    "11 an undeclared variable": (HEAD + "---\nuser:\nHi {{typo}}\n", ["run"]),
    "12 a default of the wrong kind": (
        HEAD + "inputs: {n: {kind: integer, default: abc}}\n---\nuser:\n{{n}}\n",
        ["run"],
    ),
    "13 a kind as the default": (HEAD + "inputs: {q: string}\n---\nuser:\n{{q}}\n", ["run"]),
    "14 a JSON Schema as parameters": (
        HEAD
        + "tools:\n  - {name: f, kind: function, parameters: {type: object, properties: {a: {type: string}}}}\n"
        + BODY,
        ["check"],
    ),
    "15 an input of v1": (HEAD + "inputs: {q: {type: string}}\n---\nuser:\nHi {{q}}\n", ["run", "-i", "q=Jane"]),
    "16 a file of v1": (
        "---\nmodel:\n  api: chat\n  configuration: {type: azure_openai, azure_endpoint: '${env:NOT_SET}'}\n"
        "inputs: {q: {type: string}}\n---\nuser:\n{{q}}\n",
        ["run", "-i", "q=Jane"],
    ),
    "19 a wrong key": (REMOTE, ["run"]),
    "20 a server that is not there": (REMOTE % "http://127.0.0.1:9/v1", ["run"]),
    "21 an endpoint without a scheme": (REMOTE % "localhost:8080/v1", ["run"]),
    "23 a page of a gateway": (REMOTE, ["run"]),
    "24 a path that is not there": (REMOTE, ["run"]),
    "25 a tool without a function": (TOOL, ["run", "--turn"]),
    "27 a tool that raises": (TOOL, ["run", "--tools", "raising.py"]),
    "28 tools with a syntax error": (TOOL, ["run", "--tools", "broken.py"]),
    "29 a broken template": (HEAD + "---\nuser:\n{% if x %}\n", ["run"]),
    "30 an unknown filter": (HEAD + "---\nuser:\n{{ 'a'|uper }}\n", ["run"]),
    "31 an include": (HEAD + "---\nuser:\n{% include 'part.txt' %}\n", ["run"]),
    "32 no file": ("", ["run"]),
    "34 an empty file": (" \n", ["run"]),
    "34 no key": ("---\nmodel: gpt-6-luna\n" + BODY, ["run"]),
    "35 an unknown provider": ("---\nmodel: {id: m, provider: opnai}\n" + BODY, ["check"]),
    "35 an unknown tool kind": (HEAD + "tools:\n  - {name: f, kind: fuction}\n" + BODY, ["check"]),
    "37 a folder without prompts": ("", ["check"]),
    "38 yes for a boolean": (INPUTS, ["run", "-i", "q=x", "-i", "b=yes"]),
    "38 a word for a boolean": (INPUTS, ["run", "-i", "q=x", "-i", "b=maybe"]),
    "51 a key of the environment for any server": (
        "---\nmodel: {id: m, connection: {apiKey: '${env:A_KEY}', endpoint: 'https://models.example'}}\n" + BODY,
        ["run"],
    ),
    "45 an error in a chat that reads a pipe": (REMOTE % "http://127.0.0.1:9/v1", ["chat"]),
    "41 an answer that was cut": (REMOTE.replace(BODY, "outputs: {a: {kind: string}}\n" + BODY), ["run"]),
    "8 text after a role": (HEAD + "---\nUser: hello\n", ["check"]),
    "21 an endpoint without a scheme, checked": (REMOTE % "127.0.0.1:8898/v1", ["check"]),
    "52 messages in the frontmatter": (
        HEAD + "messages:\n  - {role: system, content: Be kind.}\n---\n",
        ["run"],
    ),
    "52 a system prompt in the frontmatter": (HEAD + "system_prompt: Be kind.\n---\n", ["run"]),
    "53 a file in a fence": ("```yaml\n" + HEAD + BODY + "```\n", ["run"]),
    "54 headings as roles": (HEAD + "---\n## System\nBe kind.\n\n## User\nHello\n", ["run"]),
    "54 tags as roles": (HEAD + "---\n<system>\nBe kind.\n</system>\n", ["check"]),
    "55 required names as in a JSON Schema": (
        HEAD + "inputs:\n  required: [q]\n  q: {kind: string}\n---\nuser:\n{{q}}\n",
        ["run", "-i", "q=x"],
    ),
    "56 single braces": (HEAD + "inputs: {q: {kind: string}}\n---\nuser:\n{ q }\n", ["check"]),
    "56 one brace too few": (HEAD + "inputs: {q: {kind: string}}\n---\nuser:\n{{ q }\n", ["check"]),
    "56 one brace too many": (HEAD + "inputs: {q: {kind: string}}\n---\nuser:\n{{{q}}}\n", ["check"]),
    "57 a tool of OpenAI": (
        HEAD + "tools:\n  - type: function\n    function: {name: look, parameters: {type: object}}\n" + BODY,
        ["check"],
    ),
    "63 a page with status 200": (REMOTE, ["run"]),
    "64 no choices": (REMOTE, ["run"]),
    "65 no answer in time": (REMOTE, ["run", "--timeout", "0.2"]),
    "65 no time at all": (HEAD + BODY, ["run", "--timeout", "0"]),
    "66 too many rounds": (
        "---\nname: shop\nmodel: {id: m, provider: scripted, script: ["
        + ", ".join([CALL] * 12)
        + "]}\ntools:\n  - {name: look, kind: function}\n"
        + BODY,
        ["run", "--tools", "looking.py"],
    ),
    "58 keys of other formats in an input": (
        HEAD + "inputs: {q: {kind: integer, optional: true, min: 3}}\n---\nuser:\n{{q}}\n",
        ["check"],
    ),
}
# The same for commands whose arguments are not the name of one file.
COMMANDS: dict[str, tuple[str, list[str]]] = {
    "32 a name that is almost right": (HEAD + BODY, ["run", "shp.prompty"]),
    "32 a path of Windows": ("", ["run", "prompts\\shop.prompty"]),
    "32 a folder": ("", ["run", "."]),
    "59 a misspelt provider": (HEAD + BODY, ["run", "shop.prompty", "--model", "opnai:gpt-5"]),
    "60 no rows": (INPUTS, ["batch", "shop.prompty", "rows.csv", "-o", "out.jsonl"]),
    "60 a column with another name": (INPUTS, ["batch", "shop.prompty", "questions.csv", "-o", "out.jsonl"]),
    "60 results as CSV": (INPUTS, ["batch", "shop.prompty", "questions.csv", "-o", "out.csv"]),
    "61 models of nobody": ("", ["models", "olama"]),
    "62 an answer in a folder that is not there": (HEAD + BODY, ["run", "shop.prompty", "-o", "no/answer.txt"]),
}
REPLIES = {
    "63 a page with status 200": reply(
        b"<html><h1>Welcome to nginx!</h1></html>", headers={"content-type": "text/html"}
    ),
    "64 no choices": json_reply({"object": "chat.completion", "model": "m"}),
    "65 no answer in time": [Hold()],
    "24 a path that is not there": json_reply({"error": {"message": "Not Found"}}, 404),
    "19 a wrong key": json_reply({"error": {"message": "Incorrect API key provided: a-key-of-the-file"}}, 401),
    "23 a page of a gateway": json_reply("<html><h1>502 Bad Gateway</h1></html>", 400),
    "41 an answer that was cut": json_reply(
        {"choices": [{"message": {"content": '{"a": "b'}, "finish_reason": "length"}], "model": "m"}
    ),
}


def _invoke(path: str, **inputs: object) -> object:
    return prompty.invoke(path, inputs, max_retries=0)


PYTHON: dict[str, tuple[str, Callable[[str], object]]] = {
    "7 a missing input": (INPUTS, _invoke),
    "9 a word for an integer": (INPUTS, lambda path: _invoke(path, q="x", n="abc")),
    "9 a value outside of enumValues": (INPUTS, lambda path: _invoke(path, q="x", e="z")),
    "10 an unknown input": (INPUTS, lambda path: _invoke(path, q="x", qq="3")),
    "12 a default of the wrong kind": (FILES["12 a default of the wrong kind"][0], _invoke),
    "19 a wrong key": (REMOTE, _invoke),
    "20 a server that is not there": (REMOTE % "http://127.0.0.1:9/v1", _invoke),
    "21 an endpoint without a scheme": (REMOTE % "localhost:8080/v1", _invoke),
    "25 a tool without a function": (TOOL, lambda path: prompty.turn(path)),
    "29 a broken template": (FILES["29 a broken template"][0], _invoke),
    "31 an include": (FILES["31 an include"][0], _invoke),
    "32 no file": ("", _invoke),
    "33 load with the text of a prompt": ("", lambda _: prompty.load(HEAD + BODY)),
    "34 no key": ("---\nmodel: gpt-6-luna\n" + BODY, _invoke),
    "35 an unknown provider": (FILES["35 an unknown provider"][0], _invoke),
    "39 inputs that are text": (INPUTS, lambda path: prompty.invoke(path, "x")),  # type: ignore[call-overload]  # the mistake under test
    "39 a function for tools": (TOOL, lambda path: prompty.turn(path, tools=_invoke)),  # type: ignore[call-overload]  # likewise the mistake
    "39 bytes": ("", lambda _: prompty.loads(b"user:\nHi")),  # type: ignore[arg-type]  # likewise the mistake
    "39 an input as an option": (INPUTS, lambda path: prompty.invoke(path, q="x")),  # type: ignore[call-overload]  # likewise the mistake
    "43 a gate that returns no list": (
        TOOL.replace("kind: function}", "kind: function, approvalMode: always}"),
        lambda path: prompty.turn(path, tools={"look": lambda: "seen"}, gate=lambda _: True),
    ),
    "32 a name that is almost right": (HEAD + BODY, lambda _: prompty.load("shp.prompty")),
    "33 loads with a path": (HEAD + BODY, prompty.loads),
    "59 a misspelt provider": (HEAD + BODY, lambda path: prompty.invoke(path, model="opnai:gpt-5")),
    "66 too many rounds": (
        FILES["66 too many rounds"][0],
        lambda path: prompty.turn(path, tools={"look": lambda: "x"}),
    ),
    "67 tools for invoke": (TOOL, lambda path: prompty.invoke(path, tools=[_invoke])),  # type: ignore[call-overload]  # likewise the mistake
    "67 a model option for invoke": (HEAD + BODY, lambda path: prompty.invoke(path, temperature=0.2)),  # type: ignore[call-overload]  # likewise the mistake
    "67 a keyword of another runtime": (HEAD + BODY, lambda path: prompty.turn(path, target_type=dict)),  # type: ignore[call-overload]  # likewise the mistake
    "41 an answer that was cut": (
        FILES["41 an answer that was cut"][0],
        lambda path: prompty.invoke(path, output_type=dict),
    ),
}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
        close_clients()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "PROMPTY_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("A_KEY", "a-key-of-the-file-or-not")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("from prompty import tool\n\n@tool\ndef look(: ...\n")
    (tmp_path / "raising.py").write_text("from prompty import tool\n\n@tool\ndef look():\n    return {}['key']\n")
    (tmp_path / "looking.py").write_text("from prompty import tool\n\n@tool\ndef look():\n    return 'x'\n")
    (tmp_path / "questions.csv").write_text("question\nWhy?\n")
    (tmp_path / "folder").mkdir()
    return tmp_path


def prepare(name: str, text: str, server: Server, folder: Path) -> str:
    path = "folder" if name.startswith("37") else "shop.prompty"
    if name in REPLIES:
        server.answer(REPLIES[name])
        text = text % f"{server.url}/v1"
    if text:
        (folder / path).write_text(text)
    return path


def read_snapshots() -> dict[str, str]:
    parts = re.split(r"^== (.*)\n", SNAPSHOTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def compare(title: str, message: str, server: Server, folder: Path) -> None:
    for found, stands in ((server.url, "{url}"), (f"{folder}/", "{folder}/"), (str(folder), "{folder}")):
        message = message.replace(found, stands)
    message = re.sub(r"retrying in [\d.]+ s|(?<=\[Errno )\d+", "…", message)
    message = f"{message.strip()}\n\n"
    snapshots = read_snapshots() if SNAPSHOTS.exists() else {}
    if WRITE:
        snapshots[title] = message
        text = "".join(f"== {name}\n{snapshots[name]}" for name in sorted(snapshots, key=_order))
        SNAPSHOTS.write_text(text, encoding="utf-8")
    assert snapshots.get(title) == message
    assert "a-key-of-the-file" not in message


def _order(title: str) -> tuple[int, str]:
    number = re.search(r"\d+", title)
    return int(number[0]) if number else 0, title


def run_command(*arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments], input="Hello\n")


@pytest.mark.parametrize("name", FILES)
def test_a_mistake_on_the_command_line(name: str, server: Server, folder: Path) -> None:
    text, (command, *arguments) = FILES[name]
    done = run_command(command, prepare(name, text, server, folder), *arguments)
    compare(f"{name} (command line)", f"{done.output}\nexit code {done.exit_code}", server, folder)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_mistake_in_the_arguments_of_a_command(name: str, server: Server, folder: Path) -> None:
    text, arguments = COMMANDS[name]
    prepare(name, text, server, folder)
    done = run_command(*arguments)
    shown = done.output if done.exception is None or done.exit_code != 1 or done.output else repr(done.exception)
    compare(f"{name} (command line)", f"{shown}\nexit code {done.exit_code}", server, folder)


@pytest.mark.parametrize("name", PYTHON)
def test_a_mistake_in_python(name: str, server: Server, folder: Path) -> None:
    text, call = PYTHON[name]
    path = prepare(name, text, server, folder)
    with pytest.raises((PromptyError, TypeError)) as caught:
        call(path)
    compare(f"{name} (Python)", f"{type(caught.value).__name__}: {caught.value}", server, folder)


CODE_IN_ADVICE = re.compile(
    r"\b(?:invoke|turn|load|loads|run|resume|batch|register\w*|prompty\.\w+)\(|inputs=\{|\btools=|\w+=\["
)


def test_no_message_of_the_command_line_suggests_python() -> None:
    shown = {title: text for title, text in read_snapshots().items() if title.endswith("(command line)")}
    assert len(shown) == len(FILES) + len(COMMANDS)
    assert {title: found[0] for title, text in shown.items() if (found := CODE_IN_ADVICE.search(text))} == {}
