"""Stored messages become those of a request, and each of these its wire JSON (001)."""

from typing import Any

import pytest

from prompty import Image, Message, ToolCall, assistant, tool_result, user
from prompty.errors import RequestError
from prompty.messages import message_to_wire, prepare_request_messages

CALL = {"id": "call_a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"NYC"}'}}
DETAILS = [{"type": "reasoning.encrypted", "data": "x"}]
# The array that document 001 prints, with what storage keeps beside it.
STORED: list[dict[str, Any]] = [
    {"role": "system", "content": "You are a helpful weather assistant."},
    {"role": "user", "content": "What's the weather in NYC?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning": "One city.", "finishReason": "tool_calls"},
    {
        "role": "tool",
        "tool_call_id": "call_a",
        "content": "72°F and sunny",
        "toolName": "get_weather",
        "isError": False,
    },
    {"role": "assistant", "content": "It is sunny.", "reasoning": "Done.", "reasoning_details": DETAILS},
]
SENT: list[dict[str, Any]] = [
    STORED[0],
    STORED[1],
    {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning_content": "One city."},
    {"role": "tool", "tool_call_id": "call_a", "content": "72°F and sunny"},
    {"role": "assistant", "content": "It is sunny."},
]


@pytest.mark.spec("001 Interleaved Thinking", "thoughts go back with the calls they led to and are left out of answers")
@pytest.mark.spec("001 Message Shapes", "what is ours alone never crosses the wire")
@pytest.mark.spec("000 §7.1.1", "message_to_wire takes a message")
def test_stored_messages_become_the_array_of_the_document() -> None:
    prepared = prepare_request_messages(STORED)
    assert [message_to_wire(message) for message in prepared] == SENT


@pytest.mark.spec("001 Where the rule lives", "what is stored keeps all thoughts")
@pytest.mark.spec(
    "001 Where the rule lives",
    "one function makes the messages of a request from stored ones and leaves these as they are",
)
def test_only_turns_with_calls_keep_their_reasoning_and_what_is_stored_keeps_all() -> None:
    stored = [Message.from_json(entry) for entry in STORED]
    prepared = prepare_request_messages(stored)
    assert [message.reasoning for message in prepared] == ["", "", "One city.", "", ""]
    assert "reasoning_details" not in prepared[4].opaque
    assert [message.reasoning for message in stored] == ["", "", "One city.", "", "Done."]
    assert stored[4].opaque == {"reasoning_details": DETAILS}
    assert prepared is not stored


def test_structured_thoughts_of_a_turn_with_calls_stay() -> None:
    calling = assistant(tool_calls=[ToolCall(id="a", name="f")], opaque={"reasoning_details": DETAILS})
    [prepared, _] = prepare_request_messages([calling, tool_result("a", "x")])
    assert message_to_wire(prepared)["reasoning_details"] == DETAILS


def test_prepared_messages_are_repaired_for_their_api() -> None:
    history = [user("Hi"), assistant(tool_calls=[ToolCall(id="a b", name="f")])]
    assert [message.tool_call_id for message in prepare_request_messages(history)] == [None, None, "a b"]
    assert prepare_request_messages(history, "anthropic")[2].tool_call_id == "a_b"
    with pytest.raises(RequestError, match="a message is invalid"):
        prepare_request_messages([{"role": "nobody"}])


def test_a_message_is_written_as_a_server_takes_its_reasoning() -> None:
    message = STORED[2]
    assert message_to_wire(message, reasoning_field="reasoning")["reasoning"] == "One city."
    assert message_to_wire(message, reasoning_field=None).keys() == {"role", "content", "tool_calls"}


@pytest.mark.parametrize("role", ["tool", "system"])
def test_media_that_would_be_lost_is_an_error(role: str) -> None:
    with pytest.raises(RequestError, match="Move it to a user message"):
        message_to_wire(Message(role, [Image("https://x.example/a.png")], tool_call_id="a"))
