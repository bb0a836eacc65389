"""The public vectors for requests, replies and streams.

A vector is waived only by name, with the number of the decision that contradicts it; what we send instead is checked.
"""

from collections.abc import Callable
from typing import Any

import pytest

from prompty import Message, PromptAgent, ToolCall, assistant, system, tool_result, user
from prompty.errors import ModelError, Refused, StreamCut
from prompty.events import TextDelta
from prompty.model.message import Reply, parse_messages
from prompty.model.tool import FunctionTool
from prompty.pipeline.request import list_declared_functions, process_reply
from prompty.providers import PROVIDERS, Api
from prompty.providers.fitting import fit_request
from prompty.registry import DEFAULT
from prompty.wire.stream import cut_error
from prompty.wire.structured import build_function
from tests.conformance.test_vectors import VECTORS, Vector, vectors

Body = dict[str, Any]


def nullable(body: Body) -> Body:
    """The schema of the outputs as the vector has it: what is not called required may be null."""
    for schema in body["text"]["format"]["schema"]["properties"].values():
        schema["type"] = [schema["type"], "null"]
    return body


def without_strict(body: Body) -> Body:
    """Tools as the vector has them: `strict` left to the API."""
    for tool in body["tools"]:
        assert tool.pop("strict") is False
    return body


# Name → the decision, and what makes our body the vector's.
WAIVED: dict[str, tuple[str, Callable[[Body], Body]]] = {
    "responses_structured_output": ("W5: an output is null only when it says `required: false`", nullable),
    "responses_with_tools": ("W9: `strict` is always explicit", without_strict),
}


def agent_of(given: Vector) -> PromptAgent:
    names = {"provider": given["provider"], "apiType": given["apiType"], "id": given.get("model_id", "m")}
    outputs = given.get("outputs") or ([{"name": "any"}] if given.get("has_outputs") else [])
    return PromptAgent.model_validate(
        {"model": {**names, "options": given.get("options", {})}, "tools": given.get("tools", []), "outputs": outputs}
    )


def api_of(given: Vector) -> Api:
    return DEFAULT[PROVIDERS].get(given["provider"]).api(given.get("apiType", "chat"))


# The requirements that single vectors prove.
PROVED = {
    "responses_simple": [pytest.mark.spec("000 §7.4", "the type responses has its own format")],
    "anthropic_system_separate": [
        pytest.mark.spec("000 §7.5", "messages are always blocks"),
        pytest.mark.spec("000 §7.5", "the system message is a field of its own"),
        pytest.mark.spec("000 §7.5", "Anthropic is supported"),
    ],
    "anthropic_options": [pytest.mark.spec("000 §7.6", "options have their names for Anthropic")],
    "chat_with_options": [pytest.mark.spec("000 §7.6", "options have their names for chat")],
    "chat_audio_mp3": [pytest.mark.spec("000 §7.1.2", "audio types become formats")],
    "kind_to_json_type_mapping": [pytest.mark.spec("000 §7.1.4", "kinds become JSON types")],
    "tools_null_when_empty": [pytest.mark.spec("000 §7.1.3", "no tools means no key")],
    "structured_output": [pytest.mark.spec("000 §7.1.6", "outputs become a response format")],
    "embedding_wire": [pytest.mark.spec("000 §7.2", "an embeddings request is built")],
    "image_wire": [pytest.mark.spec("000 §7.3", "an image request is built")],
    "chat_multiple_tool_calls": [pytest.mark.spec("002 §8.1", "the full list of calls is the result")],
    "embedding_single": [pytest.mark.spec("002 §8.2", "one vector is not a list of one")],
    "anthropic_tool_use": [pytest.mark.spec("002 §8.7", "arguments are always JSON text")],
    "responses_tool_calls": [pytest.mark.spec("004 Response Format", "calls are items of the output")],
    "responses_text": [
        pytest.mark.spec("004 Response Format", "text is in the items of the output"),
        pytest.mark.spec("004 Response Format", "a reply without calls is the answer"),
    ],
}


def proving(stage: str) -> list[Any]:
    return [
        pytest.param(*given.values, id=given.id, marks=[*given.marks, *PROVED.get(str(given.id), [])])
        for given in vectors(stage)
    ]


@pytest.mark.spec("000 §7", "at least one provider is supported")
@pytest.mark.parametrize("vector", proving("wire"))
def test_wire(vector: Vector, record_property: Callable[[str, object], None]) -> None:
    given = vector["input"]
    agent = agent_of(given)
    functions = [build_function(tool) for tool in agent.tools if isinstance(tool, FunctionTool)]
    api = api_of(given)
    body = api.request(fit_request(agent, api), parse_messages(given["messages"]), functions)
    if vector["name"] in WAIVED:
        reason, like_the_vector = WAIVED[vector["name"]]
        record_property("waived", f"{vector['name']} ({reason})")
        assert body != vector["expected"]["request_body"]
        body = like_the_vector(body)
    assert body == vector["expected"]["request_body"]


@pytest.mark.parametrize("vector", proving("process"))
def test_process(vector: Vector) -> None:
    given = vector["input"]
    reply = api_of(given).reply(given["response"])
    assert plain(process_reply(agent_of(given), reply)) == vector["expected"]["result"]


def plain(result: object) -> object:
    if isinstance(result, list):
        return [entry.to_json() if isinstance(entry, ToolCall) else entry for entry in result]
    return result


@pytest.mark.spec("002 §8.6", "a stream is processed piece by piece")
@pytest.mark.parametrize("vector", vectors("stream"))
def test_stream(vector: Vector) -> None:
    expected = vector["expected"]
    with pytest.raises(ModelError) as caught:
        streamed(vector["input"], words := list[str]())
    assert [{"kind": "text", "value": word} for word in words] == expected["chunks"][:-1]
    failure = expected["chunks"][-1]["failure"]
    assert str(caught.value) == failure["message"]
    if failure["outcome"] == "determinate":
        assert isinstance(caught.value, Refused)
    else:
        assert isinstance(caught.value, StreamCut)
        assert isinstance(caught.value.partial, Reply)
        assert caught.value.partial.text == expected["partialText"]


def streamed(given: Vector, words: list[str]) -> Reply:
    """Decode the events of a vector, failing where it says that the connection does."""
    make = api_of(given).decoder
    assert make
    decoder = make()
    for event in given["events"]:
        if event["kind"] == "transportError":
            raise cut_error(ModelError(event["message"]), decoder, bool(words))
        words += [delta.text for delta in decoder.feed(event["value"]) if isinstance(delta, TextDelta)]
    return decoder.finish()


def test_all_public_vectors_are_there() -> None:
    if not VECTORS.is_dir():
        pytest.skip("no vectors")
    counts = {stage: len(vectors(stage)) for stage in ("wire", "process", "stream")}
    assert counts == {"wire": 28, "process": 21, "stream": 2}


# The bodies that 004 prints. Its schema is named for the prompt; ours has the name that 000 fixes (W5).

QUESTION = [system("You are a helpful assistant."), user("What is Prompty?")]
CITY = {"city": {"kind": "string", "description": "The city name"}}


def printed(api_type: str, messages: list[Message], **fields: Any) -> Body:
    options = {"temperature": 0.7, "maxOutputTokens": 1000}
    agent = PromptAgent.model_validate({"model": {"id": "gpt-4o", "apiType": api_type, "options": options}, **fields})
    api = api_of({"provider": "openai", "apiType": api_type})
    return api.request(fit_request(agent, api), messages, list_declared_functions(agent))


@pytest.mark.spec("004 Wire Format Example", "the printed requests are what is sent")
@pytest.mark.spec("004 Request Format", "system messages become instructions")
@pytest.mark.spec("004 Request Format", "user and assistant messages become input")
@pytest.mark.spec("004 Request Format", "the most tokens are max_output_tokens")
def test_the_responses_request_that_the_guide_prints() -> None:
    assert printed("responses", QUESTION) == {
        "model": "gpt-4o",
        "instructions": "You are a helpful assistant.",
        "input": [{"role": "user", "content": "What is Prompty?"}],
        "max_output_tokens": 1000,
        "temperature": 0.7,
    }
    more = [assistant("A file format."), user("Whose?")]
    assert printed("responses", [*QUESTION, *more])["input"] == [
        {"role": "user", "content": "What is Prompty?"},
        {"role": "assistant", "content": "A file format."},
        {"role": "user", "content": "Whose?"},
    ]


@pytest.mark.spec("004 Wire Format Example", "the printed requests are what is sent")
def test_the_chat_request_that_the_guide_prints() -> None:
    assert printed("chat", QUESTION) == {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "What is Prompty?"},
        ],
        "max_completion_tokens": 1000,
        "temperature": 0.7,
    }


@pytest.mark.spec("004 Request Format", "tools are flat")
def test_tools_are_flat_for_responses_and_nested_for_chat() -> None:
    tools = [{"name": "get_weather", "kind": "function", "strict": True, "parameters": CITY}]
    [flat] = printed("responses", QUESTION, tools=tools)["tools"]
    [nested] = printed("chat", QUESTION, tools=tools)["tools"]
    assert flat == {"type": "function", **nested["function"]}


@pytest.mark.spec("004 Structured Output", "the schema has the name of the prompt")
@pytest.mark.spec("004 Structured Output", "outputs become text.format")
def test_the_structured_request_that_the_guide_prints() -> None:
    body = printed("responses", QUESTION, outputs=CITY)
    assert "response_format" not in body
    assert body["text"]["format"] == {
        "type": "json_schema",
        "name": "structured_output",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The city name"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    }


@pytest.mark.spec("004 How Tool Calls Work with the Responses API", "calls go back as they came, then their outputs")
def test_a_tool_turn_goes_back_as_calls_and_outputs() -> None:
    api = api_of({"provider": "openai", "apiType": "responses"})
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "get_weather", "arguments": "{}"}
    turn = api.tool_messages(api.reply({"status": "completed", "output": [call]}), [tool_result("call_1", "72°F")])
    output = {"type": "function_call_output", "call_id": "call_1", "output": "72°F"}
    assert printed("responses", [*QUESTION, *turn])["input"][1:] == [call, output]
