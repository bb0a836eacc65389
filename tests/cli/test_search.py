"""Commands that search a folder leave out what belongs to others."""

import json
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
    code, output = run("list", "--json")
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
