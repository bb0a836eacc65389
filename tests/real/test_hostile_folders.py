"""Opening, checking, rendering, testing and formatting a hostile folder starts nothing and connects
nowhere: from the command line, in the language server, and as the extension, a commit hook and the Action do it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.real.seen import Seen, watch

ROOT = Path(__file__).parents[2]
PROMPTY = str(Path(sys.executable).with_name("prompty"))
PROMPT = (
    "---\nname: a\nmodel: {provider: scripted, script: [Hello]}\ninputs: {q: {default: x}}\n---\nuser:\nhi {{ q }}\n"
)
TESTS = "cases:\n- name: a\n  inputs: {q: x}\n  expect: {render: {contains: x}}\n"
SHAPES: dict[str, dict[str, str]] = yaml.safe_load((Path(__file__).parent / "hostile_folders.yaml").read_text())
COMMANDS = {
    "a commit hook": [PROMPTY, "check", "a.prompty", "a.test.yaml"],
    "render": [PROMPTY, "render", "a.prompty"],
    "test": [PROMPTY, "test", "--html", "out.html"],
    "format": [PROMPTY, "migrate", "--check", "."],
    "the extension": [sys.executable, "-I", "-m", "prompty", "lsp"],
    "the Action": ["bash", str(ROOT / ".github" / "test_prompts.sh")],  # check all, and test against HEAD
}
SYSTEM = {
    "bash",
    "cat",
    "mktemp",
    "rm",
    "touch",
    "dirname",
    "env",
    "sed",
    "git",
}  # of the Action's script, and for --against


@pytest.fixture(params=SHAPES.values(), ids=list(SHAPES))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Make a repository with a prompt and its tests, and with what its author hopes that we run."""
    found, mark, program = tmp_path / "folder", tmp_path / "MARK", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    found.mkdir()
    (found / "a.prompty").write_text(PROMPT)
    (found / "a.test.yaml").write_text(TESTS)
    for words in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm x"):
        command = ["git", *words.split()]
        subprocess.run(command, cwd=found, check=True)  # noqa: S603  our own commands
    values = {
        "{run}": str(program),
        "{mark!r}": repr(str(mark)),
        "{away}": "http://127.0.0.1:9",
        "{folder}": str(found),
    }
    for name, content in request.param.items():
        path, text = found / name, content
        for word, value in values.items():
            text = text.replace(word, value)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return found


def open_everything(folder: Path) -> bytes:
    """Return what an editor sends that opens each file, asks for help everywhere, and shows a preview."""
    messages: list[dict[str, object]] = [
        {"id": 1, "method": "initialize", "params": {"rootUri": folder.as_uri(), "capabilities": {}}},
        {"method": "initialized", "params": {}},
    ]
    for file in sorted(folder.rglob("*")):
        if file.name.endswith((".prompty", ".test.yaml")):
            document = {"uri": file.as_uri(), "languageId": "prompty", "version": 1, "text": file.read_text()}
            asked = {"textDocument": {"uri": file.as_uri()}, "position": {"line": 1, "character": 3}}
            preview = {"command": "prompty.preview", "arguments": [file.as_uri(), {"inputs": {}}]}
            messages += [
                {"method": "textDocument/didOpen", "params": {"textDocument": document}},
                {"id": 2, "method": "textDocument/hover", "params": asked},
                {"id": 3, "method": "textDocument/completion", "params": asked},
                {"id": 4, "method": "textDocument/diagnostic", "params": asked},
                {"id": 5, "method": "workspace/executeCommand", "params": preview},
            ]
    messages += [{"id": 6, "method": "shutdown"}, {"method": "exit"}]
    bodies = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
    return b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies)


def test_a_hostile_folder_starts_no_program_and_opens_no_connection(folder: Path, tmp_path: Path) -> None:
    assert len(SHAPES) >= 30
    wrong: dict[str, Seen] = {}
    environment = {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PATH": os.pathsep.join([".", str(Path(sys.executable).parent), os.environ["PATH"]]),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "AGAINST": "HEAD",
    }
    for name, command in COMMANDS.items():
        given = open_everything(folder) if command[-1] == "lsp" else b""
        seen = watch(command, folder, tmp_path / "trace", env=environment, given=given)
        programs = {Path(program).name for program in seen.programs}
        allowed = {Path(sys.executable).name, "prompty", *(SYSTEM if name == "the Action" else ())}
        if programs - allowed or seen.connections:
            wrong[name] = seen
        if (tmp_path / "MARK").exists() or (folder / "RAN").exists() or "Traceback" in seen.output:
            wrong[name] = seen
        if any(Path(program).resolve().is_relative_to(folder) for program in seen.programs):
            wrong[name] = seen
    assert wrong == {}
