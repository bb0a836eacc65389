"""Server-sent events: however the bytes are cut, the events are the same."""

import json
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prompty.errors import ModelError
from prompty.wire import stream
from prompty.wire.stream import EventReader
from tests.machine import time_factor

Event = dict[str, Any]


def read(*chunks: bytes) -> list[Event]:
    reader = EventReader()
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.finish()


FLOODS = {
    "empty lines": (b"\n", "200,000 events and empty lines"),
    "carriage returns": (b"\r", "200,000 events and empty lines"),
    "events": (b"data: {}\n\n", "200,000 events and empty lines"),
    "comments": (b":\n", "600,000 lines"),
    "comments with carriage returns": (b":\r\n", "600,000 lines"),
    "lines of one event": (b"data: x\n", "600,000 lines"),
}


@pytest.mark.parametrize(("piece", "limit"), FLOODS.values(), ids=FLOODS)
def test_a_stream_of_too_many_lines_is_refused(piece: bytes, limit: str) -> None:
    with pytest.raises(ModelError, match=f"the stream has more than {limit}"):
        read(*[piece * 10_000] * 61)


def test_a_long_stream_of_named_events_is_read() -> None:
    chunk = b'event: delta\ndata: {"a": 1}\n\n' * 1_000
    assert len(read(*[chunk] * 199)) == 199_000


ONE, TWO = {"a": 1}, {"b": [2]}
STREAMS: dict[str, tuple[bytes, list[Event]]] = {
    "nothing": (b"", []),
    "one event": (b'data: {"a": 1}\n\n', [ONE]),
    "no blank after the colon": (b'data:{"a": 1}\n\n', [ONE]),
    "two events": (b'data: {"a": 1}\n\ndata: {"b": [2]}\n\n', [ONE, TWO]),
    "carriage returns and line feeds": (b'data: {"a": 1}\r\n\r\ndata: {"b": [2]}\r\n\r\n', [ONE, TWO]),
    "carriage returns alone": (b'data: {"a": 1}\r\rdata: {"b": [2]}\r\r', [ONE, TWO]),
    "all kinds of line ends": (b'data: {"a": 1}\r\n\ndata: {"b": [2]}\n\r\n', [ONE, TWO]),
    "comments": (b': keep-alive\n\ndata: {"a": 1}\n: more\n\n:\n\n', [ONE]),
    "names and ids": (b'event: delta\nid: 7\nretry: 3\ndata: {"a": 1}\n\n', [ONE]),
    "data in two lines": (b'data: {"b":\ndata: [2]}\n\n', [TWO]),
    "the end mark": (b'data: {"a": 1}\n\ndata: [DONE]\n\n', [ONE]),
    "blank lines": (b'\n\n\ndata: {"a": 1}\n\n\n\n', [ONE]),
    "no blank line at the end": (b'data: {"a": 1}\n\ndata: {"b": [2]}', [ONE, TWO]),
    "no blank line after the last line": (b'data: {"a": 1}\r\n', [ONE]),
    "half an event at the end": (b'data: {"a": 1}\n\ndata: {"b": [', [ONE]),
    "half an end mark": (b'data: {"a": 1}\n\ndata: [DO', [ONE]),
    "what is not an object": (b'data: 1\n\ndata: ["x"]\n\ndata: {"a": 1}\n\n', [ONE]),
    "data without a colon": (b'data\n\ndata: {"a": 1}\n\n', [ONE]),
}


@pytest.mark.parametrize(("stream", "events"), STREAMS.values(), ids=STREAMS)
def test_events_are_read_at_once_and_byte_by_byte(stream: bytes, events: list[Event]) -> None:
    assert read(stream) == events
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == events


def test_an_event_is_given_out_as_soon_as_it_is_whole() -> None:
    reader = EventReader()
    assert reader.feed(b'data: {"a"') == []
    assert reader.feed(b": 1}\n") == []
    assert reader.feed(b"\ndata: ") == [ONE]
    assert reader.feed(b'{"b": [2]}\r\n\r\n') == [TWO]
    assert reader.finish() == []


def test_data_that_is_not_json_is_an_error_that_may_pass() -> None:
    with pytest.raises(ModelError, match="not JSON") as caught:
        read(b"data: oops\n\n")
    assert caught.value.retryable


@pytest.mark.parametrize("line", [b"x" * 10, b"data: \n" * 10], ids=["one line", "many lines"])
def test_an_event_without_an_end_is_an_error(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_EVENT_BYTES", 100)
    assert read(*[b'data: {"a": 1}\n\n' * 6] * 3) == [ONE] * 18
    with pytest.raises(ModelError, match="more than 100 bytes"):
        read(*[line] * 11)


@pytest.mark.timing
def test_an_event_in_many_pieces_takes_time_in_proportion() -> None:
    text = json.dumps({"image": "x" * 8_000_000}).encode()
    started = time.perf_counter()
    [event] = read(b"data: ", *(text[at : at + 1000] for at in range(0, len(text), 1000)), b"\n\n")
    assert len(event["image"]) == 8_000_000
    assert time.perf_counter() - started < 1 * time_factor()


events = st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers(), max_size=3), max_size=5)
ends = st.sampled_from(["\n", "\r\n", "\r"])


@given(events, ends, st.booleans(), st.booleans(), st.data())
def test_events_are_the_same_however_the_bytes_are_cut(
    expected: list[Event], end: str, named: bool, done: bool, data: st.DataObject
) -> None:
    blocks = [json.dumps(event, ensure_ascii=False, indent=data.draw(st.sampled_from([None, 1]))) for event in expected]
    if done:
        blocks.append("[DONE]")
    lines = ["".join(f"data: {line}{end}" for line in block.split("\n")) for block in blocks]
    name = f"event: delta{end}: a comment{end}" if named else ""
    stream = "".join(f"{name}{block}{end}" for block in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    assert read(*(stream[start:stop] for start, stop in pairwise([0, *cuts, len(stream)]))) == expected
