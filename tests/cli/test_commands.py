"""The command line as a person uses it: a real process, its output and its exit code."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prompty.cli.app import app

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "prompty.cli"]


def run(*arguments: str | Path, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "PYTHONIOENCODING": "utf-8", **env}
    return subprocess.run(  # noqa: S603  our own command
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=60,
        check=False,
    )


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "good.prompty"
    file.write_text(
        "---\nmodel: gpt-6-luna\ninputs:\n  who: {kind: string, required: true}\n---\n"
        "system:\nBe kind.\n\nuser:\nHello {{ who }}\n"
    )
    return file


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    file = tmp_path / "bad.prompty"
    file.write_text("---\nmodle: gpt-4\nmodel:\n  options:\n    temperature: hot\n---\nuser:\n\x1b[31m{{ x }}\u202e\n")
    return file


def test_check_of_a_good_file_says_so_and_exits_with_0(good: Path) -> None:
    done = run("check", good)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 file: no problems\n", "")


def test_check_of_a_folder_reads_test_files_of_any_name(good: Path) -> None:
    (good.parent / "more").mkdir()
    for number, tests in enumerate((good.parent / "other.test.yaml", good.parent / "more" / "deep.test.yml"), 1):
        tests.write_text("prompt: good.prompty\ncases:\n  - expct: {}\n")
        for files in ([good.parent], [good.parent, tests]):
            done = run("check", *files)
            assert done.returncode == 1
            assert done.stdout.count("cases.0.expct: unknown key `expct`") == number
            assert done.stdout.endswith(f"{number + 1} files: {number} error{'s' * (number > 1)}, 0 warnings\n")


def test_check_shows_place_severity_line_and_fix_and_exits_with_1(bad: Path) -> None:
    done = run("check", bad)
    assert done.returncode == 1
    assert f"{bad}:2:1: warning: modle: unknown key `modle`\n    modle: gpt-4\n    Did you mean `model`?" in done.stdout
    assert f"{bad}:5:18: error: model.options.temperature: expected a number, found `hot`" in done.stdout
    assert f"{bad}:8:9: warning: the variable `x` is not declared under `inputs`" in done.stdout
    assert done.stdout.endswith("1 file: 1 error, 2 warnings\n")


def test_warnings_alone_exit_with_0(tmp_path: Path) -> None:
    (tmp_path / "w.prompty").write_text("Hello {{ x }}")
    done = run("check", tmp_path / "w.prompty")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 file: 0 errors, 1 warning")


def test_check_takes_files_and_folders(good: Path, bad: Path) -> None:
    done = run("check", good.parent, good)
    assert done.stdout.endswith("3 files: 1 error, 2 warnings\n")
    assert run("check", good.parent / "nope.prompty").returncode == 1
    assert bad.exists()


def test_check_also_checks_test_files(good: Path) -> None:
    tests = good.with_name("good.test.yaml")
    tests.write_text("cases:\n  - inputs: {who: Ada}\n    expext: {render: {contains: Ada}}\n")
    for named in (good, good.parent, tests):
        done = run("check", named)
        assert done.returncode == 1
        assert f"{tests}:3:5: error: cases.0.expext: unknown key `expext`" in done.stdout
        assert "Write `expect`." in done.stdout
    assert run("check", tests).stdout.endswith("1 file: 1 error, 0 warnings\n")
    assert run("check", good).stdout.endswith("2 files: 1 error, 0 warnings\n")


def test_check_of_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    done = run("check", tmp_path)
    assert done.returncode == 1
    assert "has no .prompty files" in done.stderr


def test_check_fails_on_warnings_if_it_is_strict(tmp_path: Path) -> None:
    file = tmp_path / "a.prompty"
    file.write_text("---\nmodel: gpt-6-luna\ndescripton: x\n---\nuser:\nHi\n")
    assert (run("check", file).returncode, run("check", "--strict", file).returncode) == (0, 1)


def test_explain_says_when_a_call_needs_approval_and_check_does_not(tmp_path: Path) -> None:
    file = tmp_path / "bank.prompty"
    tools = ["{name: look, kind: function}", "{name: pay, kind: function, approvalMode: always}"]
    amount = "parameters: [{name: amount, kind: integer}]"
    tools.append(f"{{name: give, kind: function, {amount}, approvalMode: {{when: {{amount: {{minimum: 100}}}}}}}}")
    file.write_text("---\nmodel: house-model\ntools:\n" + "".join(f"  - {one}\n" for one in tools) + "---\nuser:\nHi\n")
    done = run("explain", file)
    assert re.findall(r"^(\w+)  \(function; (.*)\)$", done.stdout, re.MULTILINE) == [
        ("look", "runs without approval"),
        ("pay", "needs approval"),
        ("give", "needs approval for some values of amount"),
    ]
    assert run("check", file).stdout == "1 file: no problems\n"


def test_check_of_a_portable_file_warns_of_what_other_runtimes_do_not_read(tmp_path: Path) -> None:
    file = tmp_path / "p.prompty"
    file.write_text("---\nmodel: gpt-6-luna\ninputs: {q: {kind: string, sensitive: true}}\n---\n{{q}}")
    assert "1 file: no problems" in run("check", file).stdout
    done = run("check", "--portable", file)
    assert "only this runtime reads `sensitive`" in done.stdout + done.stderr
    assert done.returncode == 0


def test_check_as_json_is_for_tools(bad: Path) -> None:
    done = run("check", bad, "--json")
    problems = json.loads(done.stdout)
    assert done.returncode == 1
    assert [(problem["code"], problem["line"], problem["column"]) for problem in problems] == [
        ("unknown-key", 2, 1),
        ("wrong-value", 5, 18),
        ("undeclared-variable", 8, 9),
    ]
    described = {"code", "message", "fix", "path", "key", "text", "severity", "edits"}
    assert set(problems[0]) == described | {"line", "column", "end_line", "end_column"}
    bad.write_text("---\nmodle: gpt-4\n---\n")
    [problem] = json.loads(run("check", bad, "--json").stdout)
    assert problem["edits"] == [{"line": 2, "column": 1, "end_line": 2, "end_column": 6, "text": "model"}]


def test_a_problem_links_to_the_site_once_there_is_one(bad: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prompty.errors.SITE", "https://docs.example/")
    [problem, *_] = json.loads(CliRunner().invoke(app, ["check", str(bad), "--json"]).output)
    assert problem["url"] == "https://docs.example/reference/problems/#unknown-key"


def test_nothing_in_a_file_controls_the_terminal(bad: Path, tmp_path: Path) -> None:
    file = tmp_path / "escape.prompty"
    file.write_text("---\ninputs: {x: a}\n---\nuser:\n\x1b[31m{{ x }}\u202e{{ y }}\n")
    for done in (run("render", file), run("check", file, bad)):
        assert "\x1b" not in done.stdout
        assert "\u202e" not in done.stdout
        assert "\\x1b[31m" in done.stdout


def test_render_shows_the_messages(good: Path) -> None:
    done = run("render", good, "-i", "who=Ada")
    assert (done.returncode, done.stdout) == (0, "── system ──\nBe kind.\n\n── user ──\nHello Ada\n\n")


def test_render_as_json(good: Path) -> None:
    messages = json.loads(run("render", good, "-i", "who=[b]Ada[/b]", "--json").stdout)
    assert messages[1] == {"role": "user", "content": "Hello [b]Ada[/b]"}


def test_render_keeps_markup_and_long_lines_as_they_are(good: Path) -> None:
    said = "[bold]:smile: http://x " + "word " * 100
    assert f"Hello {said.strip()}" in run("render", good, "-i", f"who={said}", COLUMNS="40").stdout


def test_a_missing_input_is_told_with_what_to_do(good: Path) -> None:
    done = run("render", good)
    assert done.returncode == 1
    assert done.stderr == (
        "error: Missing required input 'who'\n    Pass -i who=…, or add a `default:` to it in the file.\n"
    )


def test_wrong_inputs_are_all_reported_with_flags_of_the_command_line(good: Path) -> None:
    done = run("render", good, "-i", "whoo=Ada")
    assert done.returncode == 1
    assert done.stderr == (
        "error: Missing required input 'who'\n    Pass -i who=…, or add a `default:` to it in the file.\n"
        "Unknown input 'whoo': the prompt has 'who'\n    Did you mean `who`?\n"
    )


def test_a_missing_file_is_told_without_a_traceback(tmp_path: Path) -> None:
    done = run("render", tmp_path / "nope.prompty")
    assert done.returncode == 1
    assert "the file does not exist" in done.stderr
    assert "Traceback" not in done.stderr


TYPED = """---
inputs:
  n: {kind: integer}
  xs: {kind: array}
  photo: {kind: image}
  text: {kind: string}
  talk: {kind: thread}
---
user:
{{ n + 1 }} {{ xs|length }} {{ text }}{{ photo }}{{ talk }}
"""


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    (tmp_path / "typed.prompty").write_text(TYPED)
    (tmp_path / "a.png").write_bytes(b"png")
    (tmp_path / "a.txt").write_text("from a file")
    (tmp_path / "talk.json").write_text('[{"role": "assistant", "content": "earlier"}]')
    return tmp_path


def test_inputs_are_read_as_they_are_declared(typed: Path) -> None:
    pairs = ["n=41", "xs=[1, 2]", "photo=@a.png", "text=@a.txt", "talk=@talk.json"]
    arguments = [word for pair in pairs for word in ("-i", pair)]
    messages = json.loads(run("render", "typed.prompty", *arguments, "--json", cwd=typed).stdout)
    assert [message["content"] for message in messages] == [
        [
            {"kind": "text", "value": "42 2 from a file"},
            {"kind": "image", "value": "cG5n", "mediaType": "image/png"},
        ],
        "earlier",
    ]


WRONG = {
    "no equals sign": ("n", "`n` does not have the form NAME=VALUE"),
    "not a number": ("n=abc", "input 'n' must be an integer, not 'abc'"),
    "a file that is not there": ("photo=@nope.png", "cannot be read"),
}


@pytest.mark.parametrize(("pair", "said"), WRONG.values(), ids=WRONG)
def test_inputs_that_cannot_be_read_say_how_to_write_them(typed: Path, pair: str, said: str) -> None:
    done = run("render", "typed.prompty", "-i", pair, cwd=typed)
    assert done.returncode == 1
    assert said in done.stderr


def test_two_at_signs_are_one(typed: Path) -> None:
    done = run("render", "typed.prompty", "-i", "n=1", "-i", "xs=[]", "-i", "text=@@ada", cwd=typed)
    assert "2 0 @ada" in done.stdout


def test_media_are_shown_short(typed: Path) -> None:
    (typed / "big.png").write_bytes(b"x" * 1000)
    done = run("render", "typed.prompty", "-i", "n=1", "-i", "xs=[]", "-i", "photo=@big.png", cwd=typed)
    assert "[image image/png eHh4" in done.stdout
    assert "1,336 characters)]" in done.stdout


def test_the_nearest_env_file_is_used_and_never_overrides(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PROMPTY_A=file\nPROMPTY_B=file\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "e.prompty").write_text(
        "---\ninputs: {a: '${env:PROMPTY_A}', b: '${env:PROMPTY_B}'}\n---\n{{ a }} {{ b }}"
    )
    done = run("render", tmp_path / "sub" / "e.prompty", PROMPTY_A="shell")
    assert "shell file" in done.stdout


def test_strict_fails_on_a_variable_without_a_value(tmp_path: Path) -> None:
    (tmp_path / "s.prompty").write_text("user:\n{{ x }}")
    assert run("render", tmp_path / "s.prompty").returncode == 0
    assert "'x' is undefined" in run("render", tmp_path / "s.prompty", "--strict").stderr


def test_version_and_help() -> None:
    assert run("--version").stdout.startswith("prompty 0.")
    assert "render" in run("--help").stdout
    assert run().returncode == 2


def test_explain_shows_what_the_model_sees_and_what_it_does_not(tmp_path: Path) -> None:
    (tmp_path / "short.prompty").write_text(
        "---\nname: short\ndescription: Shortens\ninputs: {text: {kind: string, required: true}}\n---\n{{text}}\n"
    )
    pay = "{name: pay, kind: function, approvalMode: always, bindings: {account: x, key: {value: '${env:BANK_KEY}'}}, "
    pay += "parameters: [{name: amount, kind: integer, required: true, description: How much}, "
    pay += "{name: account}, {name: key}]}"
    child = "{name: shorten, kind: prompty, path: ./short.prompty}"
    file = tmp_path / "bank.prompty"
    file.write_text(f"---\nname: bank\nmodel: m\ntools:\n  - {pay}\n  - {child}\n---\nuser:\nHi\n")
    done = run("explain", file)
    assert done.stdout.partition("── functions ──\n")[2].partition("\n\n")[0].splitlines() == [
        "pay  (function; needs approval)",
        "    account: filled in by the host, not seen by the model",
        "    key: filled in by the host with the variable BANK_KEY, not seen by the model",
        "shorten  (prompty shorten; runs without approval)",
    ]
    wire = json.loads(run("explain", file, "--provider", "anthropic", "--json").stdout)["body"]["tools"]
    assert [one["name"] for one in wire] == ["pay", "shorten"]
    assert list(wire[0]["input_schema"]["properties"]) == ["amount"]


COMMANDS = (
    *("new", "check", "render", "run", "explain", "models"),
    *("chat", "batch", "trace"),
)


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)], ids=["prompty", *COMMANDS])
def test_every_command_starts_with_fcntl_missing(command: tuple[str, ...]) -> None:
    """As on Windows. A file can only be locked there with msvcrt, but nothing that locks files keeps a command down."""
    code = "import sys; sys.modules['fcntl'] = None; from prompty.cli import main; main()"
    done = subprocess.run(  # noqa: S603  our own command
        [sys.executable, "-c", code, *command, "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: " in done.stdout


def test_a_command_imports_only_what_it_needs() -> None:
    code = "import sys; from prompty.cli.app import app; app(['check', '--help'], standalone_mode=False)"
    code += "; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603  our own code
    loaded = set(done.stdout.split())
    assert "prompty.cli.check" in loaded
    assert not {name for name in loaded if name.startswith(("prompty.durable", "prompty.batches", "prompty.viewer"))}


def test_a_misspelt_command_is_met_with_the_right_one() -> None:
    done = run("chek")
    assert done.returncode == 2
    assert "No such command 'chek'. Did you mean 'check'?" in done.stderr
