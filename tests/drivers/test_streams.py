"""A streamed answer: the same as the whole one, however its bytes are cut; given up, cut off or silent, it lets its
connection go."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from prompty import AsyncPromptyStream, PromptyStream, ToolCall, invoke, invoke_async
from prompty.errors import ModelError, StreamCut
from prompty.events import Done, IterationStarted, ModelReply, ModelRequested, Retry, RunStarted, TextDelta
from prompty.model.message import Reply
from tests.drivers.wires import USAGE, Chat, Wire
from tests.loopback import CLOSE, Forever, Hold, Server, cut, event, json_reply, stream
from tests.ways import Way

# On both of our transports.


WORDS = ("Grüße, ", "", "\U0001f600 line\n", "break\r\n\u2028end", '"')


# What a stream is made of.


def test_a_stream_comes_to_the_same_as_the_whole_answer(server: Server, wire: Wire) -> None:
    server.answer(stream(*wire.stream(*WORDS)), json_reply(wire.whole("".join(WORDS))))
    with invoke(wire.agent(server), stream=True) as answer:
        assert "".join(map(str, answer)) == "".join(WORDS)
        assert answer.result == invoke(wire.agent(server)) == "".join(WORDS)
        assert answer.usage == USAGE


def replies(server: Server, way: Way, wire: Wire) -> Reply:
    last = way.invoke(wire.agent(server)).answer[-1]
    assert isinstance(last, ModelReply)
    return last.reply


def test_both_drivers_put_the_same_reply_together(server: Server, wire: Wire) -> None:
    server.answer(stream(*wire.stream(*WORDS)))
    both = [replies(server, Way(asynchronous, streamed=True), wire) for asynchronous in (False, True)]
    assert both[0] == both[1]
    assert (both[0].text, both[0].finish_reason, both[0].usage) == ("".join(WORDS), "stop", USAGE)


def test_bytes_may_be_cut_anywhere(server: Server, wire: Wire) -> None:
    content = b"".join(wire.stream(*WORDS))
    agent = wire.agent(server)
    for position in range(1, len(content), 7):
        server.answer(stream(*cut(content, position)))
        assert invoke(agent, stream=True).result == "".join(WORDS)


def test_each_byte_may_come_alone(server: Server, stream_way: Way, wire: Wire) -> None:
    content = b"".join(wire.stream(*WORDS))
    server.answer(stream(*cut(content, *range(1, len(content)))))
    assert stream_way.invoke(wire.agent(server)).result == "".join(WORDS)


FRAMINGS: dict[str, Callable[[bytes], bytes]] = {
    "carriage returns": lambda content: content.replace(b"\n", b"\r\n"),
    "carriage returns alone": lambda content: content.replace(b"\n", b"\r"),
    "a byte order mark": lambda content: b"\xef\xbb\xbf" + content,
    "comments": lambda content: content.replace(b"data:", b": keep alive\n\ndata:"),
    "no blank after the colon": lambda content: content.replace(b"data: ", b"data:"),
    "ids and retries": lambda content: content.replace(b"data:", b"id: 1\nretry: 5\ndata:"),
    "no blank line at the end": lambda content: content.rstrip(b"\n"),
    "data that is no object": lambda content: b"data: 1\n\ndata: null\n\n" + content,
}


@pytest.mark.parametrize("framed", FRAMINGS.values(), ids=FRAMINGS)
def test_events_may_be_framed_in_many_ways(
    server: Server, stream_way: Way, wire: Wire, framed: Callable[[bytes], bytes]
) -> None:
    server.answer(stream(framed(b"".join(wire.stream("Hel", "lo")))))
    reply = replies(server, stream_way, wire)
    assert (reply.text, reply.id) == ("Hello", "a")


def test_a_byte_order_mark_does_not_swallow_the_first_event(server: Server, stream_way: Way) -> None:
    wire = Chat()
    server.answer(stream(b"\xef\xbb\xbf", *map(event, [wire.chunk({"content": "Hello"}), *wire.ended()])))
    assert stream_way.invoke(wire.agent(server)).result == "Hello"


def test_a_stream_may_end_with_its_connection(server: Server, stream_way: Way, wire: Wire) -> None:
    server.answer([b"HTTP/1.1 200 OK\r\n\r\n", *wire.stream("Hello"), CLOSE])
    assert stream_way.invoke(wire.agent(server)).result == "Hello"


# How a stream is read.


@pytest.fixture
def answer(server: Server) -> Any:
    wire = Chat()
    server.answer(stream(*wire.stream("Hel", "lo")))
    return invoke(wire.agent(server), stream=True)


def test_the_result_needs_no_iteration(answer: PromptyStream[Any]) -> None:
    assert answer.result == "Hello"
    assert answer.result == "Hello"
    assert answer.usage == USAGE


def test_the_result_follows_iteration(answer: PromptyStream[Any]) -> None:
    assert list(answer) == ["Hel", "lo"]
    assert answer.result == "Hello"
    assert list(answer) == []


def test_the_result_takes_what_iteration_left(answer: PromptyStream[Any]) -> None:
    assert next(iter(answer)) == "Hel"
    assert answer.usage.output_tokens is None
    assert answer.result == "Hello"


def test_the_events_of_a_stream(answer: PromptyStream[Any]) -> None:
    started, iteration, requested, *deltas, reply, done = answer.events()
    assert [type(event) for event in (started, iteration, requested)] == [RunStarted, IterationStarted, ModelRequested]
    assert deltas == [TextDelta("Hel"), TextDelta("lo")]
    assert isinstance(reply, ModelReply)
    assert reply.reply.text == "Hello"
    assert isinstance(done, Done)
    assert done.result == "Hello"


def test_reading_a_stream_in_async_code(server: Server) -> None:
    wire = Chat()
    server.answer(stream(*wire.stream("Hel", "lo")))

    async def main() -> None:
        answer = await invoke_async(wire.agent(server), stream=True)
        async for first in answer:
            assert first == "Hel"
            break
        assert answer.usage.output_tokens is None
        assert [text async for text in answer] == ["lo"]
        assert await answer.result() == await answer.result() == "Hello"
        assert answer.usage == USAGE

    asyncio.run(main())


@pytest.mark.spec("002 §8.6", "calls come after the text, in the order of their index")
def test_calls_come_after_the_text(server: Server) -> None:
    wire = Chat()
    call = wire.call(index=0, id="c", function={"name": "look", "arguments": "{}"})
    said = [*wire.said("Well"), wire.chunk({"tool_calls": [call]}), *wire.ended(finish="tool_calls")]
    server.answer(stream(*map(event, said)))
    look = ToolCall(id="c", name="look", arguments="{}")
    answer = invoke(wire.agent(server), stream=True)
    assert list(answer) == ["Well", look]
    assert answer.result == [look]

    async def main() -> list[Any]:
        return [item async for item in await invoke_async(wire.agent(server), stream=True)]

    assert asyncio.run(main()) == ["Well", look]


# Streams that end badly.


@pytest.mark.spec(
    "001 Arguments are a string until the moment of execution",
    "an answer whose stream failed is a message marked as an error",
)
def test_a_stream_that_ends_without_its_end_is_cut(server: Server, stream_way: Way, wire: Wire) -> None:
    server.answer(stream(*map(event, wire.said("Hel", "lo"))))
    seen = stream_way.invoke(wire.agent(server))
    assert isinstance(seen.error, StreamCut)
    assert isinstance(seen.error.partial, Reply)
    assert (seen.error.partial.text, seen.error.partial.finish_reason) == ("Hello", None)
    assert len(server.requests) == 1


def test_text_is_complete_at_the_end_mark_even_without_a_finish_reason(server: Server, stream_way: Way) -> None:
    """Some servers never send a finish reason. Without the end mark, or with a call in it, a stream is cut (P3)."""
    chat = Chat()
    words = [event(chunk) for chunk in chat.said("Hello, ", "you")]
    server.answer(stream(*words, event("[DONE]")))
    seen = stream_way.invoke(chat.agent(server))
    assert seen.result == "Hello, you"
    called = event(chat.chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}))
    for chunks in (words, [event("[DONE]")], [*words, called, event("[DONE]")]):
        server.answer(stream(*chunks))
        assert isinstance(stream_way.invoke(chat.agent(server), max_retries=0).error, StreamCut)


def test_an_empty_stream_is_tried_again(server: Server, stream_way: Way, wire: Wire) -> None:
    server.answer(stream(), stream(*wire.stream("Hello")))
    assert stream_way.invoke(wire.agent(server)).result == "Hello"


def test_an_error_inside_a_stream(server: Server, stream_way: Way, wire: Wire) -> None:
    server.answer(stream(*map(event, [*wire.said("Hel"), wire.error_event("overloaded")])))
    seen = stream_way.invoke(wire.agent(server))
    assert isinstance(seen.error, StreamCut)
    assert "overloaded" in str(seen.error)
    assert isinstance(seen.error.partial, Reply)
    assert seen.error.partial.text == seen.text == "Hel"
    assert len(server.requests) == 1


def test_an_error_before_a_word_is_tried_again(server: Server, stream_way: Way, wire: Wire) -> None:
    server.answer(stream(event(wire.error_event("overloaded"))), stream(*wire.stream("Hello")))
    seen = stream_way.invoke(wire.agent(server))
    assert seen.result == "Hello"
    assert "overloaded" in seen.of(Retry)[0].reason


def test_a_stream_that_falls_silent(server: Server, stream_way: Way, wire: Wire) -> None:
    server.answer(stream(*map(event, wire.said("Hel")), Hold()))
    seen = stream_way.invoke_until_heard(wire.agent(server), timeout=0.3)
    assert isinstance(seen.error, StreamCut)
    assert isinstance(seen.error.partial, Reply)
    assert seen.error.partial.text == "Hel"
    assert server.wait_until(lambda: server.open == 0)


def test_a_server_that_says_nothing_at_all(server: Server, way: Way, wire: Wire) -> None:
    server.answer([Hold()])
    error = way.invoke(wire.agent(server), timeout=0.1).error
    assert isinstance(error, ModelError)
    assert "in time" in str(error)
    assert server.wait_until(lambda: server.open == 0)


def test_chunks_slower_than_the_limit(server: Server, stream_way: Way) -> None:
    wire = Chat()
    server.answer(stream(*map(event, wire.said("Hel")), Hold(), *map(event, wire.ended())))
    answer = stream_way.invoke_until_heard(wire.agent(server), timeout=0.1)
    assert isinstance(answer.error, StreamCut)
    assert "in time" in str(answer.error)


def test_a_stream_that_never_ends_is_ended(server: Server, stream_way: Way, wire: Wire) -> None:
    server.answer(stream(*map(event, wire.said()), Forever(event(wire.said("on and ")[-1]))))
    seen = stream_way.invoke_until_heard(wire.agent(server), timeout=0.3)
    assert isinstance(seen.error, StreamCut)
    assert seen.text.startswith("on and ")
    assert not seen.error.retryable
    assert server.wait_until(lambda: server.open == 0)


def test_signs_of_life_are_not_an_answer(server: Server, stream_way: Way, wire: Wire) -> None:
    server.answer(stream(Forever(b": wait\n\n")))
    assert isinstance(stream_way.invoke(wire.agent(server), timeout=0.1).error, ModelError)
    assert server.wait_until(lambda: server.open == 0)


def test_a_whole_answer_in_drops_ends_in_time(server: Server, whole_way: Way, wire: Wire) -> None:
    server.answer(stream(Forever(b" ")))
    error = whole_way.invoke(wire.agent(server), timeout=0.1).error
    assert isinstance(error, ModelError)
    assert "time" in str(error)
    assert server.wait_until(lambda: server.open == 0)


# Streams that are given up. The server waits in the middle of its answer, and sees the connection end.


@pytest.fixture
def endless(server: Server) -> Wire:
    wire = Chat()
    server.answer(stream(*map(event, wire.said("Hel")), Hold()))
    return wire


def released(server: Server) -> bool:
    assert len(server.requests) == 1
    return server.wait_until(lambda: server.open == 0)


def test_a_stream_left_by_break_and_dropped(server: Server, endless: Wire) -> None:
    answer = invoke(endless.agent(server), stream=True)
    for _ in answer:
        break
    del answer
    assert released(server)


def test_a_stream_that_is_closed(server: Server, endless: Wire) -> None:
    answer = invoke(endless.agent(server), stream=True)
    assert next(iter(answer)) == "Hel"
    answer.close()
    assert released(server)
    with pytest.raises(StreamCut, match="closed before"):
        _ = answer.result


def leave_by_an_error(answer: PromptyStream[Any]) -> None:
    with answer:
        for _ in answer:
            raise ZeroDivisionError


def test_a_stream_left_by_an_error(server: Server, endless: Wire) -> None:
    answer = invoke(endless.agent(server), stream=True)
    with pytest.raises(ZeroDivisionError):
        leave_by_an_error(answer)
    assert released(server)


def test_a_stream_that_is_never_read_asks_for_nothing(server: Server, endless: Wire) -> None:
    answer = invoke(endless.agent(server), stream=True)
    answer.close()
    assert list(answer) == []
    assert server.requests == []


async def left_by_break_and_dropped(answer: AsyncPromptyStream[Any]) -> None:
    async for _ in answer:
        break
    del answer
    gc.collect()
    for _ in range(50):
        await asyncio.sleep(0)  # the loop closes dropped generators, one inside the other


async def closed_early(answer: AsyncPromptyStream[Any]) -> None:
    async for _ in answer:
        await answer.aclose()
    with pytest.raises(StreamCut, match="closed before"):
        await answer.result()


async def raise_inside(answer: AsyncPromptyStream[Any]) -> None:
    async with answer:
        async for _ in answer:
            raise ZeroDivisionError


async def left_by_an_error(answer: AsyncPromptyStream[Any]) -> None:
    with pytest.raises(ZeroDivisionError):
        await raise_inside(answer)


async def cancelled(answer: AsyncPromptyStream[Any]) -> None:
    heard = asyncio.Event()

    async def listen() -> None:
        async for _ in answer:
            heard.set()

    task = asyncio.create_task(listen())
    await heard.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def timed_out(answer: AsyncPromptyStream[Any]) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await answer.result()


WAYS_OUT = [left_by_break_and_dropped, closed_early, left_by_an_error, cancelled, timed_out]


@pytest.mark.parametrize("way_out", WAYS_OUT, ids=lambda way: way.__name__)
def test_an_async_stream_that_is_given_up(server: Server, endless: Wire, way_out: Callable[..., Any]) -> None:
    async def main() -> bool:
        await way_out(await invoke_async(endless.agent(server), stream=True))
        return released(server)  # the loop stands still meanwhile: nothing is left for it to do

    assert asyncio.run(main())


def test_an_async_stream_that_is_never_read_asks_for_nothing(server: Server, endless: Wire) -> None:
    async def main() -> None:
        answer = await invoke_async(endless.agent(server), stream=True)
        await answer.aclose()
        assert [item async for item in answer] == []

    asyncio.run(main())
    assert server.requests == []


def test_a_call_that_is_cancelled_lets_its_connection_go(server: Server, endless: Wire) -> None:
    hold = Hold()
    server.answer([hold])

    async def main() -> bool:
        task = asyncio.create_task(invoke_async(endless.agent(server)))
        await asyncio.to_thread(hold.reached.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return released(server)

    assert asyncio.run(main())
