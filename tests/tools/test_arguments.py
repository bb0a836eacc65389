"""The arguments of a call: read strictly, completed by the host (L4, 003 §2.9.1)."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prompty.errors import ArgumentsError, InputError
from prompty.model.tool import FunctionTool
from prompty.safety.schemas import get_validator
from prompty.tools.calls import check_arguments, parse_arguments
from prompty.tools.toolbox import fill_bindings

READ: dict[str, tuple[str, Any]] = {
    "plain": ('{"a": 1}', {"a": 1}),
    "blanks": (' \n {"a": 1}\n', {"a": 1}),
    "nothing means none": ("", {}),
    "a fence": ('```\n{"a": 1}\n```', {"a": 1}),
    "a fence with a language": ('```json\n{"a": 1}\n```', {"a": 1}),
    "half a character": ('{"a\\ud800": ["\\udfff"]}', {"a\ufffd": ["\ufffd"]}),
    "half a character that is not escaped": ('{"a": "\ud800"}', {"a": "\ufffd"}),
    "both halves, escaped": ('{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
    "a fence inside a value": ('{"a": "```\\nx\\n```"}', {"a": "```\nx\n```"}),
}


@pytest.mark.spec("002 §8.7", "the caller parses the arguments of a call")
@pytest.mark.parametrize(("text", "arguments"), READ.values(), ids=READ)
def test_arguments_are_a_json_object_bare_or_in_one_fence(text: str, arguments: Any) -> None:
    assert parse_arguments(text) == arguments


REFUSED = {
    "a list": ("[1]", "not a JSON object"),
    "text": ('"a"', "not a JSON object"),
    "null": ("null", "not a JSON object"),
    "cut off": ('{"a": ', "line 1, column"),
    "two fences": ('```\n```\n{"a": 1}\n```\n```', "not valid JSON"),
    "an open fence": ('```json\n{"a": 1}', "not valid JSON"),
    "words around": ('Sure: {"a": 1}', "not valid JSON"),
    "nested too deep": ('{"a":' * 300 + "1" + "}" * 300, "nested more than"),
    "nested too deep for the JSON reader": ('{"a":' * 5000 + "1" + "}" * 5000, "nested too deep"),
    "nested too deep, with half a character": ("[" * 400 + '"\\ud800"' + "]" * 400, "nested more than"),
    "a key twice": ('{"a": 1, "a": 2}', "duplicate key 'a'"),
    "not a number": ('{"a": NaN}', "NaN is not JSON"),
    "a number beyond all floats": ('{"a": 8E24906}', "too large"),
    "infinity": ('{"a": -Infinity}', "Infinity is not JSON"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_anything_else_is_an_error_and_never_an_empty_object(text: str, said: str) -> None:
    with pytest.raises(ArgumentsError, match=said):
        parse_arguments(text)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers() | st.none() | st.booleans()))
def test_what_json_writes_is_read_back_with_and_without_a_fence(data: dict[str, Any]) -> None:
    text = json.dumps(data)
    assert parse_arguments(text) == parse_arguments(f"```json\n{text}\n```") == data


@given(st.text(alphabet='`{}[]":,aj1 \n', max_size=60))
def test_any_text_is_an_object_or_an_error(text: str) -> None:
    try:
        assert isinstance(parse_arguments(text), dict)
    except ArgumentsError as error:
        assert str(error)


TOOL = FunctionTool.model_validate(
    {"name": "t", "kind": "function", "bindings": {"user": {"input": "who"}, "limit": 10}}
)


@pytest.mark.spec("003 §2.9.1", "a bound value is always static")
@pytest.mark.spec("003 §2.9.1", "bound parameters are injected")
def test_bound_values_and_inputs_are_put_into_the_arguments() -> None:
    arguments = fill_bindings({"city": "Oslo"}, TOOL.bindings, {"who": "Ada"})
    assert arguments == {"city": "Oslo", "user": "Ada", "limit": 10}


@pytest.mark.spec("003 §2.9.1", "a binding wins over the model")
def test_a_binding_wins_over_what_the_model_wrote() -> None:
    arguments = fill_bindings({"user": "mallory", "limit": 10**6}, TOOL.bindings, {"who": "Ada"})
    assert arguments == {"user": "Ada", "limit": 10}


def test_a_binding_to_an_input_without_a_value_says_which() -> None:
    with pytest.raises(InputError, match="'user' is bound to the input 'who'"):
        fill_bindings({}, TOOL.bindings, {})


def test_a_value_that_the_validator_cannot_read_has_a_problem() -> None:
    deep: object = 1
    for _ in range(300):
        deep = [deep]
    validator = get_validator(json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}))
    for value in (deep, [deep] * 1000, "\ud800", ["\ud800"] * 1000):
        with pytest.raises(ArgumentsError):
            check_arguments({"a": value}, validator)


@pytest.mark.parametrize("reference", ["http://127.0.0.1:9/schema.json", "file:///etc/passwd", "other.json"])
def test_a_schema_that_refers_to_something_outside_is_refused(reference: str) -> None:
    with pytest.raises(ValueError, match=r"outside the schema|No base URI"):
        get_validator(json.dumps({"type": "object", "properties": {"a": {"$ref": reference}}}))
