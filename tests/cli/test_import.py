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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "promptfooconfig.yaml").write_text(CONFIG)
    return tmp_path


def run(*words: str, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def test_a_config_becomes_files_that_the_next_commands_read(folder: Path) -> None:
    out, err = run("import", "promptfooconfig.yaml")
    assert out == "Created greet.prompty, greet.test.yaml: 1 case.\n"
    assert "promptfooconfig.yaml:2:32: warning: providers.1: the provider `exec:./run.sh` is not one" in err
    assert "`javascript: process.exit()` is code, which is never run" in err
    assert err.endswith("2 things were not imported: see the list above, and the comments in the files.\n")
    run("check", "greet.prompty", "greet.test.yaml")
    assert "greet\n  - case 1\n" in run("test", "--level", "wire")[0]


@pytest.mark.parametrize(
    "provider",
    [
        "ollama:chat:llama3.2",
        "google:gemini-2.5-flash",
        "groq:llama-3.3-70b-versatile",
        "mistral:mistral-small-latest",
        "openrouter:meta-llama/llama-4",
        "deepseek:deepseek-chat",
        "vllm:qwen",
        "azure:chat:our-gpt",
    ],
)
def test_a_config_whose_first_provider_is_a_known_server_becomes_files_that_run(folder: Path, provider: str) -> None:
    (folder / "promptfooconfig.yaml").write_text(CONFIG.replace("openai:gpt-5-mini, exec:./run.sh", provider))
    run("import", "promptfooconfig.yaml")
    run("check", "greet.prompty", "greet.test.yaml")
    run("explain", "greet.prompty", "Ada")


def test_a_weighted_assertion_is_imported(folder: Path) -> None:
    (folder / "promptfooconfig.yaml").write_text(CONFIG.replace("value: Ada}", "value: Ada, weight: 2}"))
    _, err = run("import", "promptfooconfig.yaml")
    assert "contains: Ada" in (folder / "greet.test.yaml").read_text()
    assert "2 things were not imported" in err  # as without the weight


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


def test_cases_that_lost_their_checks_are_counted(folder: Path) -> None:
    (folder / "promptfooconfig.yaml").write_text(CONFIG.replace("contains", "llm-rubric"))
    _, err = run("import", "promptfooconfig.yaml")
    assert "\n1 case has no check.\n3 things were not imported" in err


def test_a_config_without_a_prompt_imports_nothing(folder: Path) -> None:
    (folder / "promptfooconfig.yaml").write_text("prompts: [file://make.py]\ntests: []\n")
    _, err = run("import", "promptfooconfig.yaml", code=1)
    assert "make.py is not read: it is code" in err
    assert "nothing was imported" in err
