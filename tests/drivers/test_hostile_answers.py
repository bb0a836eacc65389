"""Answers that no documentation describes: each is read, or is an error of ours, and nothing half-received can run."""

import json
import traceback
from typing import Any

import pytest

from prompty import ToolCall, __version__
from prompty.errors import ModelError, Refused, StreamCut
from prompty.events import ModelReply, Retry
from prompty.model.message import Json
from tests.drivers.wires import KEY, TOOL, Chat, Messages, Responses, Wire
from tests.loopback import Reply, Server, cut, event, gzip_reply, json_reply, reply, stream
from tests.ways import STREAMED, Way

# On both of our transports.


TWENTY_MEGABYTES = 20_000_000


def answered(wire: Wire, way: Way, text: str, finish: str = "stop") -> Reply:
    return stream(*wire.stream(text, finish=finish)) if way.streamed else json_reply(wire.whole(text, finish))


# Whole answers that are not what they should be.

UNREADABLE: dict[str, Reply] = {
    "not JSON": reply(b"OK"),
    "half of JSON": reply(b'{"choices": [{'),
    "not UTF-8": reply(b'{"a": "\xff"}'),
    "nothing": reply(b""),
    "a list": json_reply([1, 2]),
    "null": json_reply(None),
    "an object of something else": json_reply({"detail": "hello"}),
    "bottomless": reply(b"[" * 100_000),
    "not gzip": reply(b"{}", headers={"content-encoding": "gzip"}),
}


@pytest.mark.parametrize("unreadable", UNREADABLE.values(), ids=UNREADABLE)
def test_an_answer_that_cannot_be_read_is_tried_again(server: Server, way: Way, wire: Wire, unreadable: Reply) -> None:
    server.answer(unreadable, answered(wire, way, "Hello"))
    seen = way.invoke(wire.agent(server), max_retries=0)
    assert isinstance(seen.error, ModelError)
    assert seen.error.retryable
    assert way.invoke(wire.agent(server)).result == "Hello"


def test_a_web_page_is_not_tried_again_and_is_shown(server: Server, way: Way, wire: Wire) -> None:
    server.answer(reply(b"<html>Welcome!</html>", headers={"content-type": "text/html"}))
    seen = way.invoke(wire.agent(server))
    assert isinstance(seen.error, ModelError)
    assert "<html>Welcome!</html>" in str(seen.error)
    assert "Check the endpoint" in str(seen.error)
    assert len(server.requests) == 1


# A form no API has, at every place where something is read.
MISSHAPEN = ["text", 5, [1], ["text"], [None], [[]], {"a": 1}, [{"a": 1}], True]
PLACES: dict[str, list[str]] = {
    "chat": [
        *["choices", "choices.0", "choices.0.message", "choices.0.message.tool_calls", "choices.0.message.content"],
        *["choices.0.message.refusal", "choices.0.message.reasoning_content", "usage", "error"],
    ],
    "responses": ["output", "output.0", "output.0.content", "output.0.content.0", "usage", "error", "status"],
    "anthropic": ["content", "content.0", "content.0.text", "usage", "stop_reason", "stop_details", "error"],
}


def with_value(payload: Json, place: str, value: object) -> Json:
    changed: Any = json.loads(json.dumps(payload))
    *path, last = [int(step) if step.isdigit() else step for step in place.split(".")]
    target = changed
    for step in path:
        target = target[step]
    target[last] = value
    assert isinstance(changed, dict)
    return changed


def test_a_misshapen_answer_is_read_or_is_an_error_of_ours(server: Server, whole_way: Way, wire: Wire) -> None:
    whole = wire.whole("Hello")
    misshapen = [with_value(whole, place, value) for place in PLACES[wire.name] for value in MISSHAPEN]
    server.answer(*map(json_reply, misshapen))
    seen = whole_way.invoke_often(len(misshapen), wire.agent(server), max_retries=0)
    assert all(one.error is None or isinstance(one.error, ModelError) for one in seen)


def places_in(value: object, path: tuple[str, ...] = ()) -> list[str]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inner = [place for name, item in items for place in places_in(item, (*path, str(name)))]
    return [".".join(path), *inner] if path else inner


def test_a_misshapen_event_is_read_or_is_an_error_of_ours(server: Server, stream_way: Way, wire: Wire) -> None:
    events = [item for item in (*wire.said("Hello"), *wire.ended("Hello")) if isinstance(item, dict)]
    misshapen = [
        [*events[:position], with_value(item, place, value), *events[position + 1 :]]
        for position, item in enumerate(events)
        for place in places_in(item)
        for value in ("text", [None], {"a": 1})
    ]
    server.answer(*[stream(*map(event, changed)) for changed in misshapen])
    seen = stream_way.invoke_often(len(misshapen), wire.agent(server), max_retries=0)
    assert all(one.error is None or isinstance(one.error, ModelError) for one in seen)


def test_an_event_that_is_not_json(server: Server, stream_way: Way, wire: Wire) -> None:
    server.answer(stream(*map(event, [*wire.said("Hel"), "{half"])))
    seen = stream_way.invoke(wire.agent(server))
    assert isinstance(seen.error, StreamCut)
    assert "not JSON" in str(seen.error)
    assert seen.text == "Hel"


@pytest.mark.parametrize("choices", [[], None])
def test_no_choices(server: Server, way: Way, choices: object) -> None:
    wire = Chat()
    server.answer(stream(event({"choices": choices})) if way.streamed else json_reply({"choices": choices}))
    error = way.invoke(wire.agent(server), max_retries=0).error
    assert isinstance(error, ModelError)
    assert error.retryable


def test_an_error_in_an_answer_that_calls_itself_fine(server: Server, whole_way: Way, wire: Wire) -> None:
    server.answer(json_reply(wire.error_event("out of cards")))
    error = whole_way.invoke(wire.agent(server), max_retries=0).error
    assert isinstance(error, ModelError)
    if not isinstance(wire, Responses):  # which has errors of this form in streams only
        assert "out of cards" in str(error)


def test_a_whole_answer_where_a_stream_was_asked_for(server: Server, stream_way: Way, wire: Wire) -> None:
    server.answer(json_reply(wire.whole("Hello")))
    assert isinstance(stream_way.invoke(wire.agent(server), max_retries=0).error, StreamCut)


# Ends of answers.


def test_a_filtered_answer_says_so(server: Server, way: Way) -> None:
    for wire in (Chat(), Responses()):
        server.answer(answered(wire, way, "Hel", "content_filter"))
        seen = way.invoke(wire.agent(server))
        assert seen.result == "Hel"
        [last] = seen.of(ModelReply)
        assert last.reply.finish_reason == "content_filter"


def test_a_refusal_of_anthropic(server: Server, way: Way) -> None:
    wire = Messages()
    server.answer(answered(wire, way, "No.", "content_filter"))
    seen = way.invoke(wire.agent(server))
    assert isinstance(seen.error, Refused) if way.streamed else seen.result == "No."
    assert len(server.requests) == 1


def test_a_length_stop_inside_a_call_leaves_nothing_to_run(server: Server, way: Way, wire: Wire) -> None:
    server.answer(stream(*map(event, wire.half_call_stream())) if way.streamed else json_reply(wire.half_call()))
    assert way.invoke(wire.agent(server, tools=[TOOL])).result == "Well"


@pytest.mark.spec("002 §8.6", "calls are given out when a stream ends, however it ended")
def test_a_cut_stream_holds_no_call_that_could_run(server: Server, stream_way: Way, wire: Wire) -> None:
    half = wire.half_call_stream()
    for end in range(1, len(half)):
        server.answer(stream(*map(event, half[:end])))
        error = stream_way.invoke(wire.agent(server), max_retries=0).error
        if isinstance(wire, Chat) and end >= len(half) - 2:  # it had said why it ends
            assert error is None
        else:
            assert isinstance(error, StreamCut)


# Calls in pieces (P4).

FIRST, SECOND = {"name": "look", "arguments": '{"at":'}, {"name": "look", "arguments": '{"at":'}
MORE, REST = {"arguments": '"a"}'}, {"arguments": '"b"}'}
TWO = [ToolCall(id="1", name="look", arguments='{"at":"a"}'), ToolCall(id="2", name="look", arguments='{"at":"b"}')]
PIECES: dict[str, list[Json]] = {
    "as documented": [
        {"index": 0, "id": "1", "function": FIRST},
        {"index": 0, "function": MORE},
        {"index": 1, "id": "2", "function": SECOND},
        {"index": 1, "function": REST},
    ],
    "by turns": [
        {"index": 0, "id": "1", "function": FIRST},
        {"index": 1, "id": "2", "function": SECOND},
        {"index": 0, "function": MORE},
        {"index": 1, "function": REST},
    ],
    "without an index": [
        {"id": "1", "function": FIRST},
        {"function": MORE},
        {"id": "2", "function": SECOND},
        {"function": REST},
    ],
    "always the same index": [
        {"index": 0, "id": "1", "function": FIRST},
        {"index": 0, "function": MORE},
        {"index": 0, "id": "2", "function": SECOND},
        {"index": 0, "function": REST},
    ],
    "the id and the name in every piece": [
        {"index": 0, "id": "1", "function": FIRST},
        {"index": 0, "id": "1", "function": {"name": "look", **MORE}},
        {"index": 1, "id": "2", "function": SECOND},
        {"index": 1, "id": "2", "function": {"name": "look", **REST}},
    ],
    "indexes that begin anywhere": [
        {"index": 3, "id": "1", "function": FIRST},
        {"index": 3, "function": MORE},
        {"index": 7, "id": "2", "function": SECOND},
        {"index": 7, "function": REST},
    ],
    "arguments that are objects": [
        {"index": 0, "id": "1", "function": {"name": "look", "arguments": {"at": "a"}}},
        {"index": 1, "id": "2", "function": {"name": "look", "arguments": {"at": "b"}}},
    ],
}


@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
def test_calls_are_put_together_whatever_their_indexes(server: Server, stream_way: Way, pieces: list[Json]) -> None:
    wire = Chat()
    chunks = [wire.chunk({"tool_calls": [piece]}) for piece in pieces]
    server.answer(stream(*map(event, [*wire.said(), *chunks, *wire.ended(finish="tool_calls")])))
    calls = stream_way.invoke(wire.agent(server)).result
    assert [(call.id, call.name, json.loads(call.arguments)) for call in calls] == [
        (call.id, call.name, json.loads(call.arguments)) for call in TWO
    ]


def test_an_id_that_stands_twice_leaves_both_calls(server: Server, way: Way) -> None:
    wire = Chat()
    calls = [wire.call(index=place, id="1", function={**FIRST, "arguments": "{}"}) for place in (0, 1)]
    streamed = [*wire.said(), *(wire.chunk({"tool_calls": [call]}) for call in calls), *wire.ended()]
    server.answer(stream(*map(event, streamed)) if way.streamed else json_reply(wire.whole("", tool_calls=calls)))
    assert way.invoke(wire.agent(server)).result == [ToolCall(id="1", name="look", arguments="{}")] * 2


# Much of it.


def test_twenty_megabytes_of_text(server: Server, way: Way) -> None:
    wire = Chat()
    words = ["x" * 100_000] * (TWENTY_MEGABYTES // 100_000)
    server.answer(stream(*wire.stream(*words)) if way.streamed else json_reply(wire.whole("".join(words))))
    assert len(way.invoke(wire.agent(server)).result) == TWENTY_MEGABYTES


def test_twenty_megabytes_in_one_event(server: Server, wire: Wire) -> None:
    content = b"".join(wire.stream("x" * TWENTY_MEGABYTES))
    server.answer(stream(*cut(content, *range(1_000_000, len(content), 1_000_000))))
    assert len(STREAMED[0].invoke(wire.agent(server)).result) == TWENTY_MEGABYTES


def test_an_event_without_end_is_given_up(server: Server, stream_way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prompty.wire.stream.MAX_EVENT_BYTES", 1_000_000)
    server.answer(stream(b"data: ", *[b"x" * 100_000] * 20))
    error = stream_way.invoke(Chat().agent(server)).error
    assert isinstance(error, StreamCut)
    assert "1,000,000 bytes" in str(error)
    assert len(server.requests) == 1


def test_a_packed_answer_is_unpacked(server: Server, whole_way: Way, wire: Wire) -> None:
    server.answer(gzip_reply(wire.whole("Hello")))
    assert whole_way.invoke(wire.agent(server)).result == "Hello"


# What is sent, and what is never shown.


@pytest.mark.spec("000 §7.5", "Anthropic is supported")
@pytest.mark.spec("004 Request Format", "requests go to the path of the Responses API")
@pytest.mark.spec("000 §7.8", "every request has the user agent prompty/<version>")
def test_every_request_says_who_sends_it(server: Server, way: Way, wire: Wire) -> None:
    server.answer(answered(wire, way, "Hello"))
    way.invoke(wire.agent(server))
    request = server.requests[0]
    assert (request.method, request.path) == ("POST", wire.path)
    assert request.headers["user-agent"] == f"prompty/{__version__}"
    assert request.body["model"] == "m"
    assert bool(request.body.get("stream")) == way.streamed


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(server: Server, way: Way, wire: Wire, status: int) -> None:
    with Server() as elsewhere:
        server.answer(reply(b"", status, {"location": f"{elsewhere.url}{wire.path}"}))
        error = way.invoke(wire.agent(server)).error
        assert isinstance(error, ModelError)
        assert (error.status, error.retryable) == (status, False)
        assert elsewhere.requests == []
        assert len(server.requests) == 1


ECHOES: dict[str, Reply] = {
    "an error status": json_reply({"error": {"message": f"the key {KEY} is wrong"}}, 401),
    "a web page": reply(f"<html>{KEY}</html>".encode(), 502),
    "an error in a fine answer": json_reply({"error": {"message": f"the key {KEY} is wrong"}}),
    "an event": stream(event({"type": "error", "error": {"type": "a", "message": f"the key {KEY} is wrong"}})),
    "a redirect": reply(b"", 302, {"location": f"http://127.0.0.1:9/{KEY}"}),
    "a status line": [f"HTTP/1.1 {KEY} Hello\r\n\r\n".encode()],
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
def test_a_key_that_the_server_repeats_is_not_shown(server: Server, way: Way, wire: Wire, echo: Reply) -> None:
    server.answer(echo)
    seen = way.invoke(wire.agent(server), max_retries=1)
    assert isinstance(seen.error, ModelError)
    assert KEY not in "".join(traceback.format_exception(seen.error))
    assert KEY not in repr(seen.error)
    assert not [retry for retry in seen.of(Retry) if KEY in retry.reason]


def test_a_long_error_is_shown_in_short(server: Server, way: Way, wire: Wire) -> None:
    server.answer(json_reply({"error": {"message": "no " * 100_000}}, 400))
    assert len(str(way.invoke(wire.agent(server)).error)) < 3_000
