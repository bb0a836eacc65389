"""Calls that arrive in pieces: the same calls as by a search through all of them, in linear time, and not too many."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prompty import ToolCall
from prompty.errors import ModelError
from prompty.model.message import Json
from prompty.providers.anthropic import messages
from prompty.providers.openai import chat, responses
from prompty.wire.stream import MAX_CALLS, CallAssembler, ReplyReader

Piece = tuple[int | None, str, str, str]


def search(pieces: Iterable[Piece]) -> list[list[str]]:
    """Return id, name and arguments of the calls that pieces belong to, found by a walk over all calls."""
    calls: list[list[str]] = []
    at: dict[int, int] = {}
    for index, call_id, name, arguments in pieces:
        found = None
        if calls and (index is None or index in at):
            current = len(calls) - 1 if index is None else at[index]
            same_id = [position for position, call in enumerate(calls) if call_id and call[0] == call_id]
            for position in (current, *same_id):
                known_id, known_name, _ = calls[position]
                if (not call_id or known_id in ("", call_id)) and (not name or known_name in ("", name)):
                    found = position
                    break
        if found is None:
            found = len(calls)
            calls.append([call_id, name, ""])
        if index is not None:
            at[index] = found
        call = calls[found]
        calls[found] = [call[0] or call_id, call[1] or name, call[2] + arguments]
    return calls


pieces = st.lists(
    st.tuples(
        st.none() | st.integers(0, 3),
        st.sampled_from(["", "", "a", "b"]),
        st.sampled_from(["", "", "f", "g"]),
        st.just("1"),
    ),
    max_size=14,
)


@given(pieces)
def test_pieces_in_any_order_give_the_calls_that_a_search_gives(given_pieces: list[Piece]) -> None:
    assembler = CallAssembler()
    seen: list[list[str]] = []
    for index, call_id, name, arguments in given_pieces:
        delta = assembler.add(index, call_id, name, arguments)
        seen += [["", "", ""]] * (delta.index + 1 - len(seen))
        seen[delta.index] = [delta.id, delta.name, seen[delta.index][2] + delta.arguments]
    assert seen == search(given_pieces)


class Counted(str):
    """An id that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def count_comparisons(calls: int) -> int:
    """Return how many comparisons it takes to begin calls and to continue each of them at a foreign index."""
    Counted.comparisons = 0
    assembler = CallAssembler()
    for number in range(calls):
        assembler.add(number, Counted(f"id{number}"), "f", "{")
    for number in range(calls):
        assembler.add(0, Counted(f"id{number}"), "f", "}")
    assert [call.arguments for call in assembler.calls()] == ["{}"] * calls
    return Counted.comparisons


def test_the_work_for_a_piece_does_not_grow_with_the_number_of_calls() -> None:
    few, many = count_comparisons(200), count_comparisons(800)
    assert 0 < many <= 4 * few + 10


def chat_events(count: int) -> list[Json]:
    calls = [
        {"index": number, "id": f"c{number}", "function": {"name": "f", "arguments": "{}"}} for number in range(count)
    ]
    deltas: list[Json] = [{"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in calls]
    return [*deltas, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}]


def chat_answer(count: int) -> Json:
    calls = [{"id": f"c{number}", "function": {"name": "f", "arguments": "{}"}} for number in range(count)]
    return {"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}


def response_items(count: int) -> list[Json]:
    call = {"type": "function_call", "name": "f", "arguments": "{}", "status": "completed"}
    return [{**call, "call_id": f"c{number}"} for number in range(count)]


def response_events(count: int) -> list[Json]:
    items = enumerate(response_items(count))
    done: list[Json] = [
        {"type": "response.output_item.done", "output_index": number, "item": item} for number, item in items
    ]
    return [*done, {"type": "response.completed", "response": {"status": "completed"}}]


def response_answer(count: int) -> Json:
    return {"status": "completed", "output": response_items(count)}


def message_blocks(count: int) -> list[Json]:
    return [{"type": "tool_use", "id": f"c{number}", "name": "f", "input": {}} for number in range(count)]


def message_events(count: int) -> list[Json]:
    events: list[Json] = [{"type": "message_start", "message": {"role": "assistant"}}]
    for number, block in enumerate(message_blocks(count)):
        events.append({"type": "content_block_start", "index": number, "content_block": block})
        events.append({"type": "content_block_stop", "index": number})
    return [*events, {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]


def message_answer(count: int) -> Json:
    return {"content": message_blocks(count), "stop_reason": "tool_use"}


def read_stream(api: Any, events: list[Json]) -> tuple[ToolCall, ...]:
    reader = ReplyReader(api.decoder())
    try:
        for event in events:
            list(reader.feed(f"data: {json.dumps(event)}\n\n".encode()))
        return reader.reply().tool_calls
    except ModelError as error:
        raise reader.cut(error) from None


ANSWERS: dict[str, Any] = {
    "chat, streamed": lambda count: read_stream(chat.API, chat_events(count)),
    "chat, whole": lambda count: chat.API.reply(chat_answer(count)).tool_calls,
    "responses, streamed": lambda count: read_stream(responses.API, response_events(count)),
    "responses, whole": lambda count: responses.API.reply(response_answer(count)).tool_calls,
    "messages, streamed": lambda count: read_stream(messages.API, message_events(count)),
    "messages, whole": lambda count: messages.API.reply(message_answer(count)).tool_calls,
}


@pytest.mark.parametrize("read", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_has_at_most_a_thousand_calls(read: Any) -> None:
    assert len(read(MAX_CALLS)) == MAX_CALLS == 1_000
    with pytest.raises(ModelError, match="the answer has more than 1,000 tool calls") as caught:
        read(MAX_CALLS + 1)
    assert not caught.value.retryable
