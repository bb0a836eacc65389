"""Unions and nullable properties: their JSON Schema on three APIs, strict and not (F17, §7.1.4)."""

import copy
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from openai.lib._pydantic import _ensure_strict_json_schema
from pydantic import BaseModel, ValidationError

from prompty import PromptAgent, invoke, user
from prompty.analysis.schema_values import create_value
from prompty.errors import RequestError
from prompty.model.property import Property
from prompty.pipeline import cast
from prompty.pipeline.request import list_declared_functions
from prompty.pipeline.validate import find_misfits
from prompty.providers import Api
from prompty.providers.anthropic import messages
from prompty.providers.fitting import fit_request
from prompty.providers.openai import chat, responses
from prompty.testing import Script
from prompty.wire.structured import build_schema, parse_structured
from tests.legality import assert_legal
from tests.soak import SOAK
from tests.strategies import declarations, loose_properties, properties

Json = dict[str, Any]
APIS: dict[str, Api] = {"chat": chat.API, "responses": responses.API, "messages": messages.API}
TEXT, NUMBER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}


def schema_of(declared: Json, *, strict: bool = False) -> Json:
    built: Any = build_schema([Property.model_validate({"name": "x", **declared})], strict=strict)
    found: Json = built["properties"]["x"]
    return found


SCHEMAS: dict[str, tuple[Json, Json]] = {
    "nullable text": ({"kind": "string", "nullable": True}, {"type": ["string", "null"]}),
    "not nullable": ({"kind": "string", "nullable": False}, TEXT),
    "a nullable enum": (
        {"kind": "string", "enumValues": ["a"], "nullable": True},
        {"type": ["string", "null"], "enum": ["a", None]},
    ),
    "an enum with null already": (
        {"kind": "string", "enumValues": ["a", None], "nullable": True},
        {"type": ["string", "null"], "enum": ["a", None]},
    ),
    "nullable items": (
        {"kind": "array", "items": {"kind": "integer", "nullable": True}},
        {"type": "array", "items": {"type": ["integer", "null"]}},
    ),
    "any of two": ({"kind": "union", "anyOf": [{"kind": "string"}, {"kind": "integer"}]}, {"anyOf": [TEXT, NUMBER]}),
    "one of two": ({"kind": "union", "oneOf": [{"kind": "string"}, {"kind": "integer"}]}, {"oneOf": [TEXT, NUMBER]}),
    "a union without its kind": (
        {"anyOf": [{"kind": "string"}], "description": "d"},
        {"anyOf": [TEXT], "description": "d"},
    ),
    "a nullable union": (
        {"kind": "union", "anyOf": [{"kind": "string"}, {"kind": "integer"}], "nullable": True},
        {"anyOf": [TEXT, NUMBER, NULL]},
    ),
    "null is one branch, even if others have it": (
        {
            "kind": "union",
            "nullable": True,
            "oneOf": [
                {"kind": "string", "nullable": True, "enumValues": ["a"]},
                {"kind": "union", "nullable": True, "oneOf": [{"kind": "integer", "nullable": True}]},
            ],
        },
        {"oneOf": [{"type": "string", "enum": ["a"]}, {"oneOf": [NUMBER]}, NULL]},
    ),
    "a branch may be null by itself": (
        {"kind": "union", "anyOf": [{"kind": "string", "nullable": True}, {"kind": "integer"}]},
        {"anyOf": [{"type": ["string", "null"]}, NUMBER]},
    ),
}


@pytest.mark.parametrize(("declared", "expected"), SCHEMAS.values(), ids=SCHEMAS)
@pytest.mark.parametrize("strict", [False, True])
def test_each_declaration_has_its_schema(declared: Json, expected: Json, strict: bool) -> None:
    assert schema_of(declared, strict=strict) == expected


def test_strict_mode_closes_the_objects_in_branches() -> None:
    declared = {"anyOf": [{"properties": {"a": {"kind": "array"}}}, {"kind": "object"}], "required": False}
    closed = {"type": "object", "additionalProperties": False}
    items = {"type": "array", "items": {"type": "string"}}
    assert schema_of(declared, strict=True) == {
        "anyOf": [{**closed, "properties": {"a": items}, "required": ["a"]}, {**closed, "properties": {}}, NULL]
    }
    assert schema_of(declared) == {
        "anyOf": [{"type": "object", "properties": {"a": {"type": "array", "items": {}}}}, {"type": "object"}]
    }


def agent_of(api: str, **keys: Any) -> PromptAgent:
    model = {"id": "m", "provider": "anthropic" if api == "messages" else "openai"}
    if api == "responses":
        model["apiType"] = "responses"
    return PromptAgent.model_validate({"model": model, "instructions": "user:\nHi", **keys})


def body_of(api: str, agent: PromptAgent) -> Json:
    return APIS[api].request(fit_request(agent, APIS[api]), [user("Hi")], list_declared_functions(agent))


def sent_schemas(api: str, body: Json) -> list[tuple[Json, bool]]:
    """Return the schemas in a body, and whether each is strict."""
    found = []
    for tool in body.get("tools", []):
        function = tool["function"] if api == "chat" else tool
        found.append((function["input_schema" if api == "messages" else "parameters"], function.get("strict", False)))
    if api == "chat" and "response_format" in body:
        found.append((body["response_format"]["json_schema"]["schema"], True))
    if api == "responses" and "text" in body:
        found.append((body["text"]["format"]["schema"], True))
    if api == "messages" and "output_config" in body:
        found.append((body["output_config"]["format"]["schema"], True))
    return found


def keys_in(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        return set(schema).union(*map(keys_in, schema.values()))
    return set().union(*map(keys_in, schema)) if isinstance(schema, list) else set()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("api", APIS)
@settings(max_examples=1000 if SOAK else 60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_generated_unions_are_legal_on_every_api(api: str, strict: bool, data: st.DataObject) -> None:
    parameters = data.draw(properties if strict else loose_properties)
    outputs = data.draw(properties) if strict else {}
    tools = [{"name": "t", "kind": "function", "strict": strict, "parameters": parameters}]
    body = body_of(api, agent_of(api, tools=tools, outputs=outputs))
    assert_legal(api, body)
    schemas = sent_schemas(api, body)
    assert [found for _, found in schemas] == [strict] + [True] * bool(outputs)
    for schema, is_strict in schemas:
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
        if "oneOf" not in keys_in(schema):  # a value may fit two of these
            jsonschema_rs.validator_for(schema).validate(create_value(schema))
        if is_strict:  # OpenAI's own SDK has nothing to change
            assert without_empty(_ensure_strict_json_schema(copy.deepcopy(schema), path=(), root=schema)) == schema
            assert "oneOf" not in keys_in(schema)


def without_empty(schema: Any) -> Any:
    """Return a schema without lists of no required properties."""
    if isinstance(schema, dict):
        return {key: without_empty(inner) for key, inner in schema.items() if (key, inner) != ("required", [])}
    return list(map(without_empty, schema)) if isinstance(schema, list) else schema


ONE_OF = {"kind": "union", "oneOf": [{"kind": "string"}, {"kind": "integer"}]}
STRICT = {
    "an output": ({"outputs": {"a": ONE_OF}}, "the output `a`"),
    "an output inside a list": (
        {"outputs": {"a": {"kind": "array", "items": {"properties": {"b": ONE_OF}}}}},
        r"the output `a\[\]\.b`",
    ),
    "an output inside a branch": ({"outputs": {"a": {"anyOf": [{"kind": "string"}, ONE_OF]}}}, "the output `a`"),
    "a parameter": (
        {"tools": [{"name": "t", "kind": "function", "strict": True, "parameters": {"p": ONE_OF}}]},
        "the parameter `p` of the tool 't'",
    ),
}


@pytest.mark.parametrize(("keys", "subject"), STRICT.values(), ids=STRICT)
@pytest.mark.parametrize("api", APIS)
def test_one_of_in_a_strict_schema_is_an_error_before_the_call(api: str, keys: Json, subject: str) -> None:
    with Script() as script, pytest.raises(RequestError, match=f"{subject} has `oneOf`.*\n.*Write `anyOf`"):
        invoke(agent_of(api, **keys))
    assert script.requests == []


@pytest.mark.parametrize("api", APIS)
def test_one_of_crosses_where_nothing_is_strict(api: str) -> None:
    tools = [
        {"name": "t", "kind": "function", "parameters": {"p": ONE_OF}},
        {
            "name": "s",
            "kind": "function",
            "strict": True,
            "parameters": {"p": ONE_OF},
            "bindings": {"p": {"input": "i"}},
        },
    ]
    [(schema, _), _] = sent_schemas(api, body_of(api, agent_of(api, tools=tools)))
    assert schema["properties"]["p"] == {"oneOf": [TEXT, NUMBER]}


# A value fits a declaration exactly if it fits its schema.

plain = st.recursive(
    st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 1.5]) | st.sampled_from(["", "w", "wZ"]),
    lambda inner: (
        st.lists(inner | st.none(), max_size=2) | st.dictionaries(st.sampled_from(["n", "na", "nX"]), inner, max_size=2)
    ),
    max_leaves=5,
)


def without_media(declared: Any) -> bool:
    return "image" not in str(declared)


@settings(max_examples=5000 if SOAK else 300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_inputs_fit_exactly_where_their_schema_says_so(data: st.DataObject) -> None:
    declared = data.draw(declarations(one_of=True).filter(without_media))
    schema = schema_of(declared)
    value = data.draw(plain | st.none() | st.just(create_value(schema)))
    found = find_misfits(Property.model_validate({"name": "x", **declared}), value)
    assert (found == []) == jsonschema_rs.is_valid(schema, value)
    assert all(problem.name == "x" for problem in found)


# An output type and the file.


class Text(BaseModel):
    text: str


class Score(BaseModel):
    score: float


class Answer(BaseModel):
    answer: Text | Score | None
    count: int | str


BRANCHES = [
    {"properties": {"text": {"kind": "string"}}},
    {"properties": {"score": {"kind": "integer"}}},
]
AGREEING: dict[str, Json] = {
    "the same unions": {
        "answer": {"anyOf": BRANCHES, "nullable": True},
        "count": {"anyOf": [{"kind": "integer"}, {"kind": "string"}]},
    },
    "fewer branches": {"answer": BRANCHES[1], "count": {"kind": "string", "nullable": True}},
}


@pytest.mark.parametrize("outputs", AGREEING.values(), ids=AGREEING)
def test_outputs_whose_branches_the_type_has_agree_with_it(outputs: Json) -> None:
    with Script('{"answer": {"score": 2}, "count": "many"}') as script:
        assert invoke(agent_of("chat", outputs=outputs), output_type=Answer) == Answer(
            answer=Score(score=2), count="many"
        )
    assert len(script.requests) == 1


DISAGREEING: dict[str, tuple[Json, str]] = {
    "a branch of another kind": (
        {"answer": BRANCHES[0], "count": {"anyOf": [{"kind": "integer"}, {"kind": "boolean"}]}},
        "`count` is boolean in the file and integer, string in the type",
    ),
    "an object that is none of the type's": (
        {"answer": {"anyOf": [BRANCHES[0], {"properties": {"other": "x"}}]}, "count": 1},
        "the file has no output `answer.text`",
    ),
    "another kind inside a branch": (
        {"answer": {"anyOf": [{"properties": {"text": {"kind": "array"}}}]}, "count": 1},
        "`answer.text` is array in the file and string in the type",
    ),
}


@pytest.mark.parametrize(("outputs", "problem"), DISAGREEING.values(), ids=DISAGREEING)
def test_a_branch_that_the_type_lacks_is_an_error_before_the_call(outputs: Json, problem: str) -> None:
    with Script() as script, pytest.raises(RequestError, match=problem):
        invoke(agent_of("chat", outputs=outputs), output_type=Answer)
    assert script.requests == []


@pytest.mark.parametrize("text", ['{"answer": null, "count": 1}', '{"answer": {"text": "a"}, "count": "b"}'])
def test_answers_of_every_branch_are_read(text: str) -> None:
    outputs = AGREEING["the same unions"]
    with Script(text, text):
        result = invoke(agent_of("chat", outputs=outputs))
    assert result == parse_structured(text)
    assert cast(result, Answer) == Answer.model_validate_json(text)


def test_a_union_needs_exactly_one_list_of_branches() -> None:
    branches = [{"kind": "string"}]
    wrongs: list[Json] = [{}, {"anyOf": []}, {"anyOf": branches, "oneOf": branches}]
    for wrong in wrongs:
        with pytest.raises(ValidationError, match=r"this union has (both|neither)"):
            Property.model_validate({"name": "x", "kind": "union", **wrong})
    with pytest.raises(ValidationError, match="belongs to a union, not to the kind `string`"):
        Property.model_validate({"name": "x", "kind": "string", "anyOf": branches})


@given(declarations(one_of=True))
def test_a_declaration_survives_being_written(declared: Json) -> None:
    assume(declared["kind"] == "union" or declared.get("nullable"))
    made = Property.model_validate({"name": "x", **declared})
    written = made.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert Property.model_validate(written) == made
    assert schema_of(declared) == schema_of({**written, "name": "x"})
