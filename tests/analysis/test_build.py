"""`prompty build` writes a prompt with partials as one file that means the same."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from typer.testing import CliRunner

from prompty import PromptAgent, load, prepare
from prompty.analysis.build import build_text
from prompty.analysis.explain import explain
from prompty.cli.app import app
from tests.soak import SOAK

PROVIDERS = {"chat": ("openai", "chat"), "responses": ("openai", "responses"), "messages": ("anthropic", "chat")}
PIECES = [
    "plain text",
    "{{ name }}",
    "\nuser:\n",
    "\nassistant:\n",
    "{% if flag %}yes{% endif %}",
    "  \n",
    "{{ name|upper }}",
]
TONE = "---\ninputs:\n  tone: {kind: string, default: warm}  # as they like it\n---\nA {{ tone }} tone.\n"
bodies = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
includes = st.sampled_from(
    [
        '{% include "_a.md" %}',
        '\n{% include "_b.md" %}\n',
        '{%- include "_a.md" -%}',
        '{% include "_tone.md" %}',
        '{% with tone="dry" %}{% include "_tone.md" %}{% endwith %}',
        '{% for n in [1, 2] %}{% include "_a.md" %}{% endfor %}',
    ]
)
heads = st.sampled_from(
    [
        "inputs:\n  name: {kind: string, default: Ada}  # who asks\n  flag: {kind: boolean, default: true}\n",
        "inputs:\n  - name: name  # who asks\n    kind: string\n    default: Ada\n",
        "",
    ]
)


def bodies_of(agent: PromptAgent) -> list[object]:
    """Return the requests of an agent in all formats."""
    found: list[object] = []
    for provider, api_type in PROVIDERS.values():
        model = agent.model.model_copy(update={"provider": provider, "api_type": api_type})
        found.append(explain(agent.model_copy(update={"model": model})).body)
    return found


@settings(deadline=None, max_examples=500 if SOAK else 60)
@given(heads, st.lists(bodies | includes, min_size=1, max_size=6).map("".join), bodies, bodies)
def test_what_is_built_means_the_same(
    tmp_path_factory: pytest.TempPathFactory, head: str, body: str, first: str, second: str
) -> None:
    folder = tmp_path_factory.mktemp("build")
    (folder / "_a.md").write_text(first)
    (folder / "_b.md").write_text(f'{second}{{% include "_a.md" %}}')
    (folder / "_tone.md").write_text(TONE)
    path = folder / "ask.prompty"
    path.write_text(f"---\nmodel: m\n{head}---\nuser:\nAnswer. {body}\n")
    alone = tmp_path_factory.mktemp("alone") / "ask.prompty"
    alone.write_text(build_text(path))
    original, built = load(path), load(alone)
    assert built.partials == {}
    assert "include" not in built.instructions
    assert prepare(built) == prepare(original)
    assert bodies_of(built) == bodies_of(original)
    assert ("# who asks" in head) == ("# who asks" in alone.read_text())


def test_the_command_prints_the_file(tmp_path: Path) -> None:
    (tmp_path / "_rules.md").write_text("Be kind.\n")
    path = tmp_path / "ask.prompty"
    path.write_text('---\nmodel: m # cheap\n---\nsystem:\n{% include "_rules.md" %}\nuser:\nHi\n')
    done = CliRunner().invoke(app, ["build", str(path)])
    assert (done.exit_code, done.stdout) == (0, "---\nmodel: m # cheap\n---\nsystem:\nBe kind.\nuser:\nHi\n")
    done = CliRunner().invoke(app, ["build", str(path), "-o", str(tmp_path / "flat.prompty")])
    assert (tmp_path / "flat.prompty").read_text().endswith("Be kind.\nuser:\nHi\n")
