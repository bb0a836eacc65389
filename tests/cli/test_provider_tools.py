"""Tools that the provider runs, on the command line: a prompt from elsewhere needs a word of the user."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.terminal import Terminal

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "prompty.cli"]
PROMPT = """---
model:
  id: m
  provider: scripted
  apiType: responses
  script: [Found.]
tools: [TOOL]
---
user:
Search.
"""
SEARCH, LOOK = "{name: web, kind: web_search}", "{name: look, kind: function}"
OUTSIDE = "is outside the working folder, and has tools that the provider runs: web\n    Add --provider-tools"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder, beside another one."""
    for name in ("work", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "search.prompty").write_text(PROMPT.replace("TOOL", SEARCH))
    (tmp_path / "other" / "look.prompty").write_text(PROMPT.replace("TOOL", LOOK))
    (tmp_path / "work" / "linked.prompty").symlink_to(tmp_path / "other" / "search.prompty")
    return tmp_path / "work"


def run(folder: Path, *arguments: str, text: str = "") -> tuple[int, str, str]:
    done = subprocess.run(  # noqa: S603  our own command
        [*COMMAND, *arguments], cwd=folder, input=text, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def test_a_prompt_in_the_working_folder_uses_them(folder: Path) -> None:
    assert run(folder, "run", "search.prompty")[:2] == (0, "Found.\n")
    code, printed, error = run(folder, "run", "search.prompty", "--no-provider-tools")
    assert (code, printed) == (1, "")
    assert "the tool 'web' runs at the provider, which this call does not allow" in error
    assert "Add --provider-tools" in error


@pytest.mark.parametrize("file", ["../other/search.prompty", "linked.prompty", "-"])
def test_a_prompt_from_elsewhere_is_refused_without_a_terminal(folder: Path, file: str) -> None:
    text = PROMPT.replace("TOOL", SEARCH) if file == "-" else ""
    code, printed, error = run(folder, "run", file, text=text)
    assert (code, printed) == (1, "")
    assert OUTSIDE in error
    assert run(folder, "run", file, "--provider-tools", text=text)[:2] == (0, "Found.\n")


def test_a_prompt_from_elsewhere_without_such_tools_runs(folder: Path) -> None:
    assert run(folder, "run", "../other/look.prompty")[:2] == (0, "Found.\n")


def test_the_other_commands_have_the_same_rule(folder: Path) -> None:
    (folder / "rows.jsonl").write_text("{}\n")
    batch = ("batch", "../other/search.prompty", "rows.jsonl", "--output", "out.jsonl")
    for command in (batch, ("chat", "../other/search.prompty")):
        code, _, error = run(folder, *command)
        assert (code, OUTSIDE in error) == (1, True)


@pytest.mark.parametrize(("answer", "shown"), [("y", "Found."), ("n", "which this call does not allow")])
def test_a_person_is_asked_once(folder: Path, answer: str, shown: str) -> None:
    terminal = Terminal(folder, "run", "../other/search.prompty")
    try:
        terminal.until("Allow them? [y/N]")
        terminal.type(answer)
        terminal.until(shown)
    finally:
        terminal.close()
