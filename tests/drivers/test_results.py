"""What an answer becomes: text, a dict, a type of the caller's, or an error that says why not."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from prompty import ToolCall, invoke, invoke_async
from prompty.errors import Refused, ResultError
from prompty.model.message import Json
from prompty.pipeline import cast, process, process_async, run, run_async
from tests.drivers.wires import Chat, Messages, Responses, Wire
from tests.loopback import Reply, Server, event, json_reply, stream
from tests.ways import Way

OUTPUTS = [{"name": "city", "kind": "string"}, {"name": "people", "kind": "integer"}]
BERLIN = {"city": "Berlin", "people": 3_800_000}
TEXT = json.dumps(BERLIN)
PIECES = ('{"city": "Ber', 'lin", "peo', 'ple": 3800', "000}")


class CityModel(BaseModel):
    city: str
    people: int


@dataclass
class CityClass:
    city: str
    people: int


class CityDict(TypedDict):
    city: str
    people: int


def answered(wire: Wire, way: Way, *words: str) -> Reply:
    return stream(*wire.stream(*words)) if way.streamed else json_reply(wire.whole("".join(words)))


@pytest.mark.spec("000 §7.7", "the parsed object is the result")
@pytest.mark.spec("002 §8.4", "with outputs the text is parsed, and is the result where it is not JSON")
@pytest.mark.spec("002 §8.5", "with outputs the text is parsed, and is the result where it is not JSON")
@pytest.mark.spec("004 Basic Configuration", "invoke and invoke_async work as they do for chat")
@pytest.mark.spec("004 Overview", "setting the API type is all it takes")
@pytest.mark.spec("004 Structured Output", "the answer is parsed as JSON")
def test_declared_outputs_become_a_dict(server: Server, way: Way, wire: Wire) -> None:
    server.answer(answered(wire, way, *PIECES))
    result = way.invoke(wire.agent(server, outputs=OUTPUTS)).result
    assert result == BERLIN
    assert cast(result, CityModel) == CityModel(city="Berlin", people=3_800_000)


@pytest.mark.spec("000 §7.7", "what is not JSON is returned as it is")
@pytest.mark.spec("002 §8.4", "with outputs the text is parsed, and is the result where it is not JSON")
@pytest.mark.spec("002 §8.5", "with outputs the text is parsed, and is the result where it is not JSON")
def test_text_that_is_no_json_stays_text_for_a_lenient_caller(server: Server, way: Way, wire: Wire) -> None:
    server.answer(answered(wire, way, "I would ", "rather not"))
    agent = wire.agent(server, outputs=OUTPUTS)
    assert way.invoke(agent, outputs_mode="lenient").result == "I would rather not"
    assert process(agent, wire.whole("I would rather not")) == "I would rather not"


TYPES: dict[str, tuple[type, object]] = {
    "a pydantic model": (CityModel, CityModel(city="Berlin", people=3_800_000)),
    "a dataclass": (CityClass, CityClass("Berlin", 3_800_000)),
    "a TypedDict": (CityDict, BERLIN),
    "a dict": (dict[str, Any], BERLIN),
    "text": (str, TEXT),
}


@pytest.mark.parametrize(("output_type", "expected"), TYPES.values(), ids=TYPES)
def test_the_result_has_the_type_that_was_asked_for(
    server: Server, way: Way, output_type: type, expected: object
) -> None:
    wire = Chat()
    server.answer(answered(wire, way, TEXT))
    seen = way.invoke(wire.agent(server), output_type=output_type)
    assert seen.result == expected
    assert type(seen.result) is type(expected)


@pytest.mark.parametrize("outputs", [[], OUTPUTS], ids=["nothing declared", "declared"])
@pytest.mark.parametrize("text", ['{"city": "Berlin"}', "Berlin", "[1]", ""])
def test_an_answer_of_another_type_is_an_error(server: Server, way: Way, text: str, outputs: list[Json]) -> None:
    wire = Chat()
    server.answer(answered(wire, way, text))
    error = way.invoke(wire.agent(server, outputs=outputs), output_type=CityModel).error
    assert isinstance(error, ResultError)
    assert "CityModel" in str(error)
    assert len(server.requests) == 1


REFUSALS: dict[str, tuple[Wire, Json, list[Any]]] = {
    "chat": (
        Chat(),
        Chat().whole("", refusal="I cannot."),
        [*Chat().said(), Chat().chunk({"refusal": "I cannot."}), *Chat().ended()],
    ),
    "responses": (
        Responses(),
        Responses().response(
            "completed", {"type": "message", "content": [{"type": "refusal", "refusal": "I cannot."}]}
        ),
        [*Responses().said(), {"type": "response.refusal.delta", "delta": "I cannot."}, *Responses().ended()],
    ),
    "anthropic": (
        Messages(),
        Messages().whole("I cannot.", "content_filter"),
        [*Messages().said("I cannot."), *Messages().ended(finish="content_filter")],
    ),
}


@pytest.mark.parametrize(("wire", "whole", "events"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_text_unless_a_type_was_asked_for_or_it_was_streamed(
    server: Server, way: Way, wire: Wire, whole: Json, events: list[Any]
) -> None:
    server.answer(stream(*map(event, events)) if way.streamed else json_reply(whole))
    plain, typed = way.invoke(wire.agent(server)), way.invoke(wire.agent(server), output_type=CityModel)
    assert isinstance(typed.error, Refused)
    assert typed.error.refusal == "I cannot."
    assert isinstance(plain.error, Refused) if way.streamed else plain.result == "I cannot."
    assert len(server.requests) == 2


GROWN = [
    {"city": "Ber"},
    {"city": "Berlin"},
    {"city": "Berlin", "people": 3800},
    BERLIN,
]


def test_a_structured_answer_can_be_watched_while_it_grows(server: Server, wire: Wire) -> None:
    server.answer(stream(*wire.stream(*PIECES)))
    agent = wire.agent(server, outputs=OUTPUTS)
    with invoke(agent, stream=True, output_type=CityModel) as answer:
        assert list(answer.partials()) == GROWN
        assert answer.result == CityModel(city="Berlin", people=3_800_000)

    async def main() -> None:
        async with await invoke_async(agent, stream=True, output_type=CityModel) as answer:
            assert [part async for part in answer.partials()] == GROWN
            assert (await answer.result()).city == "Berlin"

    asyncio.run(main())


def test_what_does_not_grow_into_json_has_no_parts(server: Server) -> None:
    wire = Chat()
    server.answer(stream(*wire.stream("Well, ", "no")))
    assert list(invoke(wire.agent(server), stream=True).partials()) == []


def test_messages_one_already_has_are_sent_as_they_are(server: Server, wire: Wire) -> None:
    server.answer(json_reply(wire.whole("Hello")))
    messages = [{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}]
    third = {"role": "user", "content": [{"type": "text", "text": "Three"}]}
    agent = wire.agent(server)
    assert run(agent, [*messages, third]) == "Hello"
    assert asyncio.run(run_async(agent, [*messages, third])) == "Hello"
    assert server.requests[0].body == server.requests[1].body
    assert "Three" in server.requests[0].content.decode()


@pytest.mark.spec("002 §8", "process and process_async take an agent and a raw reply")
def test_a_raw_answer_can_be_processed_by_itself(wire: Wire) -> None:
    agent = wire.agent("http://127.0.0.1:9")
    assert process(agent, wire.whole("Hello")) == "Hello"
    assert asyncio.run(process_async(agent, wire.whole("Hello"))) == "Hello"


@pytest.mark.spec("002 §8.7", "a call has an id, a name and arguments")
@pytest.mark.spec("002 §8.4", "calls come before text")
@pytest.mark.spec("002 §8.4", "the text of the output is the result")
def test_calls_of_a_response_come_before_its_text() -> None:
    agent = Responses().agent("http://127.0.0.1:9", outputs=OUTPUTS)
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]}
    called = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "look", "arguments": '{"at": "a"}'}
    assert process(agent, {"status": "completed", "output": [said]}) == "Let me see."
    assert process(agent, {"status": "completed", "output": [said, called]}) == [
        ToolCall(id="c", name="look", arguments='{"at": "a"}')
    ]


@pytest.mark.spec("002 §8.7", "a call has an id, a name and arguments")
@pytest.mark.spec("002 §8.7", "arguments are always JSON text")
@pytest.mark.spec("002 §8.5", "calls come before text")
def test_calls_of_anthropic_come_before_text_with_arguments_as_text() -> None:
    agent = Messages().agent("http://127.0.0.1:9", outputs=OUTPUTS)
    said = {"type": "text", "text": "Let me see."}
    called = {"type": "tool_use", "id": "c", "name": "look", "input": {"at": "a"}}
    assert process(agent, {"content": [said, called], "stop_reason": "tool_use"}) == [
        ToolCall(id="c", name="look", arguments='{"at":"a"}')
    ]


def test_calls_are_the_result_when_there_are_any(server: Server, way: Way) -> None:
    wire = Chat()
    call = wire.call(index=0, id="c", function={"name": "look", "arguments": "{}"})
    events = [*wire.said("Well"), wire.chunk({"tool_calls": [call]}), *wire.ended(finish="tool_calls")]
    server.answer(stream(*map(event, events)) if way.streamed else json_reply(wire.whole("Well", tool_calls=[call])))
    assert way.invoke(wire.agent(server)).result == [ToolCall(id="c", name="look", arguments="{}")]
