"""`pkg:acme_prompts/answer.prompty` is a prompt of an installed package."""

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prompty import check, invoke, load, prepare, variants
from prompty.cli.app import app
from prompty.errors import FileMissing
from prompty.testing import Script


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site" / "acme_prompts"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "_rules.md").write_text("Be kind.\n")
    body = '---\nmodel: {provider: scripted, id: small}\n---\nsystem:\n{% include "_rules.md" %}\nuser:\nHi\n'
    (folder / "answer.prompty").write_text(body)
    (folder / "answer.big.prompty").write_text("---\nmodel: {id: big}\n---\n")
    (folder / "deep" / "inner.prompty").write_text("---\nmodel: m\n---\nuser:\nHi\n")
    (tmp_path / "site" / "secret.prompty").write_text("---\nmodel: m\n---\nuser:\nHi\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield folder
    sys.modules.pop("acme_prompts", None)


def test_a_prompt_of_a_package_has_its_partials_and_variants(package: Path) -> None:
    agent = load("pkg:acme_prompts/answer.prompty")
    assert prepare(agent)[0].text == "Be kind."
    assert agent.path == package / "answer.prompty"
    assert variants("pkg:acme_prompts/answer.prompty") == ["big"]
    assert load("pkg:acme_prompts/answer.prompty", variant="big").model.id == "big"
    assert load("pkg:acme_prompts/deep/inner.prompty").model.id == "m"
    assert check("pkg:acme_prompts/answer.prompty") == []
    with Script("Hello."):
        assert invoke("pkg:acme_prompts/answer.prompty") == "Hello."


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("pkg:nothing_here/a.prompty", "there is no package 'nothing_here'"),
        ("pkg:", "there is no package ''"),
        ("pkg:.acme/a.prompty", "there is no package"),
        ("pkg:acme_prompts/none.prompty", "has no file 'none.prompty'"),
        ("pkg:acme_prompts/../secret.prompty", "leaves the package"),
        ("pkg:acme_prompts//etc/hostname", "has no file"),
        ("pkg:json.decoder/a.prompty", "there is no package"),
    ],
)
def test_a_path_that_names_nothing_in_a_package_is_an_error(package: Path, path: str, message: str) -> None:
    with pytest.raises(FileMissing, match=message):
        load(path)
    assert [problem.code for problem in check(path)] == ["file-missing"]


def test_a_file_cannot_name_a_package(package: Path, tmp_path: Path) -> None:
    path = tmp_path / "agent.prompty"
    path.write_text("---\nname: ${file:pkg:acme_prompts/_rules.md}\nmodel: m\n---\nuser:\nHi\n")
    with pytest.raises(FileMissing):
        load(path)


@pytest.mark.parametrize("words", [["test", "a.test.yaml"], ["check", "a.test.yaml"], ["test", "."], ["check", "."]])
@pytest.mark.parametrize("cases", ["[{inputs: {q: x}, expect: {render: {contains: x}}}]", "${file:rows.csv}"])
def test_a_test_file_cannot_name_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], cases: str
) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "__init__.py").write_text("open('IMPORTED', 'w').close()\n")
    (tmp_path / "evil" / "a.prompty").write_text("---\nmodel: m\ninputs: {q: {kind: string}}\n---\nuser:\n{{ q }}\n")
    (tmp_path / "a.test.yaml").write_text(f"prompt: pkg:evil/a.prompty\ncases: {cases}\n")
    (tmp_path / "rows.csv").write_text("q\n1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert "`pkg:` imports a package, and a test file cannot do that" in done.output
    assert "evil" not in sys.modules
    assert not (tmp_path / "IMPORTED").exists()


def test_a_path_object_is_always_a_file(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileMissing, match="does not exist"):
        load(Path("pkg:acme_prompts/answer.prompty"))
    assert "acme_prompts" not in sys.modules


@pytest.mark.parametrize("words", [["render"], ["check"], ["explain"], ["run", "-m", "scripted:m"]])
def test_commands_take_a_prompt_of_a_package(package: Path, words: list[str]) -> None:
    done = CliRunner().invoke(app, [*words, "pkg:acme_prompts/deep/inner.prompty"])
    assert "there is no" not in done.output, done.output
    assert "does not exist" not in done.output, done.output


def test_a_package_in_an_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("packed_prompts/__init__.py", "")
        file.writestr("packed_prompts/answer.prompty", "user:\nHi\n")
    monkeypatch.syspath_prepend(str(archive))
    with pytest.raises(FileMissing, match=r"has no file 'answer\.prompty'"):
        load("pkg:packed_prompts/answer.prompty")
    sys.modules.pop("packed_prompts", None)


def test_the_command_lists_the_prompts_of_a_package(package: Path) -> None:
    done = CliRunner().invoke(app, ["check", "--list", "pkg:acme_prompts"])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "answer.prompty      scripted:small",
        "  big               scripted:big",
        "deep/inner.prompty  openai:m",
    ]
