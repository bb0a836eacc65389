"""`prompty import` as a person uses it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from prompty.cli.app import app

CONFIG = """\
prompts: [{label: greet, raw: "Greet {{name}}."}]
providers: [openai:gpt-5-mini, exec:./run.sh]
tests: [{vars: {name: Ada}, assert: [{type: contains, value: Ada}, {type: javascript, value: "process.exit()"}]}]
"""
ROWS = "name,__expected\nAda,contains: Ada\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "promptfooconfig.yaml").write_text(CONFIG)
    (tmp_path / "rows.csv").write_text(ROWS)
    return tmp_path


def run(*words: str, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def test_a_config_becomes_files_that_the_next_commands_read(folder: Path) -> None:
    out, err = run("import", "promptfooconfig.yaml")
    assert out == "Created greet.prompty, greet.test.yaml: 1 case.\n"
    assert "promptfooconfig.yaml:2:32: warning: providers.1: the provider `exec:./run.sh` is not one" in err
    assert "`javascript` names code, which is never run" in err
    assert err.endswith("2 things were not imported: see the list above.\n")
    run("check", "greet.prompty", "greet.test.yaml")
    assert "greet\n  - case 1\n" in run("test", "--level", "wire")[0]


def test_no_file_is_overwritten(folder: Path) -> None:
    (folder / "greet.prompty").write_text("mine")
    _, err = run("import", "promptfooconfig.yaml", code=1)
    assert "greet.prompty already exists\n    Write to another folder: --output FOLDER." in err
    assert (folder / "greet.prompty").read_text() == "mine"
    assert not (folder / "greet.test.yaml").exists()
    run("import", "promptfooconfig.yaml", "--output", "new")
    assert sorted(path.name for path in (folder / "new").iterdir()) == ["greet.prompty", "greet.test.yaml"]


@pytest.mark.parametrize("name", ["greet.prompty", "greet.test.yaml"])
def test_a_link_that_leads_nowhere_is_not_written_through(folder: Path, name: str) -> None:
    outside = folder.parent / f"outside-{name}"
    (folder / name).symlink_to(outside)
    _, err = run("import", "promptfooconfig.yaml", code=1)
    assert f"{name} already exists\n    Write to another folder: --output FOLDER." in err
    assert not outside.exists()
    assert [path.name for path in folder.glob("greet.*")] == [name]
    (folder / "new").symlink_to(outside)
    assert "File exists" in run("import", "promptfooconfig.yaml", "--output", "new", code=1)[1]
    assert not outside.exists()


def test_rows_need_a_prompt_and_a_config_has_its_own(folder: Path) -> None:
    assert "--prompt FILE.prompty" in run("import", "rows.csv", code=1)[1]
    assert "Remove --prompt." in run("import", "promptfooconfig.yaml", "--prompt", "greet.prompty", code=1)[1]
    run("import", "promptfooconfig.yaml", "-o", "new")
    (folder / "new" / "greet.test.yaml").unlink()
    out, _ = run("import", "rows.csv", "--prompt", "new/greet.prompty")
    assert out == "Created new/greet.test.yaml: 1 case.\n"


def test_a_config_without_a_prompt_imports_nothing(folder: Path) -> None:
    (folder / "promptfooconfig.yaml").write_text("prompts: [file://make.py]\ntests: []\n")
    _, err = run("import", "promptfooconfig.yaml", code=1)
    assert "make.py is code, which is never run" in err
    assert "nothing was imported" in err
