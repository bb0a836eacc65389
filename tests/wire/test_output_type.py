"""An `output_type` tells the model its schema (W16)."""

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field

from prompty import PromptAgent, invoke, turn
from prompty.errors import RequestError, ResultError
from prompty.testing import Script, answer


class Address(BaseModel):
    city: str
    zip: str | None = None


class Person(BaseModel):
    """Somebody."""

    name: str = Field(description="The whole name.")
    age: int
    mood: Literal["good", "bad"] = "good"
    addresses: list[Address] = []


class Node(BaseModel):
    value: int
    children: list["Node"] = []


class Free(BaseModel):
    anything: dict[str, Any]


@dataclass
class Point:
    x: float
    y: float


class Pair(TypedDict):
    left: int
    right: int


def agent(*, api: str = "chat", **keys: Any) -> PromptAgent:
    model = {"id": "m", "provider": "scripted", "apiType": api}
    return PromptAgent.model_validate({"model": model, "instructions": "user:\nWho?", **keys})


def sent_format(output_type: Any, reply: str, **keys: Any) -> dict[str, Any]:
    """Return the `response_format` that a call with an output type sends."""
    with Script(reply) as script:
        invoke(agent(**keys), output_type=output_type)
    found: dict[str, Any] = script.requests[0]["response_format"]["json_schema"]
    return found


ADA = '{"name": "Ada", "age": 36, "mood": "good", "addresses": []}'


def test_the_schema_of_the_type_is_sent_in_strict_mode() -> None:
    sent = sent_format(Person, ADA)
    assert sent["strict"] is True
    assert sent["schema"] == {
        "$defs": {
            "Address": {
                "properties": {"city": {"type": "string"}, "zip": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                "required": ["city", "zip"],
                "type": "object",
                "additionalProperties": False,
            }
        },
        "description": "Somebody.",
        "properties": {
            "name": {"description": "The whole name.", "type": "string"},
            "age": {"type": "integer"},
            "mood": {"enum": ["good", "bad"], "type": "string"},
            "addresses": {"items": {"$ref": "#/$defs/Address"}, "type": "array"},
        },
        "required": ["name", "age", "mood", "addresses"],
        "type": "object",
        "additionalProperties": False,
    }


def test_a_type_that_contains_itself_has_an_object_as_its_root() -> None:
    sent = sent_format(Node, '{"value": 1, "children": []}')
    assert (sent["strict"], sent["schema"]["type"]) == (True, "object")
    assert sent["schema"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


def test_a_type_that_strict_mode_does_not_allow_is_sent_without_it() -> None:
    sent = sent_format(Free, '{"anything": {"a": 1}}')
    assert sent["strict"] is False
    assert sent["schema"]["properties"]["anything"]["type"] == "object"


@pytest.mark.parametrize("output_type", [Point, Pair])
def test_dataclasses_and_typed_dicts_have_schemas_too(output_type: Any) -> None:
    reply = '{"x": 1, "y": 2}' if output_type is Point else '{"left": 1, "right": 2}'
    assert sent_format(output_type, reply)["strict"] is True


def test_the_responses_api_gets_the_schema_as_well() -> None:
    with Script(ADA) as script:
        assert invoke(agent(api="responses"), output_type=Person) == Person(name="Ada", age=36)
    assert script.requests[0]["text"]["format"]["schema"]["required"] == ["name", "age", "mood", "addresses"]


@pytest.mark.parametrize("output_type", [str, int, list[int]])
def test_a_type_that_is_no_object_sends_no_schema(output_type: Any) -> None:
    with Script("[1]" if output_type == list[int] else "1") as script:
        invoke(agent(), output_type=output_type)
    assert "response_format" not in script.requests[0]


def test_a_turn_sends_the_schema_with_every_request() -> None:
    with Script("no JSON", ADA) as script:
        assert turn(agent(), output_type=Person) == Person(name="Ada", age=36)
    assert all("response_format" in request for request in script.requests)


def test_outputs_that_agree_with_the_type_are_sent_as_the_file_has_them() -> None:
    outputs = {"name": {"kind": "string"}, "age": {"kind": "integer"}, "mood": {"kind": "string"}}
    sent = sent_format(Person, '{"name": "Ada", "age": 36, "mood": "good"}', outputs=outputs)
    assert list(sent["schema"]["properties"]) == ["name", "age", "mood"]


DISAGREEING: dict[str, tuple[Any, dict[str, object], str]] = {
    "a field that the file lacks": (Person, {"name": {"kind": "string"}}, "the file has no output `age`"),
    "another kind": (Point, {"x": {"kind": "string"}, "y": {"kind": "float"}}, "`x` is string in the file"),
    "another kind of items": (
        Node,
        {"value": {"kind": "integer"}, "children": {"kind": "array", "items": {"kind": "string"}}},
        r"`children\[\]` is string in the file",
    ),
}


@pytest.mark.parametrize(("output_type", "outputs", "problem"), DISAGREEING.values(), ids=DISAGREEING)
def test_outputs_that_disagree_with_the_type_are_an_error_before_the_call(
    output_type: Any, outputs: dict[str, object], problem: str
) -> None:
    with Script() as script, pytest.raises(RequestError, match=problem):
        invoke(agent(outputs=outputs), output_type=output_type)
    assert script.requests == []


def test_an_answer_that_the_token_limit_cut_says_so() -> None:
    cut = answer('{"name": "Ad', finish_reason="length")
    with Script(cut), pytest.raises(ResultError, match="reached its token limit") as caught:
        invoke(agent(), output_type=Person)
    assert "maxOutputTokens" in str(caught.value)
    with Script(cut, '{"name": "Ada"}') as script:
        assert turn(agent(outputs={"name": {"kind": "string"}})) == {"name": "Ada"}
    assert "token limit" in script.requests[1]["messages"][-1]["content"]
