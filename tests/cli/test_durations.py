"""Durations on a command line."""

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st
from typer import BadParameter

from prompty.cli.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("1.5h", timedelta(minutes=90)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(days=14)),
        ("0s", timedelta(0)),
    ],
)
def test_a_number_with_a_unit_is_a_duration(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@given(st.text(max_size=12))
def test_any_other_text_is_named_with_an_example(text: str) -> None:
    try:
        parse_duration(text)
    except BadParameter as error:
        assert "7d" in error.message
    else:
        assert text[:-1].replace(".", "", 1).isdigit()
        assert text[-1] in "smhdw"
