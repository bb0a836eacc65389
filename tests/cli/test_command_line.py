"""What all commands have in common: help, exit codes, tracebacks, colors, completion, and how they are started."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prompty.cli.commands import COMMANDS

pytestmark = pytest.mark.process

MODEL = "{id: m, provider: scripted, script: [Hello.]}"
PROMPT = f"---\nname: hi\nmodel: {MODEL}\n---\nuser:\nHi\n"
COMMAND = [sys.executable, "-m", "prompty"]


def run(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", **env}
    return subprocess.run(  # noqa: S603  our own command
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    file = tmp_path / "hi.prompty"
    file.write_text(PROMPT)
    return file


def test_python_can_start_the_command(prompt: Path) -> None:
    done = run("run", prompt)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello.\n", "")


@pytest.mark.parametrize("command", [[], ["run"], ["trace"], ["trace", "list"]])
def test_help_has_a_short_form(command: list[str]) -> None:
    short, long = run(*command, "-h"), run(*command, "--help")
    assert (short.returncode, short.stdout) == (0, long.stdout)
    assert short.stdout.startswith("Usage: ")


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=["prompty", *COMMANDS])
def test_help_names_values_and_shows_no_types_of_python(command: list[str]) -> None:
    shown = run(*command, "--help").stdout
    assert not re.search(r"<\w+|\{\w+|list\[|\bNone\b", shown)
    assert "\x1b" not in shown


def test_the_help_says_what_exit_codes_mean() -> None:
    assert "Exit codes: 0 for success, 1 if the command failed, 2 if the command line is wrong." in " ".join(
        run("--help").stdout.split()
    )


def test_exit_codes(prompt: Path, tmp_path: Path) -> None:
    assert run("check", prompt).returncode == 0
    assert run("check", tmp_path / "none.prompty").returncode == 1
    assert run("check").returncode == 2
    assert run("check", prompt, "--colour").returncode == 2
    assert run("chek").returncode == 2


def test_a_missing_argument_is_called_as_in_the_help() -> None:
    assert "Missing argument 'FILE'" in run("render").stderr


BROKEN_TOOLS = "import os\nraise RuntimeError('sk-abcdefgh12345678 in my module\\nand a second line')\n"


@pytest.mark.parametrize("position", ["before the command", "after it"])
def test_an_unexpected_exception_is_one_line_and_with_debug_a_traceback(
    position: str, prompt: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN_TOOLS)
    arguments: list[str | Path] = ["chat", prompt, "--tools", tmp_path / "broken.py"]
    done = run(*arguments)
    assert done.returncode == 1
    place, fix = tmp_path / "broken.py", "Fix the file. To see the traceback, add --debug."
    assert done.stderr == f"error: {place}:2: RuntimeError: •••• in my module\n    {fix}\n"
    shown = run("--debug", *arguments) if position == "before the command" else run(*arguments, "--debug")
    assert shown.returncode == 1
    assert "Traceback (most recent call last)" in shown.stderr
    assert "broken.py" in shown.stderr
    assert "sk-abcdefgh" not in shown.stderr


def test_an_error_of_prompty_shows_its_traceback_with_debug(tmp_path: Path) -> None:
    done, shown = (run("render", tmp_path / "no.prompty", *more) for more in ([], ["--debug"]))
    assert "Traceback" not in done.stderr
    assert "Traceback" in shown.stderr
    assert shown.stderr.endswith(done.stderr)


def test_debug_after_two_dashes_is_not_an_option(prompt: Path) -> None:
    assert run("check", prompt, "--", "--debug").returncode == 1  # a file of that name, which does not exist


def test_a_warning_is_printed_without_lines_of_python(tmp_path: Path) -> None:
    file = tmp_path / "old.prompty"
    file.write_text("---\nmodel: {api: chat}\nsample: {q: x}\n---\nuser:\n{{q}}\n")
    done = run("render", file, "-i", "q=x")
    assert "PromptyWarning" not in done.stderr
    assert ".py:" not in done.stderr
    assert "warning: " in done.stderr


@pytest.mark.parametrize("variable", ["NO_COLOR", ""])
def test_colors_are_left_out_if_the_environment_says_so(variable: str, tmp_path: Path) -> None:
    asked = {"FORCE_COLOR": "1", "TERM": "xterm-256color"} | ({variable: "1"} if variable else {})
    shown = run("check", tmp_path / "no.prompty", **asked).stdout
    assert ("\x1b" in shown) is not bool(variable)  # no bold, no dim and no links either


# Completion.


def complete(*words: str) -> list[str]:
    code = "import sys; sys.argv = ['prompty']; from prompty.cli import main; main()"
    env = {"_PROMPTY_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(  # noqa: S603  our own code
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}, check=True, timeout=60
    )
    return done.stdout.split()


def test_commands_and_their_options_are_completed() -> None:
    assert {"render", "run"} <= set(complete("prompty", "r"))
    assert "--strict" in complete("prompty", "check", "--st")
    assert "html" in complete("prompty", "trace", "h")


def test_providers_and_templates_are_completed() -> None:
    assert "ollama:" in complete("prompty", "run", "x.prompty", "--model", "ol")
    assert complete("prompty", "new", "to") == ["tools"]


def test_completing_a_command_imports_none() -> None:
    code = (
        "import sys; from prompty.cli.app import app; from typer.main import get_command; c = get_command(app)\n"
        "context = c.make_context('prompty', [], resilient_parsing=True)\n"
        "found = [item.value for item in c.shell_complete(context, 'ru')]\n"
        "print(*found, *[name for name in sys.modules if name.startswith('prompty.cli')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603  our own code
    words = done.stdout.split()
    assert words[:1] == ["run"]
    assert "prompty.cli.run" not in words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_there_is_a_completion_script_for_each_shell(shell: str) -> None:
    done = run("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0
    assert f"complete_{shell}" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    command = tmp_path / "prompty"
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.argv[0] = 'prompty'\nfrom prompty.cli import main\nmain()\n"
    )
    command.chmod(0o755)
    script = (
        f'PATH="{tmp_path}:$PATH"\n'
        'eval "$(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 prompty --show-completion bash)"\n'
        "COMP_WORDS=(prompty exp); COMP_CWORD=1\n"
        '$(complete -p prompty | sed "s/.*-F \\([^ ]*\\) .*/\\1/") prompty\n'
        'echo "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603  our own script
    assert done.stdout.split() == ["explain"]
