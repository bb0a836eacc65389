"""Operations of OpenAPI documents as functions: names, descriptions, schemas, choices."""

import json
from typing import Any

import pytest

from prompty.errors import ToolError
from prompty.safety.schemas import get_validator, is_legal
from prompty.tools.calls import is_valid
from prompty.tools.openapi.operations import Selection, list_operations
from tests.tools.openapi_parts import document, one_operation, operation_of, read


def parameters_of(data: dict[str, Any]) -> dict[str, Any]:
    schema = operation_of(data).function.parameters
    assert is_legal(schema)
    return schema


def body_of(schema: dict[str, Any], media_type: str = "application/json", **body: Any) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}, **body}}


def property_of(schema: dict[str, Any], version: str = "3.0.3", **schemas: Any) -> Any:
    """What becomes of a schema."""
    data = one_operation(
        {"parameters": [{"name": "x", "in": "query", "schema": schema}]},
        openapi=version,
        components={"schemas": schemas},
    )
    return parameters_of({**data, "openapi": version})["properties"]["x"]


NAMES = {
    "the operationId": ({"operationId": "listPets"}, "listPets"),
    "cleaned": ({"operationId": "pets/list all"}, "pets_list_all"),
    "method and path": ({}, "get_pets_id"),
    "cut": ({"operationId": "a" * 100}, "a" * 64),
    "nothing usable": ({"operationId": "///"}, "operation"),
}


@pytest.mark.parametrize(("operation", "name"), NAMES.values(), ids=NAMES)
def test_the_name_of_an_operation(operation: dict[str, Any], name: str) -> None:
    assert operation_of(document({"/pets/{id}": {"get": operation}})).function.name == name


def test_a_name_that_is_repeated_gets_a_number() -> None:
    long = "b" * 64
    paths = {f"/{number}": {"get": {"operationId": long}, "put": {"operationId": "act"}} for number in range(3)}
    names = [one.function.name for one in list_operations(read(document(paths)))]
    assert names == [long, "act", f"{'b' * 62}_2", "act_2", f"{'b' * 62}_3", "act_3"]


def test_descriptions_show_hidden_characters_and_end() -> None:
    operation = {"summary": "Get\x1b[31m it", "description": "safe\u202eevil\U000e0041 " + "x" * 5000}
    parameters = [{"name": "q", "in": "query", "description": "a\u200bb", "schema": {"description": "c"}}]
    function = operation_of(one_operation({**operation, "parameters": parameters})).function
    assert function.description is not None
    assert function.description.startswith("Get\\x1b[31m it\n\nsafe\\u202eevil\\U000e0041 xxx")
    assert len(function.description) == 1000
    assert function.parameters["properties"]["q"]["description"] == "a\\u200bb"  # type: ignore[index]  # it is an object


def test_parameters_of_all_places_stand_by_name() -> None:
    places = [
        {"name": "id", "in": "path", "schema": {"type": "integer"}},
        {"name": "q", "in": "query", "required": True, "schema": {"type": "string"}},
        {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
        {"name": "page[size]", "in": "query", "schema": {"type": "integer"}},
        {"name": "session", "in": "cookie", "schema": {"type": "string"}},
        {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
    ]
    schema = parameters_of(one_operation({"parameters": places}, "/a/{id}"))
    assert list(schema["properties"]) == ["id", "q", "X-Trace", "page_size", "session"]
    assert schema["required"] == ["id", "q"]
    assert schema["additionalProperties"] is False


def test_a_name_in_two_places_gets_the_place_before_it() -> None:
    places = [{"name": "id", "in": place, "schema": {"type": "string"}} for place in ("path", "query")]
    assert list(parameters_of(one_operation({"parameters": places}, "/a/{id}"))["properties"]) == [
        "path_id",
        "query_id",
    ]


def test_an_operation_replaces_parameters_of_its_path() -> None:
    shared = [{"name": "a", "in": "query", "schema": {"type": "string"}}, {"$ref": "#/components/parameters/B"}]
    own = [{"name": "a", "in": "query", "schema": {"type": "integer"}}]
    components = {"parameters": {"B": {"name": "b", "in": "query", "schema": {"type": "boolean"}}}}
    data = document({"/x": {"parameters": shared, "get": {"parameters": own}}}, components=components)
    assert parameters_of(data)["properties"] == {"a": {"type": "integer"}, "b": {"type": "boolean"}}


PLAIN = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
BODIES: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "an object": (body_of(PLAIN), ["name"], ["name"]),
    "a form": (body_of(PLAIN, "application/x-www-form-urlencoded"), ["name"], ["name"]),
    "an object behind a reference": (body_of({"$ref": "#/components/schemas/Plain"}), ["name"], ["name"]),
    "an optional one that needs something": (body_of(PLAIN, required=False), ["body"], []),
    "a list": (body_of({"type": "array", "items": {"type": "string"}}), ["body"], ["body"]),
    "an object with any keys": (body_of({**PLAIN, "additionalProperties": True}), ["body"], ["body"]),
    "a choice": (body_of({"oneOf": [PLAIN, {"type": "string"}]}), ["body"], ["body"]),
    "text": (body_of({"type": "string"}, "text/plain"), ["body"], ["body"]),
    "only for answers": (
        body_of({"type": "object", "properties": {"id": {"readOnly": True}, "a": {}}, "required": ["id", "a"]}),
        ["a"],
        ["a"],
    ),
}


@pytest.mark.parametrize(("operation", "names", "required"), BODIES.values(), ids=BODIES)
def test_bodies_become_arguments(operation: dict[str, Any], names: list[str], required: list[str]) -> None:
    schema = parameters_of(one_operation(operation, method="post", components={"schemas": {"Plain": PLAIN}}))
    assert (list(schema["properties"]), schema["required"]) == (names, required)


def test_a_body_whose_properties_clash_stays_one_value() -> None:
    operation = {"parameters": [{"name": "name", "in": "query", "schema": {}}], **body_of(PLAIN)}
    assert list(parameters_of(one_operation(operation, method="post"))["properties"]) == ["name", "body"]
    operation["parameters"] = [{"name": "body", "in": "query", "schema": {}}, *operation["parameters"]]
    assert list(parameters_of(one_operation(operation, method="post"))["properties"]) == [
        "body",
        "name",
        "request_body",
    ]


def test_recursive_schemas_keep_the_definitions_that_are_needed() -> None:
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#/components/schemas/Node"}, "leaf": {"$ref": "#/components/schemas/Leaf"}},
    }
    schemas = {"Node": node, "Leaf": {"type": "integer"}, "Other": {"type": "string"}}
    schema = parameters_of(
        one_operation(body_of({"$ref": "#/components/schemas/Node"}), components={"schemas": schemas})
    )
    assert schema["properties"]["next"] == {"$ref": "#/$defs/Node"}
    assert list(schema["$defs"]) == ["Leaf", "Node"]
    assert is_valid({"next": {"next": {"leaf": 1}}}, get_validator(json.dumps(schema)))
    assert not is_valid({"next": {"next": {"leaf": "no"}}}, get_validator(json.dumps(schema)))


def test_references_into_other_parts_of_the_document_get_names_of_their_own() -> None:
    inner = {"$ref": "#/components/schemas/A/properties/a~1b"}
    data = one_operation(
        body_of({"type": "array", "items": inner}),
        components={"schemas": {"A": {"properties": {"a/b": {"type": "integer"}}}}},
    )
    schema = parameters_of(data)
    [name] = schema["$defs"]
    assert schema["properties"]["body"]["items"] == {"$ref": f"#/$defs/{name}"}
    assert not is_valid({"body": ["x"]}, get_validator(json.dumps(schema)))


DIALECT: dict[str, tuple[dict[str, Any], Any]] = {
    "nullable": ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
    "nullable choice": (
        {"type": "string", "enum": ["a"], "nullable": True},
        {"type": ["string", "null"], "enum": ["a", None]},
    ),
    "nullable combination": (
        {"allOf": [{"type": "string"}], "nullable": True},
        {"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]},
    ),
    "exclusive minimum": ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
    "inclusive maximum": ({"maximum": 1, "exclusiveMaximum": False}, {"maximum": 1}),
    "a bound of today": ({"exclusiveMinimum": 3}, {"exclusiveMinimum": 3}),
    "combinations": (
        {"oneOf": [{"type": "string"}, {"type": "null"}]},
        {"oneOf": [{"type": "string"}, {"type": "null"}]},
    ),
    "what says nothing": ({"type": "string", "xml": {}, "example": "a", "x-a": 1, "title": "T"}, {"type": "string"}),
    "data is not schema": (
        {"default": {"nullable": True}, "enum": [{"$ref": "no"}]},
        {"default": {"nullable": True}, "enum": [{"$ref": "no"}]},
    ),
    "a pattern that nobody can check": ({"type": "string", "pattern": "("}, {"type": "string"}),
    "a mistake of many": ({"type": "string", "required": True}, {"type": "string"}),
    "a reference alone": ({"$ref": "#/components/schemas/A", "maxLength": 1}, {"$ref": "#/$defs/A"}),
}


@pytest.mark.parametrize(("schema", "expected"), DIALECT.values(), ids=DIALECT)
def test_the_dialect_of_3_0_becomes_json_schema(schema: dict[str, Any], expected: Any) -> None:
    assert property_of(schema, A={"type": "string"}) == expected


def test_in_3_1_keywords_beside_a_reference_count() -> None:
    found = property_of({"$ref": "#/components/schemas/A", "maxLength": 1}, "3.1.0", A={"type": "string"})
    assert found == {"$ref": "#/$defs/A", "maxLength": 1}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"$ref": "https://evil.example/schema.json"}, "leaves the document"),
        ({"$ref": "other.json#/A"}, "leaves the document"),
        ({"items": {"$ref": "file:///etc/passwd"}}, "leaves the document"),
        ({"$ref": "#/components/schemas/None"}, "has no target"),
        ({"type": "any"}, "not legal JSON Schema"),
        ({"$dynamicRef": "#x"}, r"a schema has `\$dynamicRef`"),
        ({"$recursiveRef": "#"}, r"a schema has `\$recursiveRef`"),
        ({"items": []}, "expected a schema"),
    ],
)
def test_a_schema_that_cannot_be_used_is_an_error_that_names_its_operation(schema: Any, problem: str) -> None:
    with pytest.raises(ToolError, match=problem) as caught:
        property_of(schema)
    assert "(in GET /thing)" in str(caught.value)
    assert "operations:" in str(caught.value) or "Correct" in str(caught.value)


@pytest.mark.parametrize("style", ["label", "matrix"])
def test_a_path_parameter_of_a_style_that_is_not_written_is_an_error_that_names_it(style: str) -> None:
    operation = {"parameters": [{"name": "id", "in": "path", "style": style, "schema": {"type": "string"}}]}
    with pytest.raises(ToolError, match=f"the path parameter 'id' has the style '{style}'") as caught:
        operation_of(one_operation(operation, "/pets/{id}"))
    assert "(in GET /pets/{id})" in str(caught.value)
    assert "select other operations with `operations:`" in str(caught.value)


def test_a_recursive_reference_means_the_definition_around_it() -> None:
    tree = {"type": "object", "$recursiveAnchor": True, "properties": {"next": {"$recursiveRef": "#"}}}
    schema = parameters_of(
        one_operation(body_of({"$ref": "#/components/schemas/Tree"}), components={"schemas": {"Tree": tree}})
    )
    assert schema["$defs"]["Tree"]["properties"] == {"next": {"$ref": "#/$defs/Tree"}}


def test_a_circle_of_references_is_an_error() -> None:
    schemas = {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}}
    with pytest.raises(ToolError, match="cycle"):
        operation_of(one_operation(body_of({"$ref": "#/components/schemas/A"}), components={"schemas": schemas}))


PATHS = {
    "/pets": {"get": {"operationId": "list", "tags": ["read"]}, "post": {"operationId": "add", "tags": ["write"]}},
    "/pets/{id}": {"get": {"operationId": "pets/one", "tags": ["read"]}},
}
CHOICES = {
    "all": (Selection(), ["list", "add", "pets_one"]),
    "by name": (Selection(operations=("add", "pets/one")), ["add", "pets_one"]),
    "by tag": (Selection(tags=("read",)), ["list", "pets_one"]),
    "by method": (Selection(methods=("POST",)), ["add"]),
    "by all of them": (Selection(tags=("read",), methods=("get",), operations=("list",)), ["list"]),
}


@pytest.mark.parametrize(("selection", "names"), CHOICES.values(), ids=CHOICES)
def test_operations_are_chosen(selection: Selection, names: list[str]) -> None:
    assert [one.function.name for one in list_operations(read(document(PATHS)), selection)] == names


def test_a_choice_of_what_is_not_there_is_an_error() -> None:
    with pytest.raises(ToolError, match="there is no operation 'lst'"):
        list_operations(read(document(PATHS)), Selection(operations=("lst",)))
    with pytest.raises(ToolError, match="the selection matches no operation"):
        list_operations(read(document(PATHS)), Selection(tags=("none",)))
