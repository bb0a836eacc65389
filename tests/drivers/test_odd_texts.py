"""Text of a model that UTF-8 cannot hold, and names that are no text: a reply is repaired or refused as it is read."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prompty import Message, ToolCall
from prompty.errors import ModelError
from prompty.memory import InProcessMemory
from prompty.model.message import Json, Reply
from prompty.pipeline.request import process_reply
from prompty.safety.json import repair_json, repair_text
from prompty.tools.calls import result_message
from prompty.wire.json_bytes import write_bytes
from tests.conversations.turns import scripted
from tests.drivers.wires import TOOL, Chat, Wire
from tests.loopback import Server, event, json_reply, stream
from tests.ways import SYNC, Way

HALF, REPAIRED = "a\ud800b", "a\ufffdb"


def look(at: str = "") -> str:
    return f"saw {at}"


def test_half_a_character_is_replaced_in_every_api(server: Server, way: Way, wire: Wire) -> None:
    server.answer(stream(*wire.stream(HALF)) if way.streamed else json_reply(wire.whole(HALF)))
    assert way.invoke(wire.agent(server)).result == REPAIRED


def test_a_session_outlives_an_answer_that_utf_8_cannot_hold(server: Server, way: Way, wire: Wire) -> None:
    memory = InProcessMemory()
    server.answer(
        stream(*wire.stream(HALF)) if way.streamed else json_reply(wire.whole(HALF)),
        stream(*wire.stream("Fine")) if way.streamed else json_reply(wire.whole("Fine")),
    )
    for expected in (REPAIRED, "Fine"):
        assert way.turn(wire.agent(server), memory=memory, session_id="s").result == expected


def test_a_session_that_was_stored_with_half_a_character_goes_on(server: Server, way: Way, wire: Wire) -> None:
    server.answer(stream(*wire.stream("Fine")) if way.streamed else json_reply(wire.whole("Fine")))
    old = [Message("user", "Hi"), Message("assistant", HALF), Message("user", "And?")]
    assert way.turn(wire.agent(server), messages=old, sendable=False).result == "Fine"


def calling(wire: Wire, name: object, identifier: object, arguments: str = "{}") -> Json:
    match wire.name:
        case "chat":
            function = {"name": name, "arguments": arguments}
            call = {"id": identifier, "type": "function", "function": function}
            return Chat().whole("", "tool_calls", tool_calls=[call])
        case "responses":
            item = {"type": "function_call", "call_id": identifier, "name": name, "arguments": arguments}
            return {"id": "a", "status": "completed", "output": [{**item, "status": "completed"}]}
    block = {"type": "tool_use", "id": identifier, "name": name, "input": json.loads(arguments)}
    return {"id": "a", "type": "message", "content": [block], "stop_reason": "tool_use"}


NOT_TEXT = {"a list": [1], "an object": {"a": 1}, "a flag": True}


@pytest.mark.parametrize("value", NOT_TEXT.values(), ids=NOT_TEXT)
@pytest.mark.parametrize("place", ["name", "id"])
def test_a_name_or_id_that_is_not_text_is_an_error_of_ours(
    server: Server, whole_way: Way, wire: Wire, place: str, value: object
) -> None:
    called = calling(wire, value, "c") if place == "name" else calling(wire, "look", value)
    server.answer(json_reply(called))
    seen = whole_way.turn(wire.agent(server, tools=[TOOL]), tools=[look], max_retries=0)
    assert isinstance(seen.error, ModelError)
    assert "does not match its API" in str(seen.error)


def test_a_streamed_name_that_is_not_text_is_an_error_of_ours(server: Server, stream_way: Way) -> None:
    wire = Chat()
    call = wire.call(index=0, id="c", function={"name": [1], "arguments": "{}"})
    server.answer(stream(*map(event, [wire.chunk({"tool_calls": [call]}), *wire.ended(finish="tool_calls")])))
    seen = stream_way.turn(wire.agent(server, tools=[TOOL]), tools=[look], max_retries=0)
    assert isinstance(seen.error, ModelError)


def test_a_refusal_that_is_not_text_is_not_a_result(server: Server, whole_way: Way) -> None:
    wire = Chat()
    server.answer(json_reply(wire.whole("Hello", refusal={"a": 1})))
    assert isinstance(whole_way.invoke(wire.agent(server), max_retries=0).error, ModelError)


def test_calls_that_are_numbered_run(server: Server, whole_way: Way, wire: Wire) -> None:
    server.answer(json_reply(calling(wire, "look", 7, '{"at": "it"}')), json_reply(wire.whole("Done")))
    seen = whole_way.turn(wire.agent(server, tools=[TOOL]), tools=[look])
    assert seen.result == "Done"
    assert "saw it" in seen.texts


def test_half_a_character_in_a_call_does_not_end_the_turn(server: Server, whole_way: Way, wire: Wire) -> None:
    arguments = json.dumps({"at": HALF})
    server.answer(
        json_reply(calling(wire, f"look{HALF}", HALF, arguments)),
        json_reply(calling(wire, "look", "c2", arguments)),
        json_reply(wire.whole("Done")),
    )
    seen = whole_way.turn(wire.agent(server, tools=[TOOL]), tools=[look])
    assert seen.result == "Done"
    assert f"saw {REPAIRED}" in seen.texts


RESULTS: dict[str, tuple[object, str]] = {
    "text": (HALF, REPAIRED),
    "a list": ([HALF], f'["{REPAIRED}"]'),
    "a name": ({HALF: 1}, f'{{"{REPAIRED}":1}}'),
}


@pytest.mark.parametrize(("value", "expected"), RESULTS.values(), ids=RESULTS)
def test_the_result_of_a_tool_is_repaired(value: object, expected: str) -> None:
    assert result_message(ToolCall(id="c", name="t"), value).text == expected


@given(st.recursive(st.text(st.characters()), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_whatever_is_repaired_can_be_sent(value: Any) -> None:
    assert json.loads(write_bytes(value)) == repair_json(value)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_good_text_is_not_touched(text: str) -> None:
    assert repair_text(text) == text


def test_the_halves_of_a_pair_are_joined() -> None:
    assert repair_text("\ud83d\ude00") == "😀"


def test_a_structured_reply_with_a_key_twice_is_still_json() -> None:
    agent = scripted(outputs={"a": {"kind": "integer"}})
    assert process_reply(agent, Reply(text='{"a":1,"a":2}')) == {"a": 2}


def test_tool_arguments_with_a_key_twice_are_refused(server: Server) -> None:
    wire = Chat()
    twice = '{"at": "a", "at": "b"}'
    server.answer(json_reply(calling(wire, "look", "c", twice)), json_reply(wire.whole("Done")))
    seen = SYNC.turn(wire.agent(server, tools=[TOOL]), tools=[look])
    assert any("duplicate key 'at'" in text for text in seen.texts)


def test_streamed_calls_are_in_the_order_of_their_index(server: Server, way: Way, wire: Wire) -> None:
    names = ["first", "second"]
    tools = [{"name": name, "kind": "function"} for name in names]
    server.answer(
        stream(*map(event, late_first(wire))) if way.streamed else json_reply(both(wire)), json_reply(wire.whole("-"))
    )
    seen = way.invoke(wire.agent(server, tools=tools))
    assert [call.name for call in seen.result] == names


def both(wire: Wire) -> Json:
    whole: Any = calling(wire, "first", "a")
    other: Any = calling(wire, "second", "b")
    match wire.name:
        case "chat":
            whole["choices"][0]["message"]["tool_calls"] += other["choices"][0]["message"]["tool_calls"]
        case "responses":
            whole["output"] += other["output"]
        case _:
            whole["content"] += other["content"]
    assert isinstance(whole, dict)
    return whole


def late_first(wire: Wire) -> list[Any]:
    """A stream in which the second call arrives before the first."""
    whole: Any = both(wire)
    match wire.name:
        case "chat":
            calls = whole["choices"][0]["message"]["tool_calls"]
            chunks = [Chat().chunk({"tool_calls": [{**calls[at], "index": at}]}) for at in (1, 0)]
            return [*chunks, *Chat().ended(finish="tool_calls")]
        case "responses":
            items = [(at, whole["output"][at]) for at in (1, 0)]
            done = [{"type": "response.output_item.done", "output_index": at, "item": item} for at, item in items]
            added = [{**one, "type": "response.output_item.added"} for one in done]
            return [*added, *done, {"type": "response.completed", "response": {**whole, "output": []}}]
    blocks = [(at, whole["content"][at]) for at in (1, 0)]
    events: list[Json] = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}]
    for at, block in blocks:
        events.append({"type": "content_block_start", "index": at, "content_block": block})
        events.append({"type": "content_block_stop", "index": at})
    return [*events, {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]
