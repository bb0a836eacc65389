"""`prompty migrate`: what it writes, what it prints, and what it leaves alone."""

import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from prompty.cli.app import app
from prompty.pipeline.migrate import change_model, migrate_text

V1 = """---
# What this prompt is for.
name: weather   # a short name
model:
    # The API.
    api: chat
    configuration:
        type: azure_openai   # or openai
        # Which deployment.
        azure_deployment: "gpt-4o"
    parameters:
        # Enough for a sentence.
        max_tokens: 100
        stream: true  # as it comes
inputs:
    city:
        type: string   # its name
        description: 'The city: of the user'
    # The conversation so far.
    history:
        type: list
sample:
    # A city.
    city: Oslo # in Norway
# The end.
---
system:
You know the weather of {{ city }}.

{% for item in history %}
{{item.role}}:
{{item.content}}
{% endfor %}

user:
Is it "raining"?
"""
V2 = """---
# What this prompt is for.
name: weather  # a short name
model:
  # The API.
  provider: azure  # or openai
  # Which deployment.
  id: "gpt-4o"
  options:
    # Enough for a sentence.
    # as it comes
    maxOutputTokens: 100
inputs:
  city:
    kind: string  # its name
    description: 'The city: of the user'
    # A city.
    default: Oslo  # in Norway
  # The conversation so far.
  history:
    kind: thread
    required: true
# The end.
---
system:
You know the weather of {{ city }}.

{{history}}

user:
Is it "raining"?
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["migrate", *map(str, arguments)])


@pytest.fixture
def old(tmp_path: Path) -> Path:
    file = tmp_path / "old.prompty"
    file.write_text(V1)
    return file


def test_comments_quotes_and_order_are_kept() -> None:
    assert migrate_text(V1, "old.prompty").text == V2


def test_a_file_is_printed_and_not_written(old: Path) -> None:
    result = run(old)
    assert result.exit_code == 0
    assert result.stdout == V2
    assert "old.prompty:14:9: warning: model.parameters.stream: `stream` is dropped" in result.stderr
    assert old.read_text() == V1


def test_write_replaces_the_file_in_one_step_and_keeps_its_mode(old: Path, tmp_path: Path) -> None:
    old.chmod(0o640)
    before = old.stat().st_ino
    result = run("--write", old)
    assert (result.exit_code, result.stdout) == (0, f"rewrote {old}\n")
    assert old.read_text() == V2
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert old.stat().st_ino != before
    assert list(tmp_path.iterdir()) == [old]
    again = run("--write", old)
    assert (again.exit_code, again.stdout) == (0, "")
    assert "1 file: 0 rewritten" in again.stderr


def test_a_link_is_not_rewritten_but_the_file_that_it_names(old: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "real.prompty"
    old.rename(target)
    old.symlink_to(target)
    refused = run("--write", old)
    assert (refused.exit_code, target.read_text()) == (1, V1)
    assert f"it leads through a link to '{target}'" in " ".join(refused.stderr.split())
    assert run("--write", target).exit_code == 0
    assert "provider: azure" in old.read_text()


def test_check_exits_with_1_if_a_file_would_change(old: Path) -> None:
    result = run("--check", old)
    assert (result.exit_code, result.stdout) == (1, f"would rewrite {old}\n")
    assert old.read_text() == V1
    run("--write", old)
    assert run("--check", old).exit_code == 0


def test_diff_prints_a_unified_diff(old: Path) -> None:
    result = run("--diff", old)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"--- {old}\n+++ {old}\n@@ ")
    assert "\n-    api: chat\n" in result.stdout
    assert "\n+  provider: azure" in result.stdout
    assert old.read_text() == V1


def test_a_folder_is_searched_and_a_broken_file_does_not_stop_the_others(old: Path, tmp_path: Path) -> None:
    (tmp_path / "a.prompty").write_text("---\nsample: nowhere.json\n---\nHi")
    (tmp_path / "b.prompty").write_text("---\nmodel: gpt-4o\n---\nHi")
    (tmp_path / "notes.txt").write_text("api: chat")
    result = run("--write", tmp_path)
    assert result.exit_code == 1
    assert result.stdout == f"rewrote {old}\n"
    assert "a.prompty:2:9: error: sample: nowhere.json does not exist" in result.stderr
    assert result.stderr.endswith("3 files: 1 rewritten, 1 cannot be migrated\n")


def test_check_and_write_exclude_each_other(old: Path) -> None:
    result = run("--check", "--write", old)
    assert result.exit_code == 1
    assert "--check and --write exclude each other" in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(old: Path) -> None:
    old.parent.chmod(0o500)
    try:
        assert "cannot be written" in run("--write", old).stderr
    finally:
        old.parent.chmod(0o700)


UNCHANGED = {
    "v2": "---\nmodel: gpt-4o  # a comment\n---\nHi",
    "no frontmatter": "Just text: {{x}}",
    "empty": "",
}


@pytest.mark.parametrize("text", UNCHANGED.values(), ids=UNCHANGED)
def test_a_file_that_is_not_v1_stays_byte_for_byte(text: str) -> None:
    assert migrate_text(text, "x.prompty").text == text


def test_line_endings_are_kept() -> None:
    migrated = migrate_text(V1.replace("\n", "\r\n"), "old.prompty").text
    assert migrated == V2.replace("\n", "\r\n")


def test_texts_that_look_like_other_values_stay_texts() -> None:
    text = "---\nsample: {a: 'no', b: \"1\", c: 'null', d: 12:30, e: '#x', f: \"two\\nlines\"}\n---\n{{a}}"
    migrated = migrate_text(text, "x.prompty").text
    assert "default: 'no'" in migrated
    assert 'default: "1"' in migrated
    assert "default: '#x'" in migrated


def test_running_a_v1_file_says_nothing_about_v1(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
    result = CliRunner().invoke(app, ["run", str(old), "-i", "history=[]"])
    assert result.exit_code == 1
    assert "Prompty v1" not in result.stderr
    assert "Set AZURE_OPENAI_ENDPOINT" in result.stderr


def test_another_model_has_no_script() -> None:
    scripted = "---\nmodel:\n  provider: scripted\n  script: [Hello]\n---\nuser:\nHi\n"
    changed = change_model(scripted, "a.prompty", "openai:gpt-test")
    assert changed.text == "---\nmodel:\n  provider: openai\n  id: gpt-test\n---\nuser:\nHi\n"
    assert [note.message for note in changed.notes] == ["the script is removed: gpt-test answers itself"]
