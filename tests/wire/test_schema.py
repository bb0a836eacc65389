"""Properties to JSON Schema, and tools to functions (W4, W5, 003 §2.9.1)."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, strategies as st

from prompty.model.property import Property
from prompty.model.tool import FunctionTool
from prompty.wire.structured import build_function, build_schema

Json = dict[str, Any]

SHAPES: dict[str, tuple[Json, Json]] = {
    "text": ({"kind": "string"}, {"type": "string"}),
    "whole": ({"kind": "integer"}, {"type": "integer"}),
    "decimal": ({"kind": "float"}, {"type": "number"}),
    "truth": ({"kind": "boolean"}, {"type": "boolean"}),
    "a bare list says that it may hold anything": ({"kind": "array"}, {"type": "array", "items": {}}),
    "a bare mapping": ({"kind": "object"}, {"type": "object"}),
    "rich kinds are text": ({"kind": "image"}, {"type": "string"}),
    "described": ({"kind": "string", "description": "d"}, {"type": "string", "description": "d"}),
    "an enum": ({"kind": "string", "enumValues": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
    "a list of lists": (
        {"kind": "array", "items": {"kind": "array", "items": {"kind": "float"}}},
        {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    ),
    "a mapping": (
        {"kind": "object", "properties": {"a": {"kind": "string", "required": True}, "b": 1}},
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]},
    ),
}


@pytest.mark.spec("000 §7.1.4", "a schema has the descriptions and the allowed values of its properties")
@pytest.mark.spec("000 §7.1.4", "a schema is one level deep")
@pytest.mark.spec("000 §7.1.4", "required lists what is required and is left out where nothing is")
@pytest.mark.parametrize(("data", "expected"), SHAPES.values(), ids=SHAPES)
def test_each_kind_becomes_its_type(data: Json, expected: Json) -> None:
    schema = build_schema([Property.model_validate({"name": "x", **data})])
    assert schema == {"type": "object", "properties": {"x": expected}}


@pytest.mark.spec("000 §7.1.6", "an output that is only called an object may have any key")
def test_strict_closes_every_object_and_makes_what_is_optional_nullable() -> None:
    properties = [
        Property.model_validate({"name": "plain", "kind": "string"}),
        Property.model_validate({"name": "maybe", "kind": "string", "required": False, "enumValues": ["a"]}),
        Property.model_validate({"name": "inner", "properties": {"deep": {"kind": "object", "required": False}}}),
    ]
    closed = {"additionalProperties": False}
    deep = {"type": ["object", "null"], "properties": {}, **closed}
    assert build_schema(properties, strict=True) == {
        "type": "object",
        "properties": {
            "plain": {"type": "string"},
            "maybe": {"type": ["string", "null"], "enum": ["a", None]},
            "inner": {"type": "object", "properties": {"deep": deep}, "required": ["deep"], **closed},
        },
        "required": ["plain", "maybe", "inner"],
        **closed,
    }


def tool(**fields: Any) -> FunctionTool:
    return FunctionTool.model_validate({"name": "t", "kind": "function", **fields})


PARAMETERS = {"user": {"kind": "string", "required": True}, "limit": {"kind": "integer", "required": True}}


@pytest.mark.spec("003 §2.9.1", "bound parameters are stripped")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("binding", ["static", {"input": "who"}])
def test_bound_parameters_are_in_neither_properties_nor_required(strict: bool, binding: object) -> None:
    function = build_function(tool(parameters=PARAMETERS, bindings={"user": binding}, strict=strict))
    assert "user" not in str(function.parameters)
    assert function.parameters["required"] == ["limit"]


def test_a_function_whose_parameters_are_all_bound_takes_none() -> None:
    function = build_function(tool(parameters=PARAMETERS, bindings={"user": 1, "limit": 2}))
    assert function.parameters == {"type": "object", "properties": {}}


kinds = st.sampled_from(["string", "integer", "float", "boolean", "image"])
leaf = st.fixed_dictionaries({"kind": kinds}, optional={"description": st.text(max_size=5), "required": st.booleans()})
names = st.text("abc", min_size=1, max_size=2)
entry = st.recursive(
    leaf,
    lambda inner: (
        st.fixed_dictionaries({"kind": st.just("array"), "items": inner})
        | st.fixed_dictionaries({"kind": st.just("object"), "properties": st.dictionaries(names, inner, max_size=3)})
    ),
    max_leaves=8,
)


@given(st.dictionaries(names, entry, max_size=4), st.booleans())
def test_every_schema_is_valid_and_strict_ones_are_closed_all_the_way_down(data: Json, strict: bool) -> None:
    schema = build_schema(tool(parameters=data).parameters, strict=strict)
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    for inner in objects_in(schema):
        if strict:
            assert inner["additionalProperties"] is False
            assert inner.get("required", []) == list(inner["properties"])
        else:
            assert inner.get("required") != []


def objects_in(schema: Json) -> list[Json]:
    inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    own = [schema] if schema.get("properties") is not None else []
    return own + [found for one in inner for found in objects_in(one)]
