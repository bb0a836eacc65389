"""Structured results: JSON text into a dict that remembers it, and into types of the caller's (P1, 000 §7.7)."""

import json
import typing
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel
from typing_extensions import TypedDict

from prompty.errors import PromptyError, ResultError
from prompty.pipeline import cast
from prompty.wire.structured import StructuredResult, parse_structured

TEXT = '{"city": "Oslo", "days": [1, 2]}'


@dataclass
class AsDataclass:
    city: str
    days: list[int]


class AsTypedDict(TypedDict):
    city: str
    days: list[int]


class AsPlainTypedDict(typing.TypedDict):
    city: str
    days: list[int]


class AsStruct(msgspec.Struct):
    city: str
    days: list[int]


class AsModel(BaseModel):
    city: str
    days: list[int]


@pytest.mark.spec("004 Structured Output", "the parsed answer is a plain dict")
def test_an_object_is_a_dict_that_remembers_its_text() -> None:
    result = parse_structured(TEXT)
    assert isinstance(result, dict)
    assert isinstance(result, StructuredResult)
    assert result == {"city": "Oslo", "days": [1, 2]}
    assert result.raw == TEXT
    assert json.loads(json.dumps(result)) == result


VALUES: dict[str, tuple[str, object]] = {
    "a list": ("[1]", [1]),
    "a number": ("1", 1),
    "blanks around": ('\n {"a": 1} ', {"a": 1}),
    "words": ("no JSON", "no JSON"),
    "nothing": ("", ""),
    "half an object": ('{"a": ', '{"a": '),
    "a key twice": ('{"a": 1, "a": 2}', {"a": 2}),
    "not a number": ('{"a": NaN}', '{"a": NaN}'),
    "half a character": ('{"a\\ud800": ["\\udfff"]}', {"a\ufffd": ["\ufffd"]}),
    "half a character, nested deep": ("[" * 900 + '"\\ud800"' + "]" * 900, "[" * 900 + '"\\ud800"' + "]" * 900),
    "nested without end": ("[" * 100_000, "[" * 100_000),
}


@pytest.mark.spec("000 §7.7", "what is not JSON is returned as it is")
@pytest.mark.parametrize(("text", "expected"), VALUES.values(), ids=VALUES)
def test_what_is_not_json_stays_text(text: str, expected: object) -> None:
    assert parse_structured(text) == expected


def test_a_result_becomes_a_type_of_the_callers() -> None:
    result = parse_structured(TEXT)
    assert cast(result, AsDataclass) == AsDataclass(city="Oslo", days=[1, 2])
    assert cast(result, AsTypedDict) == {"city": "Oslo", "days": [1, 2]}
    assert cast(result, AsPlainTypedDict) == {"city": "Oslo", "days": [1, 2]}
    assert cast(result, AsModel) == AsModel(city="Oslo", days=[1, 2])
    assert (
        cast(result, AsStruct) == cast({"city": "Oslo", "days": [1, 2]}, AsStruct) == AsStruct(city="Oslo", days=[1, 2])
    )
    assert cast(result, dict[str, object]) == result


def test_text_and_plain_values_become_a_type_too() -> None:
    assert cast(TEXT, AsModel) == AsModel(city="Oslo", days=[1, 2])
    assert cast({"city": "Oslo", "days": [1]}, AsDataclass) == AsDataclass(city="Oslo", days=[1])
    assert cast([0.1, 0.2], list[float]) == [0.1, 0.2]
    assert cast("12", int) == 12
    assert cast("Hello", str) == "Hello"


@pytest.mark.parametrize("result", [parse_structured('{"city": 1}'), "Sorry, no.", [1], None], ids=type)
@pytest.mark.parametrize("output_type", [AsDataclass, AsTypedDict, AsPlainTypedDict, AsStruct, AsModel])
def test_what_does_not_fit_is_an_error_naming_the_type(result: object, output_type: type) -> None:
    with pytest.raises(ResultError, match=f"not a {output_type.__name__}") as caught:
        cast(result, output_type)
    assert isinstance(caught.value, PromptyError)
    assert isinstance(caught.value, ValueError)


@given(st.dictionaries(st.text(max_size=5), st.lists(st.integers()) | st.text(max_size=9), max_size=4))
def test_what_json_writes_is_read_back(data: dict[str, object]) -> None:
    text = json.dumps(data)
    assert parse_structured(text) == cast(parse_structured(text), dict[str, object]) == data
