"""Messages and replies as values, and their JSON (001)."""

import copy
import json
from dataclasses import FrozenInstanceError, fields, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prompty import Message, ToolCall, Usage, assistant, tool_result, user
from prompty.errors import InvalidMessage
from prompty.messages import Citation, ProviderCall, Role, TextPart, message_to_wire
from prompty.model.content import AudioPart, FilePart, ImagePart
from prompty.model.message import Json, Reply
from prompty.pipeline import run
from prompty.testing import Script
from tests.conversations.turns import scripted

# Everything but surrogates, which no JSON in UTF-8 can hold.
texts = st.text(st.characters(codec="utf-8"), max_size=8)
names = texts.filter(bool)
block = st.dictionaries(texts, texts | st.integers() | st.none(), max_size=2)
blocks = st.lists(block, max_size=2)
wire_names = {"name", "tool_calls", "tool_call_id", "reasoning", "reasoning_content", "reasoning_details"}
own_names = names.filter(lambda name: name not in wire_names)
counts = st.none() | st.integers(0, 10**9)

addresses = st.sampled_from(["https://example.com/a.png", "data:image/png;base64,AAAA", "DATA:,x"])
parts = st.one_of(
    st.builds(TextPart, texts),
    st.builds(ImagePart, addresses),
    st.builds(ImagePart, texts | addresses, names, st.none() | texts),
    st.builds(AudioPart, texts, names),
    st.builds(FilePart, texts | addresses, st.none() | names, st.none() | texts),
)
calls = st.builds(ToolCall, id=texts, name=texts, arguments=texts, extra=st.dictionaries(texts, texts, max_size=1))
usages = st.builds(
    Usage,
    requests=st.dictionaries(names, counts, max_size=2),
    **{field.name: counts for field in fields(Usage) if field.name != "requests"},
)
citations = st.builds(
    Citation,
    kind=st.sampled_from(["web", "file", "document"]),
    url=st.none() | texts,
    file_id=st.none() | texts,
    title=st.none() | texts,
    quote=st.none() | texts,
    start=counts,
    end=counts,
    raw=block,
)
provider_calls = st.builds(
    ProviderCall,
    id=texts,
    tool=texts,
    input=block,
    status=st.sampled_from(["in_progress", "completed", "incomplete", "failed"]),
    error=st.none() | texts,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
    "content": st.lists(parts, max_size=3).map(tuple),
    "name": st.none() | texts,
    "tool_calls": st.lists(calls, max_size=2).map(tuple),
    "tool_call_id": st.none() | texts,
    "reasoning": texts,
    "opaque": st.dictionaries(own_names | st.just("reasoning_details"), blocks, max_size=2),
    "attributes": st.dictionaries(own_names, texts | st.integers() | st.booleans(), max_size=2),
    "finish_reason": st.none() | texts,
    "tool_name": st.none() | texts,
    "is_error": st.booleans(),
    "usage": st.none() | usages,
    "cost": st.none() | st.decimals(0, 100, allow_nan=False),
    "citations": st.lists(citations, max_size=2).map(tuple),
    "provider_calls": st.lists(provider_calls, max_size=2).map(tuple),
}
# A cost without usage has no meaning: both are those of the model calls that made a result.
messages = st.builds(Message, **FIELDS).map(lambda made: made if made.usage else replace(made, cost=None))


def stored(value: Json) -> Json:
    """What comes back from a file or a database."""
    read: Json = json.loads(json.dumps(value))
    return read


def test_the_strategy_above_covers_every_field() -> None:
    assert list(FIELDS) == [field.name for field in fields(Message)]


@given(messages)
def test_every_message_comes_back_from_json_as_it_was(message: Message) -> None:
    assert Message.from_json(stored(message.to_json())) == message


DOCUMENT_001: dict[str, Json] = {
    "a system message": {"role": "system", "content": "You are a helpful weather assistant."},
    "a user message": {"role": "user", "content": "What's the weather in NYC?"},
    "a turn of calls alone": {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "call_a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"NYC"}'}},
            {"id": "call_b", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}},
        ],
    },
    "a result": {"role": "tool", "tool_call_id": "call_a", "content": "72°F and sunny"},
    "an answer with reasoning": {
        "role": "assistant",
        "content": "NYC is 72°F and sunny.",
        "reasoning": "The user wants one city.",
        "finishReason": "stop",
    },
    "signed reasoning": {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_a", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "c2ln"}],
        "finishReason": "tool_calls",
    },
    "a result that failed": {
        "role": "tool",
        "tool_call_id": "call_a",
        "content": "Error: no such city",
        "toolName": "get_weather",
        "isError": True,
    },
    "a turn whose stream failed": {"role": "assistant", "content": "NYC is", "isError": True},
}


@pytest.mark.spec(
    "001 Message Shapes",
    "stored messages have reasoning, finishReason, toolName and isError beside what crosses the wire",
)
@pytest.mark.parametrize("shape", DOCUMENT_001.values(), ids=DOCUMENT_001)
def test_a_shape_of_the_document_is_read_and_written_again(shape: Json) -> None:
    assert Message.from_json(shape).to_json() == shape


def test_the_fields_of_the_document_are_typed() -> None:
    answer = Message.from_json(DOCUMENT_001["an answer with reasoning"])
    assert (answer.reasoning, answer.finish_reason) == ("The user wants one city.", "stop")
    failed = Message.from_json(DOCUMENT_001["a result that failed"])
    assert (failed.tool_call_id, failed.tool_name, failed.is_error) == ("call_a", "get_weather", True)
    assert Message.from_json(DOCUMENT_001["a turn of calls alone"]).tool_calls == (
        ToolCall(id="call_a", name="get_weather", arguments='{"city":"NYC"}'),
        ToolCall(id="call_b", name="get_weather", arguments='{"city":"Oslo"}'),
    )


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_read_under_either_name(name: str) -> None:
    assert Message.from_json({"role": "assistant", "content": "", name: "hm"}).reasoning == "hm"
    both: Json = {"role": "assistant", "reasoning": "", "reasoning_content": "", name: "hm"}
    assert Message.from_json(both).reasoning == "hm"


@pytest.mark.spec("001 The Four Roles", "the roles are an enumeration of strings")
def test_a_role_is_the_string_that_crosses_the_wire() -> None:
    assert [str(role) for role in Role] == ["system", "developer", "user", "assistant", "tool"]
    asked = Message(Role.USER, "Hi")
    assert asked == user("Hi")
    assert json.dumps(asked.to_json()) == json.dumps(message_to_wire(asked)) == '{"role": "user", "content": "Hi"}'


def test_a_message_can_be_made_of_plain_text() -> None:
    assert Message("user", "Hi") == Message(role="user", content=[TextPart("Hi")]) == user("Hi")
    assert Message("user", content="Hi").content == (TextPart("Hi"),)
    assert Message("assistant").content == ()


@pytest.mark.parametrize("field", [field.name for field in fields(Message)])
def test_a_message_cannot_be_changed(field: str) -> None:
    message = user("Hi")
    with pytest.raises(FrozenInstanceError):
        setattr(message, field, None)


def test_what_a_message_was_made_of_may_change_later() -> None:
    content, attributes, opaque = [TextPart("Hi")], {"a": 1}, {"blocks": [1]}
    message = Message("user", content, attributes=attributes, opaque=opaque)
    content.clear()
    attributes.clear()
    opaque.clear()
    assert (message.text, message.attributes, message.opaque) == ("Hi", {"a": 1}, {"blocks": [1]})


def test_metadata_is_a_view_of_what_may_cross_and_cannot_be_written_to() -> None:
    call = ToolCall(id="c", name="look")
    turn = Message(
        "assistant",
        "x",
        name="Ada",
        tool_calls=[call],
        reasoning="hm",
        opaque={"reasoning_details": [1]},
        attributes={"turn": 3},
        finish_reason="stop",
    )
    assert turn.metadata == {
        "name": "Ada",
        "tool_calls": [call.to_wire()],
        "reasoning_content": "hm",
        "reasoning_details": [1],
        "turn": 3,
    }
    with pytest.raises(TypeError):
        turn.metadata["name"] = "Bob"  # type: ignore[index]  # that it is an error is what is shown here
    assert tool_result("c", "x").metadata == {"tool_call_id": "c"}


@given(messages)
def test_a_message_is_a_value(message: Message) -> None:
    same = Message.from_json(stored(message.to_json()))
    assert (same == message, hash(same) == hash(message)) == (True, True)
    assert copy.deepcopy(message) == replace(message) == message


def test_a_message_shows_what_it_has() -> None:
    assert repr(user("Hi")) == "Message('user', (TextPart(value='Hi'),))"
    assert "is_error=True" in repr(tool_result("c", "x", is_error=True))


WRONG: dict[str, tuple[Any, str]] = {
    "no object": ("Hi", "expected a message, got str"),
    "no role": ({"content": "Hi"}, "the role is None; it must be one of system, developer, user, assistant, tool"),
    "an unknown role": ({"role": "bot", "content": "Hi"}, "the role is 'bot'"),
    "content of a wrong type": (
        {"role": "user", "content": 7},
        "expected text or a list of parts as content, got int",
    ),
    "a part of a wrong type": ({"role": "user", "content": [7]}, "expected a part, got int"),
    "a part of an unknown kind": ({"role": "user", "content": [{"kind": "smell"}]}, "unknown part kind 'smell'"),
    "a part of an unknown type": ({"role": "user", "content": [{"type": "smell"}]}, "unknown part type 'smell'"),
    "text without a value": ({"role": "user", "content": [{"kind": "text"}]}, "a part needs text under `value`"),
    "blocks of a wrong type": ({"role": "user", "opaque": "x"}, "expected an object, got str"),
    "a cost that is no number": ({"role": "tool", "usage": {}, "cost": "x"}, "expected a number as cost, got 'x'"),
}


@pytest.mark.parametrize(("value", "cause"), WRONG.values(), ids=WRONG)
def test_what_is_no_message_is_refused_with_the_cause(value: Any, cause: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        Message.from_json(value)
    assert cause in str(refused.value)


def test_shapes_of_the_document_are_accepted_wherever_messages_are() -> None:
    with Script("Done.") as script:
        conversation = ["a user message", "a turn of calls alone", "a result"]
        assert run(scripted(), [DOCUMENT_001[name] for name in conversation]) == "Done."
    sent = script.requests[0]["messages"]
    assert [message["role"] for message in sent[:3]] == ["user", "assistant", "tool"]


replies = st.builds(
    Reply,
    text=texts,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    reasoning=texts,
    refusal=st.none() | texts,
    finish_reason=st.none() | texts,
    usage=usages,
    id=st.none() | texts,
    model=st.none() | texts,
    opaque=st.dictionaries(texts, blocks, max_size=2),
    value=st.none() | st.lists(st.floats(0, 1), max_size=2),
    citations=FIELDS["citations"],
    provider_calls=FIELDS["provider_calls"],
)


@given(replies)
def test_a_reply_comes_back_from_json_as_it_was(reply: Reply) -> None:
    assert Reply.from_json(stored(reply.to_json())) == reply


@pytest.mark.parametrize("value", [None, "https://a.example", ["https://a.example"], [{"url": "u"}], [{"kind": "own"}]])
def test_citations_and_calls_of_other_programs_are_left_out(value: object) -> None:
    message = Message.from_json({"role": "assistant", "content": "Hi", "citations": value, "providerCalls": value})
    assert message == assistant("Hi")


def test_a_stored_reply_becomes_a_message_with_the_same_parts() -> None:
    written: Json = {
        "text": "Hi",
        "tool_calls": [{"id": "c", "name": "look", "arguments": "{}", "extra": {}}],
        "reasoning": "hm",
        "refusal": None,
        "finish_reason": "tool_calls",
        "usage": {"input_tokens": 3, "output_tokens": None, "cache_read_tokens": None}
        | {"cache_write_tokens": None, "reasoning_tokens": None},
        "id": "r",
        "model": "m",
        "opaque": {"reasoning_details": [{"type": "reasoning.text"}]},
        "value": None,
    }
    reply = Reply.from_json(written)
    assert reply.to_json() == written
    assert reply.message() == replace(
        assistant("Hi", tool_calls=[ToolCall(id="c", name="look")], reasoning="hm", opaque=reply.opaque),
        finish_reason="tool_calls",
    )
    assert reply.usage == Usage(input_tokens=3)


def test_the_cost_of_a_result_keeps_its_digits() -> None:
    cost = Decimal("0.10")
    result = Message("tool", "x", tool_call_id="c", usage=Usage(input_tokens=1), cost=cost)
    assert str(Message.from_json(stored(result.to_json())).cost) == "0.10"
