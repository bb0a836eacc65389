"""Soundness of the static prefix: every body of random renders begins with the prefix that was proved, byte for byte.

Broken analyses show that the comparison can fail.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import prompty
from prompty import Message, PromptAgent
from prompty.errors import PromptyError
from prompty.pipeline import static_prefix
from prompty.pipeline.history import normalize_history
from prompty.pipeline.static_prefix import PrefixEnd, is_spoken, prove_static_prefix
from prompty.providers import PROVIDERS, Api
from prompty.renderers import outline
from tests.pipeline.prefix_cases import INPUTS, JINJA2, MUSTACHE, draw_inputs, flatten
from tests.v1.corpus import ENDPOINTS, ROOT, VARIABLES, get_broken, list_files, load_quietly

FORMATS = (("openai", "chat"), ("openai", "responses"), ("anthropic", "chat"))
NIGHTLY_RENDERS = 150


def list_nasty() -> Iterator[PromptAgent]:
    for engine, templates in (("mustache", MUSTACHE), ("jinja2", JINJA2)):
        for template in templates:
            yield prompty.loads(f"---\nmodel: m\n{INPUTS}template: {engine}\n---\n{template}")


def list_corpus() -> Iterator[PromptAgent]:
    for file in list_files():
        if get_broken(file) is None:
            yield load_quietly(file)


class Comparison:
    """Counts the bodies that begin with the proved prefix (`same`), and those that do not (`differs`)."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.differing: list[tuple[str, str, str]] = []

    def add(self, agent: PromptAgent, renders: int) -> None:
        chance = random.Random(agent.instructions)  # noqa: S311  no secret
        conversations = [prepared for _ in range(renders) if (prepared := self.prepare(agent, chance)) is not None]
        for provider, api_type in FORMATS:
            self.compare(agent, agent.registry[PROVIDERS].get(provider).api(api_type), conversations)

    def prepare(self, agent: PromptAgent, chance: random.Random) -> list[Message] | None:
        try:
            return prompty.prepare(agent, draw_inputs(agent, chance))
        except PromptyError:
            self.counts["not rendered"] += 1
            return None

    def compare(self, agent: PromptAgent, api: Api, conversations: list[list[Message]]) -> None:
        prefix = prove_static_prefix(agent, api, functions=[])
        expected: str | None = None
        for messages in conversations:
            sent = normalize_history(messages, api.call_ids)
            if prefix.if_spoken and not is_spoken(sent):
                self.counts["only instructions"] += 1
                continue
            try:
                body = api.request(agent, sent, [])
            except PromptyError:
                self.counts["refused"] += 1
                continue
            end = prefix.find_end(body)
            if expected is None:
                expected = write_until(body, end)
            same = (end is not None or not prefix.blocks) and write(body).startswith(expected)
            self.counts["same" if same else "differs"] += 1
            if not same:
                self.differing.append((agent.instructions, api.name, prefix.text))


def write(body: dict[str, Any]) -> str:
    return "".join(text for _, text in flatten(body))


def write_until(body: dict[str, Any], end: PrefixEnd | None) -> str:
    """Return a body up to the end of its prefix."""
    written = ""
    for path, text in flatten(body):
        if end is None:
            return ""
        if path == end.path:
            return written + text[: end.characters]
        if end.path[0] == "tools" and path == ("tools",):
            return written
        written += text
    return written


def compare_all(agents: Iterable[PromptAgent], renders: int) -> Comparison:
    comparison = Comparison()
    for agent in agents:
        comparison.add(agent, renders)
    return comparison


def test_nasty_templates_keep_their_prefix() -> None:
    comparison = compare_all(list_nasty(), 15)
    assert comparison.differing == []
    assert comparison.counts["same"] > 1_500


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**VARIABLES, **dict.fromkeys(ENDPOINTS, "https://example.openai.azure.com")}.items():
        monkeypatch.setenv(name, value)


needs_corpus = pytest.mark.skipif(not ROOT.exists(), reason="the public files are not here")


@needs_corpus
@pytest.mark.slow
@pytest.mark.usefixtures("variables")
def test_public_files_keep_their_prefix() -> None:
    comparison = compare_all(list_corpus(), 5)
    assert comparison.differing == []
    assert comparison.counts["same"] > 1_000


@needs_corpus
@pytest.mark.nightly
@pytest.mark.usefixtures("variables")
def test_all_templates_keep_their_prefix_in_many_renders() -> None:
    public, nasty = compare_all(list_corpus(), NIGHTLY_RENDERS), compare_all(list_nasty(), NIGHTLY_RENDERS)
    print(f"public files {dict(public.counts)}, nasty templates {dict(nasty.counts)}")  # noqa: T201  the figures
    assert public.differing == nasty.differing == []


def test_a_prefix_is_long_enough_to_be_of_use() -> None:
    """A proof of nothing would be sound."""
    proved = [prove_static_prefix(agent, functions=[]) for agent in list_nasty()]
    assert sum(bool(prefix.blocks) for prefix in proved) > 0.8 * len(proved)


def _know_only_what_is_there(known: list[Message], *_: object, **__: object) -> Iterator[list[Message]]:
    yield known


MUTANTS: dict[str, tuple[object, str, object]] = {
    "values are not followed through set and macros": (outline._Jinja2Outline, "spread", lambda _: None),
    "random is steady": (outline, "_STEADY_FILTERS", outline._STEADY_FILTERS | {"random"}),
    "threads and images are text": (static_prefix, "_list_kinds", lambda _: []),
    "markers in macros are not seen": (outline._Jinja2Outline, "has_markers", lambda *_: False),
    "messages that may follow change nothing": (static_prefix, "_list_cases", _know_only_what_is_there),
    "roles after the cut are not seen": (outline, "_find_roles", lambda _: set()),
    "spaces before a value stay": (static_prefix, "_strip_end", lambda text: text),
    "conditions are values": (outline._Jinja2Outline, "cut", lambda *_: None),
    "sections are values": (outline, "_is_section", lambda _: False),
}


@pytest.mark.parametrize(("owner", "name", "broken"), MUTANTS.values(), ids=MUTANTS)
def test_a_broken_analysis_is_caught(
    owner: object, name: str, broken: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, broken)
    assert any(compare_all([agent], 15).differing for agent in list_nasty())
