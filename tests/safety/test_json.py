"""JSON: strict, fast, and of any depth."""

import json
from typing import Any

import pytest
from hypothesis import given

from prompty.safety.json import (
    MAX_CONTAINERS,
    MAX_JSON_CHARACTERS,
    MAX_STRINGS,
    MAX_VALUES,
    TooDeep,
    TooManyValues,
    _read_without_recursion,
    check_size,
    is_json_object,
    read_deep_json,
    read_json,
)
from tests.strategies import json_objects

SIZES = {
    "objects": (b"{}", MAX_CONTAINERS, "more than 200,000 objects and lists"),
    "lists": (b"[]", MAX_CONTAINERS, "more than 200,000 objects and lists"),
    "texts": (b'""', MAX_STRINGS, "more than 1,000,000 texts and names"),
    "numbers": (b"0", MAX_VALUES, "more than 10,000,000 values"),
}


@pytest.mark.parametrize(("entry", "limit", "reason"), SIZES.values(), ids=SIZES)
def test_json_of_too_many_values_is_refused_before_it_is_parsed(entry: bytes, limit: int, reason: str) -> None:
    check_size(b"[" + b",".join([entry] * (limit - 1)) + b"]")
    with pytest.raises(TooManyValues, match=reason):
        check_size(b"[" + b",".join([entry] * (limit + 2)) + b"]")


REFUSED_WHEN_STRICT = {
    "a duplicate key": ('{"a": 1, "b": {"c": 1, "c": 2}}', "duplicate key 'c'"),
    "not a number": ('{"a": NaN}', "NaN is not JSON"),
    "infinity": ("[-Infinity]", "Infinity is not JSON"),
    "a number that is too large": ("[1e999]", "the number 1e999 is too large"),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED_WHEN_STRICT.values(), ids=REFUSED_WHEN_STRICT)
def test_only_the_strict_reader_refuses_what_python_would_read(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_json(text)
    assert repr(read_json(text.encode(), strict=False)) == repr(json.loads(text))


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "Expecting value at line 1, column 1"),
    "half an object": ('{"a":\n 1', "at line 2, column 3"),
    "text behind it": ("{} x", "Extra data at line 1, column 4"),
    "bytes that are not UTF-8": (b'"\xff"', "codec can't decode"),
    "bottomless nesting": ("[" * 100_000, "nested too deep"),
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("data", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_json_is_refused_with_the_reason(data: str | bytes, reason: str, strict: bool) -> None:
    with pytest.raises(ValueError, match=reason):
        read_json(data, strict=strict)


def test_only_the_strict_reader_has_a_limit_of_length() -> None:
    text = f'"{"x" * MAX_JSON_CHARACTERS}"'
    with pytest.raises(ValueError, match="more than 4,000,000 characters"):
        read_json(text)
    assert read_json(text, strict=False) == text[1:-1]


ODD = {
    "half a surrogate pair": (b'"\\ud800"', "\ud800"),
    "a byte order mark": (b"\xef\xbb\xbf[1]", [1]),
    "500 levels": (b"[" * 500 + b"]" * 500, json.loads("[" * 500 + "]" * 500)),
}


@pytest.mark.parametrize(("data", "value"), ODD.values(), ids=ODD)
def test_what_servers_send_is_read_if_any_reader_can_read_it(data: bytes, value: object) -> None:
    assert read_json(data, strict=False) == value


@given(json_objects)
def test_all_readers_agree_on_ordinary_json(value: dict[str, Any]) -> None:
    text = json.dumps(value)
    assert read_json(text) == read_json(text.encode(), strict=False) == read_deep_json(text) == value
    assert is_json_object(text)
    assert not is_json_object(text[:-1])


@pytest.mark.parametrize("text", ["[1]", "1", '"{}"', "", '{"a": NaN}', '{"a": 1} x', "{'a': 1}", "\ud800"])
def test_anything_else_is_no_json_object(text: str) -> None:
    assert not is_json_object(text)


def test_only_the_deep_reader_reads_what_is_deeper_than_the_stack() -> None:
    text = "[" * 50_000 + "]" * 50_000
    with pytest.raises(TooDeep):
        read_json(text, strict=False)
    value: Any = read_deep_json(text.encode())
    for _ in range(49_999):
        [value] = value
    assert value == []


TEXTS = ["[]", "{}", '{"a": [1, 2.5e3, {"b": null}], "c": "\\" , ] \\u00e9 \\\\"}', " [ true , false ] ", '"x"', "-7"]
BROKEN = [
    "",
    "[",
    "]",
    "[1 2]",
    "[1,]",
    "[,1]",
    "{1: 2}",
    '{"a"}',
    '{"a": }',
    '{"a", 1}',
    "[1]]",
    "1,",
    "[}",
    '"x',
    "nope",
    "1 2",
    "[[1], -Infinity x]",
    "{{}: 1}",
]


@pytest.mark.parametrize("text", TEXTS)
def test_deep_json_is_read_as_the_ordinary_reader_reads_it(text: str) -> None:
    assert _read_without_recursion(text) == json.loads(text)


@pytest.mark.parametrize("text", BROKEN)
def test_deep_json_is_refused_where_the_ordinary_reader_refuses_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_deep_json(text)
    with pytest.raises(ValueError, match=r"."):
        _read_without_recursion(text)


@given(json_objects)
def test_json_is_the_same_without_recursion(value: dict[str, Any]) -> None:
    assert _read_without_recursion(json.dumps(value)) == value


def test_a_number_that_json_does_not_have_is_not_taken_for_a_container() -> None:
    with pytest.raises(ValueError, match="-Infinity is not JSON"):
        _read_without_recursion("[[1], -Infinity]")
    assert _read_without_recursion('[[1], "-Infinity"]') == [[1], "-Infinity"]
