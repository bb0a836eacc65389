"""`prompty test --against REF`: the prompts of a revision with all that they read there, and nothing else of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from prompty.cases.revision import MAX_FILE, find_repository, open_revision
from prompty.errors import RequestError

pytestmark = pytest.mark.process

PROMPT = """\
---
name: p
model: {id: m, provider: scripted}
inputs: {q: {kind: string}}
---
{% include "../shared/_style.md" %}
user:
{{ q }}
"""
TESTS = "cases:\n- name: a\n  inputs: {q: x}\n  expect: {render: {contains: Be brief.}}\n"


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603  our own commands
    return done.stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")
    return git(folder, "rev-parse", "HEAD")


def run(folder: Path, *words: str, code: int = 0, **variables: str) -> str:
    environment = {**os.environ, "COLUMNS": "300", "XDG_STATE_HOME": str(folder.parent / "state"), **variables}
    done = subprocess.run(  # noqa: S603  our own command
        [sys.executable, "-I", "-m", "prompty", "test", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    return folder


def make_monorepo(folder: Path, number: int) -> None:
    """Write prompts in one folder, with a partial in another that the project file allows."""
    (folder / "prompts").mkdir()
    (folder / "shared").mkdir()
    (folder / "prompty.toml").write_text('roots = ["shared"]\n')
    (folder / "shared" / "_style.md").write_text("system:\nBe brief.\n")
    for name in (f"p{index}" for index in range(number)):
        (folder / "prompts" / f"{name}.prompty").write_text(PROMPT)
        (folder / "prompts" / f"{name}.test.yaml").write_text(TESTS)


def test_all_prompts_of_a_monorepo_with_a_shared_partial_are_compared(repository: Path) -> None:
    make_monorepo(repository, 201)
    commit(repository)
    told = run(repository, "--quiet", "--against", "HEAD")
    assert "Compared with HEAD: 0 worse, 0 better, of 201 cases." in told


def test_a_shared_partial_is_that_of_the_revision(repository: Path) -> None:
    make_monorepo(repository, 1)
    commit(repository)
    (repository / "shared" / "_style.md").write_text("system:\nBe long.\n")
    told = run(repository, "--against", "HEAD", code=1)
    assert "Compared with HEAD: 1 worse, 0 better, of 1 case." in told
    (repository / "prompty.toml").unlink()
    assert "1 worse" in run(repository, "--against", "HEAD", "--root", "shared", code=1)


def test_tests_may_be_in_another_folder_than_the_prompt(repository: Path) -> None:
    make_monorepo(repository, 1)
    (repository / "tests").mkdir()
    (repository / "tests" / "p.test.yaml").write_text("prompt: ../prompts/p0.prompty\n" + TESTS)
    commit(repository)
    assert "of 1 case." in run(repository, "tests", "--against", "HEAD")


def test_why_an_earlier_prompt_could_not_run_is_told(repository: Path) -> None:
    make_monorepo(repository, 1)
    (repository / "shared" / "_style.md").unlink()
    (repository / "shared" / "_style.md").symlink_to("_real.md")
    commit(repository)
    (repository / "shared" / "_style.md").unlink()
    (repository / "shared" / "_style.md").write_text("system:\nBe brief.\n")
    told = run(repository, "--against", "HEAD")
    assert "1 result could not run at HEAD. prompts/p0::a: " in told
    assert "_style.md" in told
    assert "Not read from HEAD: shared/_style.md: it is a link, or not a file." in told
    assert "prompty-revision-" not in told


def test_a_page_names_the_commit_that_it_compares_with_and_that_of_the_workflow(repository: Path) -> None:
    make_monorepo(repository, 1)
    name = commit(repository)
    run(repository, "--against", "main", "--html", "page.html", GITHUB_SHA="0123456789abcdef")
    page = (repository / "page.html").read_text()
    assert f"compared with commit {name[:7]}" in page
    assert "commit 0123456" in page


def test_a_revision_has_the_files_that_prompts_can_read_and_is_removed(repository: Path) -> None:
    (repository / "a").mkdir()
    (repository / "a" / "b.prompty").write_text("b")
    (repository / "a" / "c.md").write_bytes(b"\x00\xff\n\n")
    (repository / "program.py").write_text("")
    (repository / "large.json").write_bytes(bytes(MAX_FILE + 1))
    (repository / "link.md").symlink_to("/etc/hostname")
    name = commit(repository)
    (repository / "a" / "b.prompty").write_text("changed")
    with open_revision(find_repository(repository / "a"), "main") as revision:
        found = {path.relative_to(revision.folder).as_posix() for path in revision.folder.rglob("*") if path.is_file()}
        assert found == {"a/b.prompty", "a/c.md"}
        assert (revision.folder / "a" / "b.prompty").read_text() == "b"
        assert (revision.folder / "a" / "c.md").read_bytes() == b"\x00\xff\n\n"
        assert revision.commit == name
        assert set(revision.skipped) == {"large.json", "link.md"}
        assert revision.folder.stat().st_mode & 0o077 == 0
    assert not revision.folder.exists()


def test_a_git_hook_does_not_choose_the_repository(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "a.md").write_text("a")
    name = commit(repository)
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    with open_revision(repository, "main") as revision:
        assert revision.commit == name


@pytest.mark.parametrize("where", [".", "bin"])
def test_git_is_not_taken_from_the_repository(repository: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    (repository / where).mkdir(exist_ok=True)
    planted = repository / where / "git"
    planted.write_text(f"#!/bin/sh\ntouch {repository}/RAN\n")
    planted.chmod(0o755)
    commit(repository)
    monkeypatch.chdir(repository)
    monkeypatch.setenv("PATH", os.pathsep.join([".", str(repository / where), os.environ["PATH"]]))
    with open_revision(repository, "main"):
        assert not (repository / "RAN").exists()
    monkeypatch.setenv("PATH", str(repository / where))
    with pytest.raises(RequestError, match="there is no git outside the repository"), open_revision(repository, "main"):
        pass


def test_the_settings_of_a_repository_start_nothing(repository: Path) -> None:
    (repository / "a.md").write_text("a")
    (repository / ".gitattributes").write_text("* filter=evil\n")
    commit(repository)
    program = f"touch {repository}/RAN; cat"
    with (repository / ".git" / "config").open("a") as file:
        file.write(f'[core]\n\tfsmonitor = "{program}"\n\tpager = "{program}"\n')
        file.write(f'[filter "evil"]\n\tsmudge = "{program}"\n\tclean = "{program}"\n')
    (repository / "a.prompty").write_text("---\nmodel: m\n---\nuser:\nhi\n")
    (repository / "a.test.yaml").write_text("cases:\n- name: a\n  expect: {render: {contains: hi}}\n")
    run(repository, "--html", "page.html")
    with open_revision(repository, "main"):
        pass
    assert not (repository / "RAN").exists()


def test_a_partial_clone_is_refused_and_fetches_nothing(repository: Path, tmp_path: Path) -> None:
    (repository / "a.md").write_text("a")
    commit(repository)
    git(repository, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{repository}", "partial")
    clone = tmp_path / "partial"
    git(clone, "config", "remote.origin.uploadpack", f"touch {tmp_path}/RAN; false")
    with pytest.raises(RequestError, match="partial clone") as raised, open_revision(clone, "main"):
        pass
    assert "git fetch" in raised.value.fix
    assert not (tmp_path / "RAN").exists()


@pytest.mark.parametrize(
    ("reference", "message"),
    [("nothing", "git has no 'nothing'"), ("--all", "is not a git reference"), ("main:a.md", "git has no 'main:a.md'")],
)
def test_what_is_no_revision_is_refused(repository: Path, reference: str, message: str) -> None:
    (repository / "a.md").write_text("a")
    commit(repository)
    with pytest.raises(RequestError, match=message), open_revision(repository, reference):
        pass


def test_without_a_repository_there_is_no_revision(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is not in a git repository"):
        find_repository(tmp_path)
