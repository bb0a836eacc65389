"""A prompt file reads no hidden file (`.env`, `.ssh/id`): its text could be sent to a server of the author's choice."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from prompty import check, load, turn
from prompty.cases.project_file import find_project
from prompty.cli.app import app
from prompty.errors import LoadError
from prompty.testing import Script, call

SECRET = "planted-secret"
PROMPT = "---\nmodel: m\ninputs: {q: {kind: string, default: '%s'}}\n---\nuser:\n{{q}}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (".env", ".ssh/id", "prompts/.config/a.txt", "prompts/.env", "prompts/.net/b/c.txt"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"NAME={SECRET}\n")
    (tmp_path / "prompts" / "visible.txt").symlink_to(tmp_path / "prompts" / ".env")
    (tmp_path / "prompts" / "sub").symlink_to(tmp_path / "prompts" / ".config")
    (tmp_path / "prompts" / ".link").symlink_to(tmp_path / "prompts" / "plain.txt")
    (tmp_path / "prompts" / "plain.txt").write_text("plain")
    return tmp_path


HIDDEN = {
    "the variables of the folder": "${file:.env}",
    "inside a text": "x ${file:.env}",
    "in a hidden folder": "${file:.config/a.txt}",
    "below a hidden folder": "${file:.net/b/c.txt}",
    "by a detour": "${file:sub/../.env}",
    "with a dot before it": "${file:./.env}",
    "a link to a hidden file": "${file:visible.txt}",
    "a link to a hidden folder": "${file:sub/a.txt}",
    "a hidden link": "${file:.link}",
    "in a folder that the program allows": "${file:../.env}",
    "in a hidden folder below such a folder": "${file:../.ssh/id}",
}


@pytest.mark.parametrize("reference", HIDDEN.values(), ids=HIDDEN)
def test_a_reference_to_a_hidden_file_is_an_error(folder: Path, reference: str) -> None:
    path = folder / "prompts" / "a.prompty"
    path.write_text(PROMPT % reference)
    with pytest.raises(LoadError, match="is hidden: files such as") as caught:
        load(path, allowed_roots=[folder])
    assert SECRET not in str(caught.value)
    assert "file-hidden" in {problem.code for problem in check(path, allowed_roots=[folder])}


def test_a_prompt_in_a_hidden_folder_reads_its_own_files(folder: Path) -> None:
    path = folder / ".prompts" / "a.prompty"
    path.parent.mkdir()
    (path.parent / "a.txt").write_text("plain")
    path.write_text(PROMPT % "${file:a.txt}")
    assert load(path, allowed_roots=[folder]).inputs[0].default == "plain"


def test_a_project_file_gives_no_prompt_a_hidden_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "prompty.toml").write_text('roots = ["."]\n')
    path = folder / "prompts" / "a.prompty"
    path.write_text(PROMPT % "${file:../.env}")
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, ["render", "prompts/a.prompty"])
    assert result.exit_code
    assert SECRET not in result.output
    assert "../.env is hidden" in " ".join(result.stderr.split())


@pytest.mark.parametrize("root", [".ssh", "prompts/.config", "prompts/sub"])
def test_a_project_file_names_no_hidden_folder(folder: Path, root: str) -> None:
    (folder / "prompty.toml").write_text(f'roots = ["{root}"]\n')
    with pytest.raises(LoadError, match="a hidden folder"):
        find_project(folder / "prompts" / "a.prompty")


def test_folders_of_skills_may_be_hidden_and_their_files_may_not(tmp_path: Path) -> None:
    skill = tmp_path / ".claude" / "skills" / "review"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: review\ndescription: Reviews.\n---\n# Review")
    (skill / ".key").write_text(SECRET)
    (skill / "key.txt").symlink_to(skill / ".key")
    path = tmp_path / "a.prompty"
    path.write_text(
        "---\nmodel: m\ntools: [{name: skills, kind: skills, path: ./.claude/skills}]\n---\nuser:\nHi",
    )
    with Script(
        call("read_skill", skill="review"),
        call("read_skill", skill="review", file=".key"),
        call("read_skill", skill="review", file="key.txt"),
        "Done.",
    ) as script:
        turn(path)
    texts = [str(request["messages"][-1]["content"]) for request in script.requests[1:]]
    assert [text.startswith("# Review") for text in texts] == [True, False, False]
    assert SECRET not in "".join(texts)
