"""Answers that the host has already: objects of an SDK, and streams of chunks (§8, §8.6)."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import anthropic.types
import openai.types
import openai.types.chat
import openai.types.responses
import pytest

from prompty import PromptAgent, ToolCall, Usage, invoke, invoke_async
from prompty.errors import ModelError, Refused, RequestError, StreamCut
from prompty.events import Done, ModelReply, RunStarted, TextDelta
from prompty.model.message import Reply
from prompty.pipeline import process, process_async, process_stream, process_stream_async
from prompty.providers import register_executor
from prompty.testing.encoding import WIRES as WIRES_BY_PATH

WIRES = dict(zip(("chat", "responses", "messages"), WIRES_BY_PATH.values(), strict=True))
PROVIDERS = {"chat": ("openai", "chat"), "responses": ("openai", "responses"), "messages": ("anthropic", "chat")}
Objects = dict[str, Callable[[Any], Any]]
# As the SDKs do it: fields that the server left out are no error.
WHOLE: Objects = {
    "chat": lambda body: openai.types.chat.ChatCompletion.construct(**body),
    "responses": lambda body: openai.types.responses.Response.construct(**body),
    "messages": lambda body: anthropic.types.Message.construct(**body),
}
CHUNKS: Objects = {
    "chat": lambda event: openai.types.chat.ChatCompletionChunk.construct(**event),
    "responses": lambda event: openai.BaseModel.construct(**event),
    "messages": lambda event: anthropic.BaseModel.construct(**event),
}
CALLS = (ToolCall(id="a", name="look", arguments='{"city":"Bonn"}'), ToolCall(id="b", name="look", arguments="{}"))
REPLIES = {"text": Reply(text="Hello there."), "calls": Reply(tool_calls=CALLS)}

every_wire = pytest.mark.parametrize("wire", WIRES)
every_reply = pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)


def agent_of(wire: str, **parts: Any) -> PromptAgent:
    provider, api = PROVIDERS[wire]
    model = {"id": "m", "provider": provider, "apiType": api}
    return PromptAgent.model_validate({"model": model, "instructions": "user:\nHi", **parts})


def expected(reply: Reply) -> object:
    return list(reply.tool_calls) or reply.text


def whole(wire: str, reply: Reply) -> dict[str, Any]:
    body: dict[str, Any] = WIRES[wire].whole(reply)
    return body


def events(wire: str, reply: Reply) -> list[dict[str, Any]]:
    lines = b"".join(WIRES[wire].events(reply)).splitlines()
    data = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]
    return [json.loads(one) for one in data if one != b"[DONE]"]


async def asynchronously(chunks: Iterable[object]) -> AsyncIterator[object]:
    for chunk in chunks:
        await asyncio.sleep(0)
        yield chunk


def in_async_code(agent: PromptAgent, chunks: Iterable[object]) -> list[object]:
    async def read() -> list[object]:
        return [piece async for piece in await process_stream_async(agent, asynchronously(chunks))]

    return asyncio.run(read())


@every_wire
@every_reply
@pytest.mark.spec("002 §8.1", "a raw reply may be an object of a provider's SDK")
def test_an_object_of_the_sdk_is_processed_like_its_json(wire: str, reply: Reply) -> None:
    raw = whole(wire, reply)
    for response in (raw, WHOLE[wire](raw)):
        assert process(agent_of(wire), response) == expected(reply)
        assert asyncio.run(process_async(agent_of(wire), response)) == expected(reply)


@pytest.mark.parametrize(
    ("api", "response", "result"),
    [
        (
            "embedding",
            openai.types.CreateEmbeddingResponse.model_validate(
                {
                    "data": [{"embedding": [0.5, 1.0], "index": 0, "object": "embedding"}],
                    "model": "m",
                    "object": "list",
                    "usage": {"prompt_tokens": 1, "total_tokens": 1},
                }
            ),
            [0.5, 1.0],
        ),
        (
            "image",
            openai.types.ImagesResponse.model_validate({"created": 0, "data": [{"url": "https://x.example/a.png"}]}),
            "https://x.example/a.png",
        ),
    ],
)
def test_vectors_and_images_of_the_sdk_are_processed(api: str, response: object, result: object) -> None:
    agent = PromptAgent.model_validate({"model": {"id": "m", "provider": "openai", "apiType": api}})
    assert process(agent, response) == result


@pytest.mark.usefixtures("clean_registry")
def test_an_executor_may_return_an_object_of_the_sdk() -> None:
    class Executor:
        def execute(self, *_: object) -> object:
            return WHOLE["chat"](whole("chat", Reply(text="Hello.", usage=Usage(input_tokens=3, output_tokens=2))))

        async def execute_async(self, *_: object) -> object:
            return self.execute()

    register_executor("openai", Executor())
    assert invoke(agent_of("chat")) == "Hello."
    assert asyncio.run(invoke_async(agent_of("chat"))) == "Hello."
    streamed = invoke(agent_of("chat"), stream=True)
    assert (streamed.result, streamed.usage.input_tokens) == ("Hello.", 3)


@pytest.mark.parametrize("response", [5, None, "text", [], object()])
def test_what_is_no_answer_is_an_error_of_ours(response: object) -> None:
    with pytest.raises(ModelError):
        process(agent_of("chat"), response)


@pytest.mark.spec("002 §8.6", "process_stream takes a stream alone")
@pytest.mark.spec("002 §8.6", "a stream is processed piece by piece")
@every_wire
@every_reply
@pytest.mark.parametrize("read", [lambda agent, chunks: list(process_stream(agent, chunks)), in_async_code])
@pytest.mark.spec("002 §8.6", "process_stream takes the raw chunks of a stream")
def test_a_raw_stream_gives_its_text_and_then_its_calls(
    wire: str, reply: Reply, read: Callable[[PromptAgent, Iterable[object]], list[object]]
) -> None:
    chunks = events(wire, reply)
    for stream in (chunks, [CHUNKS[wire](chunk) for chunk in chunks]):
        pieces = read(agent_of(wire), stream)
        calls = [piece for piece in pieces if isinstance(piece, ToolCall)]
        assert "".join(piece for piece in pieces if isinstance(piece, str)) == reply.text
        assert (calls, pieces[-len(calls) :] if calls else []) == (list(reply.tool_calls), calls)


@every_wire
def test_a_raw_stream_has_the_events_the_result_and_the_usage_of_any_stream(wire: str) -> None:
    reply = Reply(text='{"a": 1}', usage=Usage(input_tokens=3, output_tokens=2))
    outputs = [{"name": "a", "kind": "integer"}]
    stream = process_stream(agent_of(wire, outputs=outputs), iter(events(wire, reply)))
    kinds = [type(event) for event in stream.events()]
    assert (kinds[0], kinds[-2:]) == (RunStarted, [ModelReply, Done])
    assert TextDelta in kinds
    assert (stream.result, stream.usage.input_tokens, stream.messages[-1].text) == ({"a": 1}, 3, '{"a": 1}')


@pytest.mark.spec("002 §8.6", "deltas are given out as they come")
def test_a_raw_stream_is_read_as_it_is_asked_for() -> None:
    taken = 0

    def chunks() -> Iterator[object]:
        nonlocal taken
        for chunk in events("chat", Reply(text="One two three")):
            taken += 1
            yield chunk

    stream = process_stream(agent_of("chat"), chunks())
    assert taken == 0
    assert next(iter(stream)).strip() == "One"  # type: ignore[union-attr]  # it is text
    assert taken < len(events("chat", Reply(text="One two three")))


@pytest.mark.spec("002 §8.6", "calls are put together by index")
def test_calls_of_a_raw_stream_come_in_the_order_of_their_indexes() -> None:
    def chunk(*calls: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": {"tool_calls": list(calls)}, "finish_reason": finish}]}

    second = {"index": 1, "id": "b", "function": {"name": "two", "arguments": "{}"}}
    first = {"index": 0, "id": "a", "function": {"name": "one", "arguments": '{"x":'}}
    rest = {"index": 0, "function": {"arguments": "1}"}}
    stream = [chunk(second), chunk(first), chunk(rest), chunk(finish="tool_calls"), {"choices": []}]
    assert [(call.id, call.arguments) for call in process_stream(agent_of("chat"), stream)] == [  # type: ignore[union-attr]  # they are calls
        ("a", '{"x":1}'),
        ("b", "{}"),
    ]


@pytest.mark.spec("002 §8.6", "a refusal in a stream is a ValueError")
def test_a_refusal_in_a_raw_stream_is_a_value_error() -> None:
    refused = {"choices": [{"index": 0, "delta": {"refusal": "No."}, "finish_reason": "stop"}]}
    with pytest.raises(ValueError, match=r"No\.") as error:
        list(process_stream(agent_of("chat"), [refused]))
    assert isinstance(error.value, Refused)


@every_wire
@pytest.mark.parametrize("read", [lambda agent, chunks: list(process_stream(agent, chunks)), in_async_code])
def test_a_raw_stream_that_ends_early_runs_no_call(
    wire: str, read: Callable[[PromptAgent, Iterable[object]], list[object]]
) -> None:
    chunks = events(wire, Reply(tool_calls=CALLS))
    with pytest.raises(StreamCut):
        read(agent_of(wire), chunks[: len(chunks) // 2])
    with pytest.raises(StreamCut, match="not an object"):
        read(agent_of(wire), ["no chunk"])


def test_an_error_of_the_hosts_own_iterator_stays_what_it_is() -> None:
    def chunks() -> Iterator[object]:
        yield from events("chat", Reply(text="One"))[:1]
        raise LookupError("the host's")

    with pytest.raises(LookupError, match="the host's"):
        list(process_stream(agent_of("chat"), chunks()))


def test_a_raw_stream_is_closed_with_its_reader() -> None:
    class Chunks:
        closed = 0

        def __init__(self, wait: bool = False) -> None:
            self.wait = wait
            self.chunks = iter(events("chat", Reply(text="One two")))

        def __iter__(self) -> Iterator[object]:
            return self.chunks

        async def __aiter__(self) -> AsyncIterator[object]:
            for chunk in self.chunks:
                yield chunk

        def close(self) -> object:
            self.closed += 1
            return asyncio.sleep(0) if self.wait else None

    chunks = Chunks()
    with process_stream(agent_of("chat"), chunks) as stream:
        next(iter(stream))
    assert chunks.closed == 1

    async def leave(chunks: Chunks) -> None:
        async with await process_stream_async(agent_of("chat"), chunks) as stream:
            async for _ in stream:
                break

    chunks = Chunks(wait=True)
    asyncio.run(leave(chunks))
    assert chunks.closed == 1


def test_a_stream_that_cannot_be_read_is_refused_at_once() -> None:
    vectors = PromptAgent.model_validate({"model": {"id": "m", "provider": "openai", "apiType": "embedding"}})
    with pytest.raises(RequestError, match="has no streams"):
        process_stream(vectors, [])
    with pytest.raises(RequestError, match="process_stream_async"):
        process_stream(agent_of("chat"), asynchronously([]))  # type: ignore[arg-type]  # the mistake
    with pytest.raises(RequestError, match="process_stream"):
        asyncio.run(process_stream_async(agent_of("chat"), []))  # type: ignore[arg-type]  # the mistake
