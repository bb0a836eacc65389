"""Commands that search a folder leave out what belongs to others."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prompty.cli.app import app
from prompty.cli.search import find_files

PROMPT = "---\nmodel: {id: m, provider: scripted}\n---\nuser:\nHi\n"
FOREIGN = (
    "node_modules/chart",
    ".git/hooks",
    ".venv/lib",
    "lib/python3.13/site-packages/other",
    "__pycache__",
    "prompts/.cache",
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("prompts", "environment/lib", *FOREIGN):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "hi.prompty").write_text(PROMPT if folder == "prompts" else "---\nmodel: [\n---\n")
        tests = "cases: [{name: a, expect: {render: {contains: Hi}}}]" if folder == "prompts" else "helm: values"
        (tmp_path / folder / "hi.test.yaml").write_text(tests)
    (tmp_path / "environment" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.output


def test_tests_and_prompts_of_dependencies_and_hidden_folders_are_left_out(project: Path) -> None:
    assert run("test") == (0, "prompts/hi\n  ✓ a\n1 passed\n")
    code, output = run("check", ".")
    assert (code, output.splitlines()[-1]) == (0, "2 files: no problems")
    code, output = run("check", ".", "--list", "--json")
    assert [entry["name"] for entry in json.loads(output)] == [str(Path("prompts", "hi.prompty"))]


@pytest.mark.parametrize("folder", ["environment", *FOREIGN])
def test_a_folder_that_is_named_is_searched(project: Path, folder: str) -> None:
    start = Path(folder.split("/")[0])
    if start.name in ("lib", "prompts"):
        start = Path(folder)
    assert [file.name for file in find_files(start, ".prompty", ".test.yaml")] == ["hi.prompty", "hi.test.yaml"]
    code, output = run("test", str(start))
    assert code == 1
    assert "unknown key `helm`" in output


def test_links_to_folders_are_not_followed(project: Path) -> None:
    (project / "prompts" / "loop").symlink_to(project, target_is_directory=True)
    assert find_files(project, ".prompty") == [project / "prompts" / "hi.prompty"]


def test_a_folder_that_cannot_be_searched_hides_no_others(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(60):  # the whole path is longer than systems allow
        Path("d" * 90).mkdir()
        monkeypatch.chdir("d" * 90)
    monkeypatch.chdir(project)
    assert find_files(Path(), ".test.yaml") == [Path("prompts/hi.test.yaml")]


@pytest.mark.skipif(os.name == "nt", reason="names on Windows are text")
def test_a_test_file_may_have_a_name_that_is_not_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    name = os.fsdecode(b"\xff")
    try:
        Path(f"{name}.prompty").write_text(PROMPT)
    except OSError:
        pytest.skip("this file system takes only text")
    Path(f"{name}.test.yaml").write_text("cases: [{name: a, expect: {render: {contains: Bye}}}]")
    code, output = run("test")
    assert (code, "1 failed" in output) == (1, True)
    assert run("test", "--failed") == (code, output)
