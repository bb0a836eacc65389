"""The rules for sentences that textlint does not have."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from scripts.check_prose import MAX_WORDS, check_text, list_sentences

PAGE = Path("page.md")
LONG = "One " + "word " * MAX_WORDS + "more."

SENTENCES = {
    "two in a paragraph, over two lines": ("One\nsentence. And\nanother.", ["One sentence.", "And another."]),
    "headings are none": ("# A title\n\nText.", ["Text."]),
    "items are apart": ("- First\n- Second\n", ["First", "Second"]),
    "cells are apart": ("| a b | c |\n|---|---|\n| d | e |\n", ["a b", "c", "d", "e"]),
    "code is one word": ("Call `f(a, b, c)` now.", ["Call `code` now."]),
    "blocks of code are none": ("Before.\n\n```python\nWhat = 1\n```\n\nAfter.", ["Before.", "After."]),
    "a link is its text": ("See [the page](page.md).", ["See the page."]),
}


@pytest.mark.parametrize(("text", "sentences"), SENTENCES.values(), ids=SENTENCES)
def test_a_page_is_split_into_sentences(text: str, sentences: list[str]) -> None:
    assert [sentence.strip() for sentence in list_sentences(text) if sentence.strip()] == sentences


def test_a_long_sentence_is_found_where_sentences_are_short() -> None:
    assert [finding.problem for finding in check_text(PAGE, LONG, short=True)] == [f"{MAX_WORDS + 2} words"]
    assert list(check_text(PAGE, LONG, short=False)) == []


@pytest.mark.parametrize("text", ["What is stored stays.", "Fine. Who only calls needs nothing.", "- What it does."])
def test_an_opening_with_who_or_what_is_found(text: str) -> None:
    assert len(list(check_text(PAGE, text, short=False))) == 1


@pytest.mark.parametrize(
    "text", ["What is a monad?", "# What you get", "Whatever comes is fine.", "Say what you mean."]
)
def test_questions_headings_and_other_words_are_fine(text: str) -> None:
    assert list(check_text(PAGE, text, short=False)) == []


@given(st.text(max_size=200))
def test_any_text_can_be_split(text: str) -> None:
    assert all(list_sentences(text))
