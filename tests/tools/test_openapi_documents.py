"""OpenAPI documents: JSON and YAML, whole and broken, small and large."""

import copy
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from prompty.errors import ArgumentsError, ToolError
from prompty.safety.schemas import get_validator, is_legal
from prompty.tools.calls import is_valid
from prompty.tools.openapi import find_base_url, find_scheme
from prompty.tools.openapi.client import Permissions
from prompty.tools.openapi.document import parse_document
from prompty.tools.openapi.operations import list_operations
from prompty.tools.openapi.request import build_call
from tests.machine import time_factor
from tests.public_data import SHARED
from tests.tools.openapi_parts import document, read

YAML = """
openapi: 3.0.3
paths:
  /countries:
    get:
      operationId: countries
      parameters:
        - {name: code, in: query, schema: {type: string, enum: [NO, SE, 2024-01-01]}}
        - &limit {name: limit, in: query, schema: {type: integer, maximum: 1e2}}
      responses: {200: {description: ok}}
"""


def test_yaml_is_read_as_json_would_be() -> None:
    [found] = list_operations(parse_document(YAML.encode(), "api.yaml"))
    properties: Any = found.function.parameters["properties"]
    assert properties["code"]["enum"] == ["NO", "SE", "2024-01-01"]
    assert properties["limit"]["maximum"] == 100


def test_a_document_of_too_many_objects_is_refused_before_it_is_parsed() -> None:
    content = b'{"openapi": "3.1.0", "x": [' + b"{}," * 200_000 + b"{}]}"
    with pytest.raises(ToolError, match=r"api\.json: the document has more than 200,000 objects and lists"):
        parse_document(content, "api.json")


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
BROKEN = {
    "no document": (b"just text", "no version"),
    "swagger 2": (b'{"swagger": "2.0"}', "OpenAPI 3.0 or 3.1"),
    "version 4": (b'{"openapi": "4.0.0"}', "its version is '4.0.0'"),
    "broken JSON": (b'{"openapi": ', "not a JSON or YAML document"),
    "not a number": (b'{"openapi": NaN}', "NaN is not JSON"),
    "deep JSON": (b'{"a":' + b"[" * 100_000, "nested too deep"),
    "deep YAML": (b"a: " + b"[" * 300_000, "nested more than 200 levels deep"),
    "an alias bomb": (BOMB.encode(), "aliases expanded"),
    "an object of Python": (b"a: !!python/object:os.system {}", "not a JSON or YAML document"),
    "no text": (b"\xff\xfe\x00", "not a JSON or YAML document"),
}


@pytest.mark.parametrize(("content", "problem"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_is_no_document_is_an_error(content: bytes, problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        parse_document(content, "api")


@pytest.mark.parametrize(
    "paths", [{"/a": 1}, {"/a": {"get": {"requestBody": 1}}}, [], {"/a": {"get": {"parameters": [1]}}}]
)
def test_a_document_of_the_wrong_shape_is_an_error_of_ours(paths: Any) -> None:
    with pytest.raises(ToolError):
        list_operations(read(document(paths)))


SCHEMA = {"$ref": "#/components/schemas/A"}
BASE: dict[str, Any] = {
    "openapi": "3.0.3",
    "security": [{"k": []}],
    "paths": {
        "/a/{id}": {
            "parameters": [{"$ref": "#/components/parameters/P"}],
            "servers": [{"url": "/x", "variables": {"v": {"default": "1"}}}],
            "post": {
                "operationId": "x",
                "tags": ["t"],
                "parameters": [
                    {
                        "name": "q",
                        "in": "query",
                        "style": "form",
                        "schema": {"items": {"$ref": "#/components/schemas/A"}},
                    },
                    {"name": "h", "in": "header", "content": {"application/json": {"schema": {}}}},
                ],
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {"$ref": "#/components/schemas/A"},
                            "encoding": {"z": {"style": "form"}},
                        }
                    },
                },
            },
        }
    },
    "components": {
        "parameters": {"P": {"name": "id", "in": "path", "schema": {"pattern": "^a", "nullable": True}}},
        "schemas": {
            "A": {
                "type": "object",
                "properties": {"n": SCHEMA},
                "required": ["n"],
                "allOf": [{}],
            }
        },
        "securitySchemes": {"k": {"type": "apiKey", "in": "query", "name": "k"}},
    },
}


def places_in(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(inner for key, one in entries for inner in places_in(one, (*place, key)))]


PLACES = [place for place in places_in(BASE) if place and place != ("openapi",)]
REFERENCES = st.sampled_from(["#", "#/paths", "#/components/schemas/A", "other.json", 1]).map(lambda to: {"$ref": to})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | REFERENCES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PLACES), VALUES)
def test_whatever_stands_in_a_document_the_error_is_ours(place: tuple[Any, ...], value: Any) -> None:
    data: Any = copy.deepcopy(BASE)
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    found = read(data)
    with suppress(ToolError):
        for one in list_operations(found):
            assert is_legal(one.function.parameters)
            find_scheme(found, one)
            with suppress(ArgumentsError):
                build_call(one, {"id": "a", "q": [1], "h": {}, "n": {}, "body": {"a": 1}})


def test_half_a_character_in_a_document_is_replaced() -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ["\ud800"]}}}
    body = {"content": {"application/json": {"schema": schema}}}
    [found] = list_operations(read(document({"/x": {"post": {"operationId": "x", "requestBody": body}}})))
    assert is_legal(found.function.parameters)
    assert is_valid({"a": "\ufffd"}, get_validator(json.dumps(found.function.parameters)))


@pytest.mark.parametrize("url", ["https://[a", "https://[x]/", "//[1, None]", "https://a\u2100.example"])
def test_a_server_that_is_no_url_is_an_error_of_ours(url: str) -> None:
    found = parse_document(json.dumps(document({}, servers=[{"url": url}])).encode(), "a", "https://a.example/a.json")
    with pytest.raises(ToolError, match="is not an absolute"):
        find_base_url(found, None, Permissions())


OPENAI = SHARED / "openapi" / "openai-full.json"


@pytest.mark.timing
def test_the_document_of_openai_is_projected_within_two_seconds() -> None:
    assert OPENAI.exists(), "set PROMPTY_SHARED to the folder that holds openapi/openai-full.json"
    check_large(OPENAI, 288)


def check_large(path: Path, number: int) -> None:
    content = path.read_bytes()
    begin = time.process_time()
    found = list_operations(parse_document(content, path.name))
    assert time.process_time() - begin < 2 * time_factor()
    assert len(found) >= number
    assert len({one.function.name for one in found}) == len(found)
    assert all(is_legal(one.function.parameters) for one in found)
    for one in found:
        get_validator(json.dumps(one.function.parameters))  # it can be built
