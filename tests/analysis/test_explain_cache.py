"""`prompty explain --cache`: what a provider can cache of every request."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prompty.cli.app import app

PROMPT = """---
model: {model}
inputs: {{q: {{kind: string}}}}
tools: [{{name: look_up, kind: function, parameters: {{word: {{kind: string}}}}}}]
---
system:
Be brief.
user:
{{{{ q }}}}
"""


def explain(folder: Path, text: str, *options: str) -> str:
    (folder / "cached.prompty").write_text(text)
    ended = CliRunner().invoke(app, ["explain", str(folder / "cached.prompty"), "--cache", *options])
    assert ended.exit_code == 0, ended.output
    return " ".join(ended.stdout.split())


VERDICTS = {
    "gpt-5.6": "gpt-5.6 caches from 1,024 tokens on, so it caches nothing of this prompt.",
    "{id: claude-opus-5, provider: anthropic}": "claude-opus-5 caches from 512 tokens on, so it caches nothing of this",
    "model-of-tomorrow": "It is not known from how many tokens on model-of-tomorrow caches.",
}


@pytest.mark.parametrize(("model", "verdict"), VERDICTS.items())
def test_it_prints_the_text_before_the_first_tag_and_a_verdict(model: str, verdict: str, tmp_path: Path) -> None:
    printed = explain(tmp_path, PROMPT.format(model=model))
    assert printed.startswith("Be brief. ◀ the first tag")
    assert "{{" not in printed
    assert verdict in printed


def test_a_long_text_can_be_cached(tmp_path: Path) -> None:
    text = PROMPT.format(model="gpt-5.6").replace("Be brief.", "Be brief. " * 500)
    assert "so it can cache them." in explain(tmp_path, text)


def test_the_tokens_count_the_tools(tmp_path: Path) -> None:
    printed = json.loads(explain(tmp_path, PROMPT.format(model="gpt-5.6"), "--json"))
    assert printed == {"texts": ["Be brief."], "tokens": printed["tokens"], "minimum": 1024, "isCached": False}
    assert printed["tokens"] > 20


def test_no_server_of_tools_is_asked(tmp_path: Path) -> None:
    text = "---\nmodel: m\ntools: [{name: t, kind: mcp, serverName: s}]\n---\nuser:\nHi"
    assert json.loads(explain(tmp_path, text, "--json"))["texts"] == ["Hi"]
