"""What of a turn crosses the wire: the messages, thoughts with the calls they led to, and nothing of our own."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from prompty import Message, ToolCall, system, tool, turn, user
from prompty.events import ToolFinished
from prompty.model.content import ImagePart
from prompty.providers.openai import chat
from prompty.testing import Script, answer, call
from tests.loop.bodies import calls_in, results_in
from tests.ways import Way, agent_of, every_wire, whole_and_streamed

COMPATIBLE = {"kind": "anonymous", "endpoint": "http://localhost:8080/v1"}
AGENT = agent_of(model={"connection": COMPATIBLE})
DETAILS = [
    {"type": "reasoning.encrypted", "data": "c2Vj", "index": 0, "id": "b"},
    {"type": "reasoning.text", "text": "Hm, a city.", "signature": "c2ln", "index": 1, "id": "a", "format": None},
]


def look(at: str = "it") -> str:
    return f"saw {at}"


def fail() -> str:
    raise RuntimeError("no sky today")


def bodies(script: Script) -> list[dict[str, Any]]:
    return list(script.requests)


@pytest.mark.spec("001 Pairing: One Result per Call", "a result has the id of its call")
@pytest.mark.spec("001 Parallel Tool Calling", "calls that run in parallel have no wire form of their own")
@whole_and_streamed
@pytest.mark.spec("001 The Four Roles", "messages have four roles, under the names of the wire")
@pytest.mark.spec("001 How a Turn Interleaves", "each call is answered by one tool message before the model is asked")
@pytest.mark.spec("001 assistant — text and/or tool calls", "a call is an id, the type function, a name and its text")
@pytest.mark.spec("001 tool — one result per call", "a result is a role, the id of its call and its content")
def test_a_turn_with_two_calls_is_this_very_array(way: Way) -> None:
    history = [system("Be kind."), user("Look twice.")]
    with Script([call("look", at="a", id="call_a"), call("look", at="b", id="call_b")], "Seen.") as script:
        seen = way.turn(agent_of(), tools=[look], messages=history)
    calls = [
        {"id": f"call_{at}", "type": "function", "function": {"name": "look", "arguments": f'{{"at":"{at}"}}'}}
        for at in "ab"
    ]
    assert bodies(script)[1]["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Look twice."},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_a", "content": "saw a"},
        {"role": "tool", "tool_call_id": "call_b", "content": "saw b"},
    ]
    assert [message.role for message in seen.messages] == ["system", "user", "assistant", "tool", "tool", "assistant"]


@whole_and_streamed
@every_wire
@pytest.mark.spec("001 How a Turn Interleaves", "a conversation goes on from all that was said before")
@pytest.mark.spec("001 The model only ever sees this array", "what was said and done is all in the messages")
def test_the_next_turn_knows_everything_before_it(way: Way, wire: str) -> None:
    with Script(call("look"), "Seen."):
        first = way.turn(agent_of(wire), tools=[look])
    with Script("Yes.") as script:
        way.turn(agent_of(wire), tools=[look], messages=[*first.messages, user("Sure?")])
    body = json.dumps(bodies(script)[0])
    assert all(text in body for text in ("Hi", "saw it", "Seen.", "Sure?"))
    assert len(calls_in(wire, bodies(script)[0])) == len(results_in(wire, bodies(script)[0])) == 1


@pytest.mark.spec("001 user and system", "a system message is text, a user's is text or parts, which cross as they are")
def test_words_and_parts_cross_as_they_are() -> None:
    image = ImagePart("https://example.com/a.png")
    with Script("A cat.") as script:
        turn(agent_of(), messages=[system("Be kind."), user("What is this?", image)])
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]
    assert bodies(script)[0]["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": parts},
    ]


@pytest.mark.spec("001 Arguments are a string until the moment of execution", "an answer keeps why it ended")
@whole_and_streamed
@every_wire
@pytest.mark.spec("001 Message Shapes", "what is ours alone never crosses the wire")
def test_nothing_of_our_own_crosses_the_wire(way: Way, wire: str) -> None:
    with Script(
        [call("look"), call("fail")], answer("So.", call("look"), finish_reason="tool_calls"), "Seen."
    ) as script:
        seen = way.turn(agent_of(wire), tools=[look, fail])
    results = [message for message in seen.messages if message.role == "tool"]
    assert [message.tool_name for message in results] == ["look", "fail", "look"]
    assert [message.is_error for message in results] == [False, True, False]
    assert seen.messages[-1].finish_reason == "stop"
    body = json.dumps(bodies(script)[-1])
    assert not [
        name
        for name in ("finish_reason", "tool_name", "finishReason", "toolName", "local", "metadata", "anthropic_blocks")
        if name in body
    ]
    assert wire == "messages" or "is_error" not in body  # Anthropic's API has a field of this name
    assert results_in(wire, bodies(script)[1])[1]["content"] == "Error: Tool 'fail' failed: no sky today"


@whole_and_streamed
@pytest.mark.spec("001 Interleaved Thinking", "thoughts go back with the calls they led to and are left out of answers")
@pytest.mark.spec("001 Where the rule lives", "what is stored keeps all thoughts")
def test_thoughts_go_back_only_with_calls(way: Way) -> None:
    with Script(answer("", call("look"), reasoning="I must look."), answer("Seen.", reasoning="Easy.")) as script:
        first = way.turn(AGENT, tools=[look])
    assert [message.reasoning for message in first.messages] == ["", "I must look.", "", "Easy."]
    with Script("Yes.") as later:
        second = way.turn(AGENT, tools=[look], messages=[*first.messages, user("Sure?")])
    for body in (bodies(script)[1], bodies(later)[0]):
        thoughts = [one.get("reasoning_content") for one in body["messages"] if one["role"] == "assistant"]
        assert thoughts in (["I must look."], ["I must look.", None])
    assert [message.reasoning for message in second.messages][:4] == ["", "I must look.", "", "Easy."]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
@pytest.mark.spec("001 Interleaved Thinking", "thoughts are read under either name")
def test_thoughts_are_read_under_either_name(field: str) -> None:
    turn = {"role": "assistant", "content": "Hello", field: "Hm."}
    assert chat.API.reply({"choices": [{"message": turn, "finish_reason": "stop"}]}).reasoning == "Hm."


@whole_and_streamed
@pytest.mark.spec("001 Interleaved Thinking", "structured thoughts go back as they came, in their order")
def test_structured_thoughts_go_back_as_they_came(way: Way) -> None:
    thoughtful = answer("", call("look"), reasoning="Hm, a city.", reasoning_details=DETAILS)
    with Script(thoughtful, "Seen.") as script:
        way.turn(AGENT, tools=[look])
    said = bodies(script)[1]["messages"][1]
    assert said["reasoning_details"] == DETAILS
    assert "reasoning_content" not in said


@whole_and_streamed
@pytest.mark.parametrize(("wire", "along"), [("responses", "encrypted_content"), ("messages", "signature")])
@pytest.mark.spec("001 Interleaved Thinking", "structured thoughts go back as they came, in their order")
def test_signed_thoughts_go_back_before_their_calls(way: Way, wire: str, along: str) -> None:
    signed: dict[str, Any] = {along: "c2ln"}
    with Script(answer("", call("look"), call("look"), reasoning="Hm.", **signed), "Seen.") as script:
        way.turn(agent_of(wire), tools=[look])
    body = bodies(script)[1]
    items = body["input"][1:4] if wire == "responses" else body["messages"][1]["content"]
    assert [item["type"] for item in items] == (
        ["reasoning", "function_call", "function_call"] if wire == "responses" else ["thinking", "tool_use", "tool_use"]
    )
    assert items[0][along] == "c2ln"


@whole_and_streamed
def test_no_thoughts_go_to_servers_that_refuse_them(way: Way) -> None:
    openai = {"kind": "anonymous", "endpoint": "https://api.openai.com/v1"}
    with Script(answer("", call("look"), reasoning="Hm.", reasoning_details=DETAILS), "Seen.") as script:
        way.turn(agent_of(model={"connection": openai}), tools=[look])
    assert "reasoning" not in json.dumps(bodies(script)[1])


@dataclass
class Place:
    city: str
    floors: list[int]


@pytest.mark.spec("002 §8.7", "the caller parses the arguments of a call")
@whole_and_streamed
@every_wire
@pytest.mark.spec("001 Arguments are a string until the moment of execution", "a tool gets values of its own types")
def test_a_tool_gets_values_of_its_own_types(way: Way, wire: str) -> None:
    got: list[Place] = []

    @tool
    def visit(place: Place) -> str:
        got.append(place)
        return place.city

    with Script(call("visit", place={"city": "Oslo", "floors": [1, 2]}), "Seen."):
        assert way.turn(agent_of(wire), tools=[visit]).told == ["Oslo"]
    assert got == [Place("Oslo", [1, 2])]


@every_wire
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.spec(
    "001 Arguments are a string until the moment of execution", "pieces of a stream are put together before a call runs"
)
def test_pieces_of_a_stream_are_put_together_before_a_call_runs(wire: str, asynchronous: bool) -> None:
    long = "a very long way off, " * 20
    with Script([call("look", at=long), call("look", at="here")], "Seen."):
        seen = Way(asynchronous, streamed=True).turn(agent_of(wire), tools=[look])
    assert seen.told == [f"saw {long}", "saw here"]
    assert len(seen.of(ToolFinished)) == 2


@whole_and_streamed
@every_wire
def test_what_is_told_and_what_is_kept_are_the_messages_as_the_model_made_them(way: Way, wire: str) -> None:
    given = [user("Hi")]
    with Script(ToolCall(id="x", name="look", arguments='{"at":"it"}'), "Seen."):
        seen = way.turn(agent_of(wire), tools=[look], messages=given)
    assert given == [Message("user", user("Hi").content)]
    assert seen.messages[0] is given[0]
    assert seen.messages[1].tool_calls == (ToolCall(id="x", name="look", arguments='{"at":"it"}'),)
