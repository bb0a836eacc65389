"""Hidden characters are escaped, and in the same way wherever text is shown."""

import mcp_types as types
import pytest
from hypothesis import given, strategies as st

from prompty import trace_to
from prompty.safety.visible import visible
from prompty.tools.mcp.content import describe_tools
from prompty.tracing import Tracer
from prompty.tracing.spans import begin
from tests.tools.openapi_parts import one_operation, operation_of

HIDDEN = {
    "null": ("\0", "\\x00"),
    "escape": ("\x1b", "\\x1b"),
    "carriage return": ("\r", "\\r"),
    "C1 control": ("\x9b", "\\x9b"),
    "soft hyphen": ("\xad", "\\xad"),
    "grapheme joiner": ("\u034f", "\\u034f"),
    "Arabic letter mark": ("\u061c", "\\u061c"),
    "Hangul choseong filler": ("\u115f", "\\u115f"),
    "Hangul jungseong filler": ("\u1160", "\\u1160"),
    "Mongolian variation selector": ("\u180b", "\\u180b"),
    "zero-width space": ("\u200b", "\\u200b"),
    "zero-width joiner": ("\u200d", "\\u200d"),
    "line separator": ("\u2028", "\\u2028"),
    "right-to-left override": ("\u202e", "\\u202e"),
    "isolate": ("\u2066", "\\u2066"),
    "blank Braille pattern": ("\u2800", "\\u2800"),
    "Hangul filler": ("\u3164", "\\u3164"),
    "surrogate": ("\ud800", "\\ud800"),
    "private use": ("\ue000", "\\ue000"),
    "variation selector": ("\ufe01", "\\ufe01"),
    "emoji selector behind a letter": ("\ufe0f", "\\ufe0f"),
    "byte order mark": ("\ufeff", "\\ufeff"),
    "halfwidth Hangul filler": ("\uffa0", "\\uffa0"),
    "tag": ("\U000e0041", "\\U000e0041"),
    "unassigned": ("\U000e0fff", "\\U000e0fff"),
    "supplementary variation selector": ("\U000e0101", "\\U000e0101"),
}
every_hidden = pytest.mark.parametrize(("hidden", "escape"), HIDDEN.values(), ids=HIDDEN)


@every_hidden
def test_a_hidden_character_becomes_its_escape(hidden: str, escape: str) -> None:
    assert visible(f"a{hidden}b\n\tc é 漢") == f"a{escape}b\n\tc é 漢"


def on_console(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    trace_to("console")
    try:
        with pytest.raises(RuntimeError), begin("mine"):
            raise RuntimeError(text)
    finally:
        Tracer.clear()
    return capsys.readouterr().err


def from_mcp(text: str) -> str:
    tool = types.Tool(name="look", description=text, input_schema={"type": "object"})
    [(_, function)] = describe_tools([tool], "server")
    return str(function.description)


def from_openapi(text: str) -> str:
    return str(operation_of(one_operation({"description": text})).function.description)


@every_hidden
def test_console_and_tool_descriptions_escape_alike(
    hidden: str, escape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, expected = f"a{hidden}b", f"a{escape}b"
    assert expected in on_console(text, capsys)
    assert from_mcp(text) == expected
    read = "a\ufffdb" if hidden == "\ud800" else expected  # a document is repaired when it is read
    assert from_openapi(text) == read


@pytest.mark.parametrize(
    "text", ["⚠\ufe0f", "❤\ufe0f", "1\ufe0f\u20e3", "\ufe0f ends a stream", "line\n\ttab", "naïve 漢"]
)
def test_emoji_and_ordinary_text_stay(text: str) -> None:
    assert visible(text) == text


@given(st.text())
def test_what_is_visible_stays_visible(text: str) -> None:
    assert visible(visible(text)) == visible(text)
