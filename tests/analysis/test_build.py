"""`prompty build` writes a prompt with partials as one file that means the same."""

from pathlib import Path

import pytest
from hypothesis import assume, given, settings, strategies as st
from typer.testing import CliRunner

from prompty import PromptAgent, load, prepare
from prompty.analysis.explain import explain
from prompty.cli.app import app
from prompty.errors import RequestError
from prompty.pipeline.build import build_text
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
        try:
            found.append(explain(agent.model_copy(update={"model": model})).body)
        except RequestError as error:  # a conversation that this format does not allow
            found.append(str(error))
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
    assert built.files == {}
    assert "include" not in built.instructions
    assert prepare(built) == prepare(original)
    assert bodies_of(built) == bodies_of(original)
    assert ("# who asks" in head) == ("# who asks" in alone.read_text())


BASE_HEAD = """\
model:
  id: m # the usual one
  options: {temperature: 0.2, seed: 7}
inputs:
  name: {kind: string, default: Ada}
  flag: {kind: boolean, default: true}
tools:
  - name: look
    kind: function
    parameters: {q: {kind: string}}
metadata: {owner: docs}
"""
PATCHES = [
    "model: {id: other # pinned\n  }",
    "model: {options: {seed: null, maxOutputTokens: 9}}",
    "model:\n  options:\n    temperature: 1 # warm\n",
    "inputs: {name: {default: Bob}, flag: null}",
    "inputs: {more: {kind: string, default: x, description: null}}",
    "tools: null",
    "tools: [{name: find, kind: function}]",
    "metadata: null",
    "metadata: {owner: {team: x, lead: null}}",
    "description: {{ not a template",
    "name: ask",
]
patches = st.lists(st.sampled_from(PATCHES), max_size=3, unique_by=lambda patch: patch.partition(":")[0]).map("\n".join)
own_bodies = st.sampled_from(["", "system:\nOnly this, {{ name }}.\nuser:\nHi", "user:\nHi {% include '_a.md' %}"])
blocks = st.lists(
    st.tuples(st.sampled_from(["rules", "inner", "last"]), bodies | includes),
    min_size=1,
    max_size=2,
    unique_by=lambda b: b[0],
)
BASE_BODY = """\
system:
{% block rules %}
Be kind{% if flag %}!{% endif %}
{% block inner %}Inside.{% endblock %}
{% endblock %}
user:
Answer. BODY {%- block last -%} Bye. {%- endblock %}
"""


@settings(deadline=None, max_examples=500 if SOAK else 60)
@given(patches, own_bodies | blocks, st.lists(bodies | includes, max_size=3).map("".join), bodies, st.booleans())
def test_a_variant_that_is_built_means_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    patch: str,
    own: str | list[tuple[str, str]],
    body: str,
    partial: str,
    anchored: bool,
) -> None:
    folder = tmp_path_factory.mktemp("variant")
    (folder / "_a.md").write_text(partial)
    (folder / "_b.md").write_text(f'{partial}{{% include "_a.md" %}}')
    (folder / "_tone.md").write_text(TONE)
    head = BASE_HEAD.replace("{owner: docs}", "&shared {owner: docs}\nlike: *shared") if anchored else BASE_HEAD
    patch = patch.replace("{{ not a template", "'{{ not a template'")
    if isinstance(own, list):
        names = {name for name, _ in own}
        assume(not {"rules", "inner"} <= names)
        own = "\n".join(f"{{% block {name} %}}{text}{{% endblock %}}" for name, text in own)
    (folder / "ask.prompty").write_text(f"---\n{head}---\n{BASE_BODY.replace('BODY', body)}")
    (folder / "ask.other.prompty").write_text(f"---\n{patch}\n---\n{own}\n")
    flat = tmp_path_factory.mktemp("flat") / "ask.prompty"
    flat.write_text(build_text(folder / "ask.prompty", variant="other"))
    original, built = load(folder / "ask.prompty", variant="other"), load(flat)
    assert built.files == {}
    assert built.model_dump(exclude={"files"}) == original.model_dump(exclude={"files"})
    assert prepare(built) == prepare(original)
    assert bodies_of(built) == bodies_of(original)


def test_comments_survive_where_their_values_do(tmp_path: Path) -> None:
    (tmp_path / "ask.prompty").write_text(
        "---\n# ours\nmodel:\n  id: m # cheap\n  provider: openai # here\n---\nuser:\nHi\n"
    )
    (tmp_path / "ask.big.prompty").write_text("---\nmodel:\n  id: big # dear\n  provider: azure\n---\n")
    built = build_text(tmp_path / "ask.prompty", variant="big")
    assert built == "---\n# ours\nmodel:\n  id: big # dear\n  provider: azure\n---\nuser:\nHi\n"


def test_the_command_refuses_to_write_another_variant(tmp_path: Path) -> None:
    path = tmp_path / "ask.prompty"
    path.write_text("---\nmodel: m\n---\nuser:\nHi\n")
    done = CliRunner().invoke(app, ["build", str(path), "-o", str(tmp_path / "ask.flat.prompty")])
    assert done.exit_code == 1
    assert "would be a variant of ask.prompty" in done.output
    assert not (tmp_path / "ask.flat.prompty").exists()


def test_the_command_prints_the_file(tmp_path: Path) -> None:
    (tmp_path / "_rules.md").write_text("Be kind.\n")
    path = tmp_path / "ask.prompty"
    path.write_text('---\nmodel: m # cheap\n---\nsystem:\n{% include "_rules.md" %}\nuser:\nHi\n')
    done = CliRunner().invoke(app, ["build", str(path)])
    assert (done.exit_code, done.stdout) == (0, "---\nmodel: m # cheap\n---\nsystem:\nBe kind.\nuser:\nHi\n")
    done = CliRunner().invoke(app, ["build", str(path), "-o", str(tmp_path / "flat.prompty")])
    assert (tmp_path / "flat.prompty").read_text().endswith("Be kind.\nuser:\nHi\n")
