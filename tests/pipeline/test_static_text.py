"""The static text of a prompt is everything before the first tag of its template."""

from pathlib import Path

import pytest

from prompty import load, loads
from prompty.pipeline.caching import find_static_texts

JINJA2 = {
    "a value": ("system:\nBe brief.\nuser:\nHi {{x}}", ("Be brief.", "Hi")),
    "a value at the start of a message": ("system:\nBe brief.\nuser:\n{{x}} Hi", ("Be brief.",)),
    "a condition": ("system:\nBe brief.\n{% if x %}Now.{% endif %}", ("Be brief.",)),
    "a constant": ("system:\n{% set a = 1 %}Be brief.", ()),
    "a comment before the text": ("{# why -#}\nsystem:\nBe brief.\nuser:\n{{x}}", ("Be brief.",)),
    "a comment with a tag in it": ("system:\nBe {# {{x}} {% #}brief.\nuser:\n{{x}}", ("Be brief.",)),
    "no tag": ("system:\nBe brief.\nuser:\nHi \nassistant:\nHo", ("Be brief.", "Hi ", "Ho")),
    "a tag in a role marker": ('system:\nBe brief.\nuser[name="{{x}}"]:\nHi', ("Be brief.",)),
    "text in brackets before a value": ("user:\nRead it [1, {{x}}]", ("Read it [1,",)),
    "a value first": ("{{x}}", ()),
    "nothing": ("", ()),
}
MUSTACHE = {
    "a value": ("system:\nBe brief.\nuser:\nHi {{x}}", ("Be brief.", "Hi")),
    "a section": ("system:\nBe brief.\n{{#x}}Now.{{/x}}", ("Be brief.",)),
    "a comment": ("{{! why }}\nsystem:\nBe brief.\nuser:\n{{{x}}}", ("Be brief.",)),
    "a value after three braces": ("user:\nHi {{{x}}}", ("Hi",)),
}
CASES = [("jinja2", *case) for case in JINJA2.values()] + [("mustache", *case) for case in MUSTACHE.values()]


@pytest.mark.parametrize(("engine", "body", "texts"), CASES, ids=[*JINJA2, *(f"{name}, mustache" for name in MUSTACHE)])
def test_the_static_text_ends_at_the_first_tag(engine: str, body: str, texts: tuple[str, ...]) -> None:
    agent = loads(f"---\nmodel: m\ntemplate: {engine}\ninputs: {{x: string}}\n---\n{body}")
    assert find_static_texts(agent) == texts


def test_a_partial_counts_as_its_text_up_to_its_own_first_tag(tmp_path: Path) -> None:
    (tmp_path / "_rules.md").write_text("{# rules #}Be brief. Be {{x}}.")
    (tmp_path / "_head.md").write_text("Be kind.")
    file = tmp_path / "p.prompty"
    body = "system:\n{% include '_head.md' %}\n{% include '_rules.md' %}\nuser:\n{{x}}"
    file.write_text(f"---\nmodel: m\ninputs: {{x: string}}\n---\n{body}")
    assert find_static_texts(load(file)) == ("Be kind.\nBe brief. Be",)


def test_an_engine_of_the_host_has_no_static_text() -> None:
    assert find_static_texts(loads("---\nmodel: m\ntemplate: {format: {kind: own}}\n---\nuser:\nHi")) == ()
