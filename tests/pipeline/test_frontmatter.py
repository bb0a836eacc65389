"""Splitting a file into frontmatter and body (003 §2.2, F1)."""

import pytest
from hypothesis import given, strategies as st

from prompty import loads
from prompty.errors import LoadError
from prompty.pipeline.frontmatter import Unclosed, normalize, split

NORMATIVE = {
    "standard": ("---\nname: test\n---\nHello world", "name: test", "Hello world"),
    "none": ("Just a prompt with no frontmatter", None, "Just a prompt with no frontmatter"),
    "empty": ("---\n---\nBody only", "", "Body only"),
    "blanks before the delimiter": (" ---\nname: test\n---\nBody", "name: test", "Body"),
}


@pytest.mark.spec("003 §2.1", "frontmatter stands between two lines of --- or +++ and may be left out")
@pytest.mark.spec("003 §2.2", "whitespace may precede the opening delimiter")
@pytest.mark.spec("003 §2.2", "frontmatter is the text between the delimiters, the body all after them")
@pytest.mark.spec("003 §2.2", "the four vectors")
@pytest.mark.parametrize(("text", "frontmatter", "body"), NORMATIVE.values(), ids=NORMATIVE)
def test_the_normative_vectors_split_as_printed(text: str, frontmatter: str | None, body: str) -> None:
    parts = split(text)
    assert (parts.frontmatter and parts.frontmatter.strip("\n"), parts.body) == (frontmatter, body)


TRAPS = {
    "dashes inside a value": ("---\ndescription: a---b\n---\nBody", "description: a---b\n"),
    "dashes inside a key": ("---\nmodel: {connection: {apiKey: sk---abc}}\n---\nBody", None),
    "a banner comment": ("---\n# ---- model ----\nname: x\n---\nBody", "# ---- model ----\nname: x\n"),
    "an indented line of dashes in a block": (
        "---\ndescription: |\n  a\n  ---\n  b\n---\nBody",
        "description: |\n  a\n  ---\n  b\n",
    ),
    "pluses": ("+++\nname: x\n+++\nBody", "name: x\n"),
    "a byte order mark": ("\ufeff---\nname: x\n---\nBody", "name: x\n"),
    "carriage returns": ("---\r\nname: x\r\n---\r\nBody", "name: x\n"),
    "blanks after the delimiters": ("---  \nname: x\n--- \t\nBody", "name: x\n"),
    "blank lines before": ("\n\n  \n---\nname: x\n---\nBody", "name: x\n"),
    "newlines after the body": ("---\nname: x\n---\n\n\nBody\n\n", "name: x\n"),
}


@pytest.mark.spec("003 §2.1", "frontmatter stands between two lines of --- or +++ and may be left out")
@pytest.mark.spec("003 §2.2", "frontmatter ends at the next delimiter, wherever it stands")
@pytest.mark.spec("003 §2.2", "frontmatter is the text between the delimiters, the body all after them")
@pytest.mark.parametrize(("text", "frontmatter"), TRAPS.values(), ids=TRAPS)
def test_only_a_whole_line_closes_the_frontmatter(text: str, frontmatter: str | None) -> None:
    parts = split(normalize(text))
    assert parts.body == "Body"
    assert frontmatter is None or parts.frontmatter == frontmatter


@pytest.mark.spec("003 §2.2", "delimiters may differ")
@pytest.mark.parametrize(("opening", "closing"), [("---", "+++"), ("+++", "---")])
def test_opening_and_closing_may_differ(opening: str, closing: str) -> None:
    assert loads(f"{opening}\nname: x\n{closing}\nBody").name == "x"


@pytest.mark.spec("003 §2.2", "no closing delimiter is a ValueError")
@pytest.mark.parametrize(
    "text", ["---\nname: x\nBody", "---", "---\n", "+++\nname: x\n ---\nBody", "---\nname: x\n---y"]
)
def test_no_closing_delimiter_is_an_error_at_the_opening(text: str) -> None:
    with pytest.raises(ValueError, match="no closing delimiter") as caught:
        loads(text)
    assert isinstance(caught.value, LoadError)
    assert caught.value.problems[0].line == 1


@pytest.mark.spec("003 §2.2", "text that begins with no delimiter is all instructions")
@pytest.mark.spec("003 §2.1", "without delimiters all is body")
@pytest.mark.parametrize(
    "text", ["", "hello", "\n\nhello\n", "--- not a delimiter\n---\n", "----\nx\n----\n", "a\n---\nb\n---\n"]
)
def test_without_an_opening_delimiter_all_of_it_is_body(text: str) -> None:
    agent = loads(text)
    assert agent.instructions == text
    assert agent.name is None


@pytest.mark.spec("003 §2.1", "the body is the instructions of the agent")
def test_the_body_is_the_instructions() -> None:
    assert loads("---\nname: x\n---\nuser:\nHi").instructions == "user:\nHi"


def test_an_empty_body_is_legal() -> None:
    assert loads("---\nname: x\n---").instructions == ""
    assert loads("---\nname: x\n---\n\n").instructions == ""


def test_the_halves_know_where_they_begin() -> None:
    text = "\n\n---\nname: x\n---\n\n\n Body"
    parts = split(text)
    assert (text[parts.frontmatter_start :], text[parts.body_start :]) == ("name: x\n---\n\n\n Body", "Body")


def test_half_a_character_in_the_frontmatter_is_an_error_at_its_place() -> None:
    with pytest.raises(LoadError, match="half a character") as caught:
        loads("---\nname: x\ndescription: a\ud800\n---\nHello")
    [problem] = caught.value.problems
    assert (problem.code, problem.line, problem.column) == ("invalid-yaml", 3, 15)


@given(st.text(alphabet="-+ \n\tax", max_size=60))
def test_splitting_loses_nothing_but_edges(text: str) -> None:
    try:
        parts = split(text)
    except Unclosed as error:
        assert text[error.start :].startswith(("---", "+++"))
    else:
        assert text.startswith(parts.body, parts.body_start)
        assert text.startswith(parts.frontmatter or "", parts.frontmatter_start)
