"""Inputs and model options of a command line, read from generated text."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from prompty import loads
from prompty.cli.inputs import read_inputs
from prompty.cli.options import read_options
from prompty.errors import InputError, PromptyError
from tests.strategies import json_objects, names, texts

AGENT = loads("---\ninputs: {q: {kind: string, required: true}, o: {kind: object}}\n---\nuser:\n{{q}}{{o}}\n")


@given(names, json_objects)
def test_an_option_of_the_model_that_is_json_is_read_as_json(name: str, value: dict[str, object]) -> None:
    assert read_options([f"{name}={json.dumps(value)}"]) == {name: value}


@given(texts.map(lambda text: f"text {text}"))
def test_an_option_of_the_model_that_is_not_json_is_text(text: str) -> None:
    assert read_options([f"stop={text}"]) == {"stop": text}


@given(texts.filter(lambda text: text != "-"))
def test_the_last_argument_is_read_like_a_named_input(text: str) -> None:
    escaped = f"@{text}" if text.startswith("@") else text
    assert read_inputs(AGENT, None, value=escaped) == read_inputs(AGENT, [f"q={escaped}"]) == {"q": text}


@given(json_objects)
@settings(max_examples=50, deadline=None)
def test_a_file_and_an_option_give_the_same_input(value: dict[str, object]) -> None:
    text = json.dumps({"q": "x", "o": value})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_text", lambda *_, **__: text)
        by_file = [read_inputs(AGENT, None, Path(name)) for name in ("in.json", "in.yaml")]
    assert by_file == [read_inputs(AGENT, ["q=x", f"o={json.dumps(value)}"])] * 2


@given(st.lists(st.text(st.characters(exclude_characters="-@"), max_size=20), max_size=3))
def test_any_other_text_is_an_input_or_an_error_that_says_how_to_write_one(pairs: list[str]) -> None:
    try:
        read_inputs(AGENT, pairs)
        read_options(pairs)
    except PromptyError as error:
        assert isinstance(error, InputError) or "--option" in str(error)
