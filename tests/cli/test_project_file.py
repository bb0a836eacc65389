"""`prompty.toml`: what a project may say to the command line and to pytest, and everything that it may not (F18)."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from prompty import load
from prompty.cases.project_file import NO_PROJECT, Project, find_project
from prompty.cli.app import app
from prompty.errors import LoadError, PromptyWarning
from prompty.tracing.spans import SINKS

PROMPT = """---
name: greet
---
system:
{% include '../shared/_tone.md' %}
user:
Hi
"""
COMMANDS = ("render", "explain", "check", "check --list", "run")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_registry: None) -> Path:
    """Two folders of prompts that share a partial, in a repository."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    for name in ("one", "two", "shared", ".git"):
        (folder / name).mkdir(parents=True)
    for name in ("one", "two"):
        (folder / name / "greet.prompty").write_text(PROMPT)
    (folder / "shared" / "_tone.md").write_text("Be kind.\n")
    monkeypatch.chdir(folder)
    return folder


def configure(folder: Path, text: str, name: str = "prompty.toml") -> None:
    (folder / name).write_text(text)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


# What it can say.


@pytest.mark.parametrize("name", ["prompty.toml", "pyproject.toml"])
@pytest.mark.parametrize("command", COMMANDS)
def test_two_folders_share_a_partial(command: str, name: str, project: Path) -> None:
    table = "[tool.prompty]\n" if name == "pyproject.toml" else ""
    configure(project, f'{table}roots = ["shared"]\nmodel = "llama.cpp:tiny"\n', name)
    for prompt in ("one/greet.prompty", "two/greet.prompty"):
        shown = run(*command.split(), prompt)
        if command == "run":
            assert "outside allowed roots" not in shown.output
            assert "names no model" not in shown.output
            continue
        assert shown.exit_code == 0, shown.output
        assert command not in ("render", "explain") or "Be kind." in shown.output


@pytest.mark.parametrize("command", COMMANDS)
def test_a_root_of_the_command_needs_no_project_file(command: str, project: Path) -> None:
    assert run(*command.split(), "one/greet.prompty").exit_code == (command != "check --list")
    shown = run(*command.split(), "one/greet.prompty", "--root", "shared")
    assert "outside allowed roots" not in shown.output
    if command == "render":
        assert (shown.exit_code, "Be kind." in shown.output) == (0, True)


def test_a_root_that_is_not_there_is_refused(project: Path) -> None:
    shown = run("render", "one/greet.prompty", "--root", "nowhere")
    assert shown.exit_code == 2
    assert "nowhere" in shown.output


def test_the_error_names_what_a_user_of_the_command_line_can_do(project: Path) -> None:
    shown = run("render", "one/greet.prompty")
    assert "one/greet.prompty:5" in shown.output
    assert "--root" in shown.output
    assert "prompty.toml" in shown.output


def test_load_does_not_read_it(project: Path) -> None:
    configure(project, 'roots = ["shared"]\nmodel = "m"\n')
    with pytest.raises(LoadError, match="outside allowed roots"):
        load(project / "one" / "greet.prompty")


@pytest.mark.process
def test_tests_and_pytest_read_it(project: Path) -> None:
    configure(project, 'roots = ["shared"]\nmodel = "gpt-x"\n')
    cases = "cases:\n  - name: a\n    expect: {render: {contains: Be kind}, wire: {contains: gpt-x}}\n"
    (project / "one" / "greet.test.yaml").write_text(cases)
    shown = run("test", "one")
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (0, "1 passed"), shown.output
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "prompty_collect=true", "one"]
    collected = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own command
    assert "1 passed" in collected.stdout


def test_rows_of_cases_know_the_inputs_of_a_prompt_with_shared_partials(project: Path) -> None:
    configure(project, 'roots = ["shared"]\n')
    (project / "one" / "greet.prompty").write_text(PROMPT.replace("---\nsystem", "inputs: {n: integer}\n---\nsystem"))
    (project / "one" / "rows.csv").write_text("n\n3\n")
    (project / "one" / "greet.test.yaml").write_text(
        "cases: ${file:rows.csv}\ndefaults: {expect: {render: {contains: kind}}}\n"
    )
    assert run("test", "one").exit_code == 0


MODELS = {
    "a file without a model": ("name: x", "openai:gpt-x"),
    "a file with a model": ("model: {id: own, provider: anthropic}", "anthropic:own"),
    "a file with a provider": ("model: {provider: anthropic}", ""),
    "a file with an endpoint": ("model: {connection: {kind: anonymous, endpoint: 'https://own.test'}}", ""),
}


@pytest.mark.parametrize(("frontmatter", "expected"), MODELS.values(), ids=MODELS)
def test_a_model_is_for_files_that_name_none(frontmatter: str, expected: str, project: Path) -> None:
    """Another provider would take the file's provider or endpoint away."""
    server = "groq:gpt-x" if not expected else "gpt-x"
    configure(project, f'model = "{server}"\n')
    (project / "one" / "greet.prompty").write_text(f"---\n{frontmatter}\n---\nuser:\nHi")
    [entry] = json.loads(run("check", "one", "--list", "--json").stdout)
    assert entry["model"] == expected


def test_the_environment_and_the_command_choose_before_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(project, 'roots = ["shared"]\nmodel = "project"\n')
    explain = ("explain", "one/greet.prompty", "--json")
    assert json.loads(run(*explain).stdout)["body"]["model"] == "project"
    monkeypatch.setenv("PROMPTY_MODEL", "environment")
    assert json.loads(run(*explain).stdout)["body"]["model"] == "environment"
    assert json.loads(run(*explain, "--model", "command").stdout)["body"]["model"] == "command"


def test_a_model_of_a_known_server_is_the_files_word(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(project, 'model = "groq:x"\n')
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-another-server")
    (project / "one" / "greet.prompty").write_text("user:\nHi")
    shown = run("run", "one/greet.prompty")
    assert shown.exit_code == 1
    assert "GROQ_API_KEY" in shown.output


@pytest.mark.parametrize("folder", ["traces", "traces,otel", "traces,console,wire"])
def test_traces_go_to_a_folder_inside(folder: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SINKS, "_by_name", {})
    monkeypatch.setattr(SINKS, "_active", ())
    configure(project, f'roots = ["."]\ntrace = "{folder}"\n')
    prompt = "---\nmodel: {id: m, provider: scripted, script: [Hello]}\n---\nuser:\nHi"
    (project / "one" / "greet.prompty").write_text(prompt)
    shown = run("run", "one/greet.prompty")
    assert (shown.exit_code, shown.output) == (0, "Hello\n")
    assert list((project / folder).iterdir())
    assert [type(sink).__name__ for sink in SINKS.list()] == ["FileSink"]


def test_defaults_of_tests(project: Path) -> None:
    configure(project, "[test]\nconcurrency = 2\nmax_cost = 0.5\n")
    found = find_project(project / "one" / "greet.prompty")
    assert (found.concurrency, found.max_cost) == (2, 0.5)


# Where it is.


def test_the_nearest_counts(project: Path) -> None:
    configure(project, 'model = "far"\n')
    configure(project / "one", 'model = "near"\n')
    assert find_project(project / "one" / "greet.prompty").model == "near"
    assert find_project(project / "two" / "greet.prompty").model == "far"


def test_a_pyproject_without_a_table_is_none(project: Path) -> None:
    configure(project, 'model = "far"\n')
    configure(project / "one", '[project]\nname = "prompty-user"\n', "pyproject.toml")
    assert find_project(project / "one" / "greet.prompty").model == "far"


@pytest.mark.parametrize("border", ["the repository", "the home directory", "a package"])
def test_nothing_above_a_border_is_read(border: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(project.parent, 'model = "above"\n')
    prompt = project / "one" / "greet.prompty"
    if border == "the home directory":
        (project / ".git").rmdir()
        monkeypatch.setenv("HOME", str(project))
    elif border == "a package":
        (project / ".git").rmdir()
        package = project / "site-packages" / "acme"
        package.mkdir(parents=True)
        prompt = package / "greet.prompty"
    assert find_project(prompt) == NO_PROJECT
    if border != "the home directory":
        (project / ".git").mkdir(exist_ok=True)
        configure(project, 'model = "own"\n')
        assert find_project(prompt).model == (None if border == "a package" else "own")


def test_the_home_directory_itself_may_have_one(project: Path) -> None:
    (project / ".git").rmdir()
    configure(project.parent, 'model = "home"\n')
    assert find_project(project / "one" / "greet.prompty").model == "home"


def test_a_link_to_a_prompt_has_the_project_of_the_prompt(project: Path) -> None:
    configure(project, 'model = "m"\n')
    outside = project.parent / "elsewhere"
    outside.mkdir()
    (outside / "greet.prompty").write_text("user:\nHi")
    (project / "one" / "link.prompty").symlink_to(outside / "greet.prompty")
    assert find_project(project / "one" / "link.prompty") == NO_PROJECT


def test_a_prompt_of_a_package_has_none(project: Path) -> None:
    configure(project, 'model = "m"\n')
    assert find_project("pkg:acme/greet.prompty") == NO_PROJECT


# What it cannot say.


def link_folder(folder: Path) -> None:
    (folder / "linked").symlink_to(folder.parent)


def link_inside(folder: Path) -> None:
    (folder / "shared" / "deep").symlink_to("/etc")


def link_file(folder: Path) -> None:
    (folder.parent / "secret.toml").write_text('model = "stolen"')
    (folder / "prompty.toml").unlink()
    (folder / "prompty.toml").symlink_to(folder.parent / "secret.toml")


def be_a_folder(folder: Path) -> None:
    (folder / "prompty.toml").unlink()
    (folder / "prompty.toml").mkdir()


ESCAPES: dict[str, tuple[str, Callable[[Path], object] | None]] = {
    "the folder above": ('roots = [".."]', None),
    "a folder beside": ('roots = ["../other"]', None),
    "up and down": ('roots = ["shared/../../other"]', None),
    "up and back": ('roots = ["shared/.."]', None),
    "an absolute path": ('roots = ["/etc"]', None),
    "the root": ('roots = ["/"]', None),
    "the home directory": ('roots = ["~"]', None),
    "a folder of the home directory": ('roots = ["~/project/shared"]', None),
    "the home directory of a user": ('roots = ["~root"]', None),
    "a drive": ("roots = ['C:\\Users']", None),
    "a drive alone": ('roots = ["C:"]', None),
    "a path of a drive": ('roots = ["c:shared"]', None),
    "a server": ("roots = ['\\\\host\\share']", None),
    "a server with slashes": ('roots = ["//host/share"]', None),
    "a backslash": ("roots = ['..\\other']", None),
    "NUL": ('roots = ["shared\\u0000"]', None),
    "a line break": ('roots = ["shared\\n"]', None),
    "nothing": ('roots = [""]', None),
    "a blank": ('roots = [" "]', None),
    "a number": ("roots = [1]", None),
    "a list in a list": ('roots = [["shared"]]', None),
    "a table": ('roots = [{path = "shared"}]', None),
    "no list": ('roots = "shared"', None),
    "a linked folder": ('roots = ["linked"]', link_folder),
    "a link inside a root": ('roots = ["shared/deep"]', link_inside),
    "a file": ('roots = ["shared/_tone.md"]', None),
    "a folder that is not there": ('roots = ["nowhere"]', None),
    "a linked project file": ("", link_file),
    "a folder as project file": ("", be_a_folder),
    "traces above": ('trace = "../traces"', None),
    "traces anywhere": ('trace = "/tmp/traces"', None),
    "traces in a linked folder": ('trace = "linked/traces"', link_folder),
}


@pytest.mark.parametrize(("text", "prepare"), ESCAPES.values(), ids=ESCAPES)
def test_no_path_leads_out_of_its_folder(text: str, prepare: Callable[[Path], object] | None, project: Path) -> None:
    configure(project, text)
    if prepare:
        prepare(project)
    with pytest.raises(LoadError) as caught:
        find_project(project / "one" / "greet.prompty")
    [problem] = caught.value.problems
    assert (problem.code, problem.path, problem.line) == ("project-file", str(project / "prompty.toml"), 1)
    assert problem.fix
    shown = run("render", "one/greet.prompty")
    assert shown.exit_code == 1
    assert "prompty.toml" in shown.output


def test_the_name_of_a_sink_is_a_folder_for_traces(project: Path) -> None:
    configure(project, 'trace = "otel:https://away.test"')
    assert find_project(project / "one" / "greet.prompty").trace == project / "otel:https:" / "away.test"


def test_a_link_in_a_root_leads_nowhere(project: Path) -> None:
    configure(project, 'roots = ["shared"]\n')
    (project.parent / "_secret.md").write_text("secret")
    (project / "shared" / "_tone.md").unlink()
    (project / "shared" / "_tone.md").symlink_to(project.parent / "_secret.md")
    shown = run("render", "one/greet.prompty")
    assert shown.exit_code == 1
    assert "outside allowed roots" in shown.output
    assert "secret" not in shown.stdout


FOREIGN_KEYS = (
    "endpoint = 'https://away.test'",
    "trusted_endpoints = ['https://away.test']",
    "apiKey = 'sk-1'",
    "api_key = '${env:OPENAI_API_KEY}'",
    "env = {OPENAI_BASE_URL = 'https://away.test'}",
    "connection = {endpoint = 'https://away.test'}",
    "tools = ['run.py']",
    "mcp = ['servers.json']",
    "plugins = ['evil']",
    "dotenv = '/etc/environment'",
    "proxy = 'http://away.test'",
    "root = ['shared']",
    "[test]\nchecks = ['evil.py']",
    "[test]\nlive = true",
    "[provider.house]\nendpoint = 'https://away.test'",
)


@pytest.mark.parametrize("text", FOREIGN_KEYS)
def test_it_names_no_host_no_key_and_no_program(text: str, project: Path) -> None:
    configure(project, text)
    with pytest.raises(LoadError, match="unknown key"):
        find_project(project / "one" / "greet.prompty")


def test_an_unknown_key_has_its_line_and_the_most_similar_key(project: Path) -> None:
    configure(project, '[tool.prompty]\nmodel = "m"\nrots = ["shared"]\n', "pyproject.toml")
    with pytest.raises(LoadError) as caught:
        find_project(project / "one" / "greet.prompty")
    [problem] = caught.value.problems
    assert (problem.line, problem.message) == (3, "unknown key `rots`")
    assert problem.fix.startswith("Did you mean `roots`?")


WRONG = (
    "model = 3",
    'model = ""',
    'model = "a\\u001bb"',
    "trace = 3",
    "test = 3",
    "[test]\nconcurrency = 0",
    "[test]\nconcurrency = true",
    "[test]\nconcurrency = '2'",
    "[test]\nmax_cost = -1",
    "[test]\nmax_cost = nan",
    "[test]\nmax_cost = inf",
    "roots = [",
    "\x00",
)


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_value_is_an_error(text: str, project: Path) -> None:
    configure(project, text)
    with pytest.raises(LoadError):
        find_project(project / "one" / "greet.prompty")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["prompty.toml", "pyproject.toml"])
def test_a_file_of_another_user_is_not_used(name: str, project: Path, recwarn: pytest.WarningsRecorder) -> None:
    configure(project, '[tool.prompty]\nmodel = "m"\n' if name == "pyproject.toml" else 'model = "m"\n', name)
    os.chown(project / name, 12345, -1)
    assert find_project(project / "one" / "greet.prompty") == Project()
    told = [str(warning.message) for warning in recwarn.list if warning.category is PromptyWarning]
    assert told == ([f"{project / name} is not used: it belongs to another user"] if name == "prompty.toml" else [])
