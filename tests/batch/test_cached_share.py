"""`prompty batch` says how much of its input came from the provider's cache, by prompt version."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prompty.cli.app import app
from tests.prompt_cache import CachingServer
from tests.servers.rules_over_http import serve_rules

LONG = ("Judge the answer by these rules, and by no others. " * 100).strip()
PROMPT = f"---\nname: judge\nmodel: gpt-5.6\ninputs: {{x: string}}\n---\nsystem:\n{LONG}\nuser:\n{{{{x}}}}"


def run(folder: Path, output: str, *words: str) -> str:
    arguments = ["batch", str(folder / "judge.prompty"), str(folder / "rows.jsonl"), "-o", str(folder / output)]
    ended = CliRunner().invoke(app, [*arguments, "--concurrency", "1", *words])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_a_batch_ends_with_the_share_of_cached_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judge.prompty").write_text(PROMPT)
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"x": "row{number}"}}\n' for number in range(4)))
    server = CachingServer()
    with serve_rules(server, tmp_path, monkeypatch):
        [(version, share)] = json.loads(run(tmp_path, "a.jsonl", "--json"))["cached_shares"].items()
        text = run(tmp_path, "b.jsonl")
    tokens = [usage.input_tokens or 0 for usage in server.usages[:4]]
    assert version.startswith("judge@")
    assert share == pytest.approx(3 * 1275 / sum(tokens), abs=0.0001)  # the first row wrote it
    assert f"of the input of {version} came from the provider's cache." in " ".join(text.split())
