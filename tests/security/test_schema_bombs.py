"""A small schema that expands to billions of subschemas is refused, wherever it comes from, before it is used."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import mcp_types
import pytest

from prompty import Paused
from prompty.cases.case_file import Check
from prompty.cases.checks import Observation, run_checks
from prompty.cases.reading import check_suite
from prompty.errors import ArgumentsError, ToolError
from prompty.safety.schemas import get_validator
from prompty.tools.calls import check_arguments
from prompty.tools.mcp.content import describe_tools
from tests.machine import time_factor
from tests.security.foreign_schemas import act, offer_operations, play
from tests.tools.openapi_parts import one_operation

Json = dict[str, Any]
REFUSED = "it expands to more than 10,000 subschemas"


def make_bomb(name: Callable[[int], Json], refer: Callable[[int], Json], levels: int = 9, width: int = 10) -> Json:
    """Return a schema in which each level refers to the next one many times."""
    parts = {f"x{level}": {**name(level), "anyOf": [refer(level + 1)] * width} for level in range(levels)}
    last = {f"x{levels}": {**name(levels), "type": "integer"}}
    return {"properties": {"a": refer(0)}, "$defs": {**parts, **last}}


BOMB = make_bomb(lambda _: {}, lambda level: {"$ref": f"#/$defs/x{level}"})
BOMBS = {
    "by pointers": BOMB,
    "by escaped pointers": make_bomb(lambda _: {}, lambda level: {"$ref": f"#/%24defs/x{level}"}),
    "by anchors": make_bomb(lambda level: {"$anchor": f"a{level}"}, lambda level: {"$ref": f"#a{level}"}),
    "by dynamic anchors": make_bomb(
        lambda level: {"$dynamicAnchor": f"a{level}"}, lambda level: {"$dynamicRef": f"#a{level}"}
    ),
    "by URIs": {
        "$id": "http://own.example/",
        **make_bomb(lambda level: {"$id": f"x{level}"}, lambda level: {"$ref": f"http://own.example/x{level}"}),
    },
    "by draft 4's ids": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        **make_bomb(lambda level: {"id": f"#a{level}"}, lambda level: {"$ref": f"#a{level}"}),
    },
    "by items": make_bomb(lambda _: {}, lambda level: {"items": {"$ref": f"#/$defs/x{level}"}}),
    "by conditions": make_bomb(
        lambda level: {
            "if": {"$ref": f"#/$defs/x{min(level + 1, 9)}"},
            "then": {"$ref": f"#/$defs/x{min(level + 1, 9)}"},
        },
        lambda level: {"not": {"$ref": f"#/$defs/x{level}"}},
        width=3,
    ),
    "with a way back, entered from its end": {
        "allOf": [{"$ref": "#/$defs/x9"}, {"$ref": "#/$defs/x0"}],
        "$defs": {
            f"x{level}": {
                "anyOf": [{"$ref": f"#/$defs/x{min(level + 1, 9)}"}] * 10,
                "properties": {"b": {"$ref": f"#/$defs/x{max(level - 1, 0)}"}},
            }
            for level in range(10)
        },
    },
}
ORDINARY = {
    "a tree": {"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"l": {"$ref": "#/$defs/n"}, "r": {"$ref": "#"}}}}},
    "a chain of 900 definitions": make_bomb(
        lambda _: {}, lambda level: {"$ref": f"#/$defs/x{level}"}, levels=900, width=1
    ),
    "properties named like keywords": {"properties": {"$ref": {"type": "string"}, "enum": {}, "default": {}}},
    "a reference in data": {"enum": [{"$ref": "#/enum/0"}, {"l": {"r": {}}}]},
    "9,000 properties": {"properties": {f"p{number}": {"type": "string"} for number in range(9_000)}},
    "a thousand uses of a definition of its own URI": {
        "$defs": {"a": {"$id": "http://own.example/a", "type": "string"}},
        "properties": {f"p{number}": {"$ref": "http://own.example/a"} for number in range(1_000)},
    },
    "true": True,
}


@pytest.mark.parametrize("schema", BOMBS.values(), ids=BOMBS)
def test_a_schema_that_expands_to_too_much_is_refused(schema: Json) -> None:
    assert len(json.dumps(schema)) < 6_000
    with pytest.raises(ValueError, match=REFUSED):
        get_validator(json.dumps(schema))


@pytest.mark.parametrize("schema", ORDINARY.values(), ids=ORDINARY)
def test_an_ordinary_schema_is_not(schema: object) -> None:
    assert get_validator(json.dumps(schema)).is_valid({"l": {"r": {}}})


def use_in_test_file(folder: Path) -> None:
    (folder / "a.prompty").write_text("---\nmodel: m\n---\nuser:\nHi\n")
    file = folder / "a.test.yaml"
    file.write_text(f"cases:\n- {{expect: {{render: {{json_schema: {json.dumps(BOMB)}}}}}}}\n")
    [problem] = check_suite(file)
    raise ToolError(problem.message, "")


def use_in_mcp_server(folder: Path) -> None:
    listing = json.dumps({"tools": [{"name": "act", "inputSchema": {"type": "object", **BOMB}}]})
    list(describe_tools(mcp_types.ListToolsResult.model_validate_json(listing).tools, "own"))


def use_in_openapi_document(folder: Path) -> None:
    schemas = json.loads(json.dumps(BOMB["$defs"]).replace("#/$defs/", "#/components/schemas/"))
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/x0"}}}}
    document = one_operation({"requestBody": body}, method="post", components={"schemas": schemas})
    offer_operations(json.dumps(document).encode())


PLACES = {
    "test file": use_in_test_file,
    "MCP server": use_in_mcp_server,
    "OpenAPI document": use_in_openapi_document,
}


@pytest.mark.parametrize("place", PLACES)
def test_no_place_takes_such_a_schema(place: str, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=REFUSED):
        PLACES[place](tmp_path)


def test_an_approval_condition_that_expands_to_too_much_asks_for_every_call() -> None:
    bomb = make_bomb(lambda _: {}, lambda level: {"$ref": f"#/$defs/x{level}"}, levels=6)
    definitions = json.loads(json.dumps(bomb["$defs"]).replace("#/$defs/", "#/properties/a/$defs/"))
    condition = {"$ref": "#/properties/a/$defs/x0", "$defs": definitions}
    tool = {
        "name": "act",
        "kind": "function",
        "parameters": {"a": "string"},
        "approvalMode": {"when": {"a": condition}},
    }
    assert isinstance(play({"tools": [tool]}, tools={"act": act}), Paused)


def test_errors_of_a_schema_that_refers_to_itself_are_listed_only_if_that_is_quick() -> None:
    """The engine would try six alternatives at each level: a second for five levels, and hours for ten."""
    node = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"]}
    alternatives = [{**node, "required": ["a", f"k{number}"]} for number in range(6)]
    validator = get_validator(json.dumps({"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": alternatives}}}))
    nested: Json = {"a": 1}
    with pytest.raises(ArgumentsError, match="is not valid under any of the schemas"):
        check_arguments(nested, validator)
    for _ in range(9):
        nested = {"a": nested}
    with pytest.raises(ArgumentsError, match=REFUSED):
        check_arguments(nested, validator)


def no_evaluators() -> NoReturn:
    raise AssertionError("no check of these is expensive")


def test_a_check_says_of_a_deeply_nested_answer_only_that_it_is_not_valid() -> None:
    schema = {"anyOf": [{"type": "array", "items": {"$ref": "#"}, "minItems": number} for number in (2, 3, 4)] * 3}
    nested: object = []
    for _ in range(9):
        nested = [nested]
    seen = Observation("", lambda: nested)
    [result] = run_checks("replay", [Check(json_schema=schema)], seen, no_evaluators)
    assert "the value is not valid, and too deeply nested to say where" in result.message


@pytest.mark.timing
def test_a_refusal_takes_at_most_50_ms(tmp_path: Path) -> None:
    uses: list[Callable[[], object]] = [partial(get_validator, json.dumps(schema)) for schema in BOMBS.values()]
    uses += [partial(use, tmp_path) for use in PLACES.values()]
    for use in uses:
        start = time.perf_counter()
        with pytest.raises((ValueError, ToolError), match=REFUSED):
            use()
        assert time.perf_counter() - start < 0.05 * time_factor()
