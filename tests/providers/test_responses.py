"""The Responses API: requests its schema takes, replies, and streams that end in the same reply (004, §8.4, §8.6)."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, strategies as st
from openai.types.responses import ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from prompty import Message, PromptAgent, ToolCall, Usage, assistant, system, tool_result, user
from prompty.errors import EmptyReply, ModelError, Refused, RequestError, ResponseFailed, StreamCut
from prompty.events import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from prompty.messages import TextPart
from prompty.model.content import AudioPart, FilePart, ImagePart
from prompty.model.message import Reply
from prompty.providers.fitting import fit_request
from prompty.providers.openai.responses import API, ResponsesDecoder, reply
from prompty.tools import Function
from tests.public_data import SHARED

Json = dict[str, Any]
OPENAPI = SHARED / "openapi" / "openai.json"


def agent(options: Json | None = None, **fields: Any) -> PromptAgent:
    model = {"id": "gpt-5", "apiType": "responses", "options": options or {}}
    return PromptAgent.model_validate({"model": model, **fields})


def request(prompt: PromptAgent, messages: list[Message], functions: list[Function]) -> Json:
    return API.request(fit_request(prompt, API), messages, functions)


def calling(*calls: ToolCall, text: str = "", **fields: Any) -> Message:
    return Message("assistant", text or (), tool_calls=calls, **fields)


# A turn as the API gives it: encrypted reasoning, then a word to the user, then two calls.
TOOL_TURN: Json = {
    "id": "resp_67ccd3a9",
    "object": "response",
    "created_at": 1741476777,
    "status": "completed",
    "background": False,
    "error": None,
    "incomplete_details": None,
    "instructions": "You are a helpful assistant.",
    "max_output_tokens": None,
    "model": "gpt-5-2025-08-07",
    "output": [
        {
            "id": "rs_67ccf18f64008190a39b619f4c8455ef087bb177ab789d5c",
            "type": "reasoning",
            "encrypted_content": "gAAAAABo+/9k–é\u2028Zz==",
            "summary": [
                {"type": "summary_text", "text": "**Looking up the weather**\n\nTwo cities."},
                {"type": "summary_text", "text": "**Calling the tool**"},
            ],
        },
        {
            "id": "msg_67ccf190ca3881909d433c50b1f6357e",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "Let me look.", "annotations": [], "logprobs": []}],
        },
        {
            "id": "fc_67ccf18f1",
            "type": "function_call",
            "status": "completed",
            "arguments": '{"city": "Paris"}',
            "call_id": "call_unLAR8Mv",
            "name": "get_weather",
        },
        {
            "id": "fc_67ccf18f2",
            "type": "function_call",
            "status": "completed",
            "arguments": "{}",
            "call_id": "call_0xFFFFFF",
            "name": "get_time",
        },
    ],
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
    "usage": {
        "input_tokens": 75,
        "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 8},
        "output_tokens": 123,
        "output_tokens_details": {"reasoning_tokens": 100},
        "total_tokens": 198,
    },
    "user": None,
    "metadata": {},
}
PARIS = ToolCall(id="call_unLAR8Mv", name="get_weather", arguments='{"city": "Paris"}')
CLOCK = ToolCall(id="call_0xFFFFFF", name="get_time")
TOOL_MESSAGES = API.tool_messages(reply(TOOL_TURN), [tool_result(PARIS.id, "18°C"), tool_result(CLOCK.id, "noon")])

PNG = ImagePart("iVBORw0KGgo=", "image/png")
PNG_ITEM = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
PARIS_ITEM = {"type": "function_call", "call_id": PARIS.id, "name": PARIS.name, "arguments": PARIS.arguments}

INPUTS: dict[str, tuple[list[Message], list[Json]]] = {
    "one text part is a string": ([user("hi")], [{"role": "user", "content": "hi"}]),
    "several parts are a list": (
        [user("look", PNG)],
        [{"role": "user", "content": [{"type": "input_text", "text": "look"}, PNG_ITEM]}],
    ),
    "an image may be a URL and have a detail": (
        [user(ImagePart("https://x.io/a.png", detail="low"))],
        [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x.io/a.png", "detail": "low"}]}],
    ),
    "a data URI stays one": ([user(ImagePart(PNG_ITEM["image_url"]))], [{"role": "user", "content": [PNG_ITEM]}]),
    "a file may be a URL": (
        [user(FilePart("https://x.io/a.pdf"))],
        [{"role": "user", "content": [{"type": "input_file", "file_url": "https://x.io/a.pdf"}]}],
    ),
    "a file may be an id": (
        [user(FilePart("file-abc"))],
        [{"role": "user", "content": [{"type": "input_file", "file_id": "file-abc"}]}],
    ),
    "a file may be data, and is named": (
        [user(FilePart("JVBERg==", "application/pdf", "a.pdf"), FilePart("JVBERg==", "application/pdf"))],
        [
            {
                "role": "user",
                "content": [
                    {"type": "input_file", "filename": name, "file_data": "data:application/pdf;base64,JVBERg=="}
                    for name in ("a.pdf", "file")
                ],
            }
        ],
    ),
    "instructions alone are one system item": (
        [system("Be brief."), Message("developer", "Say hi."), assistant("")],
        [{"role": "system", "content": "Be brief.\n\nSay hi."}],
    ),
    "what an assistant said is text without an id": (
        [
            user("hi"),
            reply({**TOOL_TURN, "output": [{**TOOL_TURN["output"][1], "phase": None}]}).message(),
            user("so?"),
        ],
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Let me look."},
            {"role": "user", "content": "so?"},
        ],
    ),
    "an assistant that said nothing is left out": (
        [user("hi"), assistant(), assistant(""), user("hello?")],
        [{"role": "user", "content": "hi"}, {"role": "user", "content": "hello?"}],
    ),
    "a tool turn of another API is built from its calls": (
        [calling(PARIS, text="wait", reasoning="hm"), tool_result(PARIS.id, "18")],
        [
            {"role": "assistant", "content": "wait"},
            PARIS_ITEM,
            {"type": "function_call_output", "call_id": PARIS.id, "output": "18"},
        ],
    ),
    "a tool turn without text is only its calls": ([calling(PARIS)], [PARIS_ITEM]),
    "a result without content is an empty string": (
        [calling(PARIS), tool_result(PARIS.id)],
        [PARIS_ITEM, {"type": "function_call_output", "call_id": PARIS.id, "output": ""}],
    ),
    "a result of several texts is one string": (
        [calling(PARIS), tool_result(PARIS.id, "1", "8")],
        [PARIS_ITEM, {"type": "function_call_output", "call_id": PARIS.id, "output": "18"}],
    ),
    "media stay inside the result": (
        [calling(PARIS), tool_result(PARIS.id, "map", PNG, FilePart("https://x.io/a.pdf"))],
        [
            PARIS_ITEM,
            {
                "type": "function_call_output",
                "call_id": PARIS.id,
                "output": [
                    {"type": "input_text", "text": "map"},
                    PNG_ITEM,
                    {"type": "input_file", "file_url": "https://x.io/a.pdf"},
                ],
            },
        ],
    ),
    "a turn of this API goes back as it came": (
        [user("weather?"), *TOOL_MESSAGES],
        [
            {"role": "user", "content": "weather?"},
            *TOOL_TURN["output"],
            {"type": "function_call_output", "call_id": PARIS.id, "output": "18°C"},
            {"type": "function_call_output", "call_id": CLOCK.id, "output": "noon"},
        ],
    ),
}

PARAMETERS: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
LOOSE = Function(name="get_weather", description="Weather", parameters=PARAMETERS)
STRICT = Function(
    name="get_time",
    description=None,
    parameters={**PARAMETERS, "required": ["city"], "additionalProperties": False},
    strict=True,
)
LOOSE_TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Weather",
    "parameters": LOOSE.parameters,
    "strict": False,
}
STRICT_TOOL = {"type": "function", "name": "get_time", "parameters": STRICT.parameters, "strict": True}
FORMAT = {
    "type": "json_schema",
    "name": "structured_output",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
CITY = [{"name": "city", "kind": "string"}]
HI = [user("hi")]

FIELDS: dict[str, tuple[PromptAgent, list[Message], list[Function], Json]] = {
    "nothing beside the input": (agent(), HI, [], {}),
    "system and developer text are instructions": (
        agent(),
        [system("Be brief."), Message("developer", [TextPart("Be"), TextPart(" kind.")]), system(""), *HI],
        [],
        {"instructions": "Be brief.\n\nBe kind."},
    ),
    "no instructions where the system says nothing": (agent(), [system(""), *HI], [], {}),
    "the options it has, and no others": (
        agent({"temperature": 0, "maxOutputTokens": 99, "topP": 0.5, "seed": 1, "topK": 3, "stopSequences": ["x"]}),
        HI,
        [],
        {"temperature": 0, "max_output_tokens": 99, "top_p": 0.5},
    ),
    "more options never override mapped ones": (
        agent({"topP": 0.5, "additionalProperties": {"top_p": 1, "model": "x", "input": [], "store": False}}),
        HI,
        [],
        {"top_p": 0.5, "store": False},
    ),
    "tools are flat and say whether they are strict": (
        agent(),
        HI,
        [LOOSE, STRICT],
        {"tools": [LOOSE_TOOL, STRICT_TOOL]},
    ),
    "parallel calls are forbidden beside tools": (
        agent({"allowMultipleToolCalls": False}),
        HI,
        [LOOSE],
        {"tools": [LOOSE_TOOL], "parallel_tool_calls": False},
    ),
    "parallel calls are not mentioned without tools": (agent({"allowMultipleToolCalls": False}), HI, [], {}),
    "outputs are a format of the text": (agent(outputs=CITY), HI, [], {"text": {"format": FORMAT}}),
    "a format and a verbosity go together": (
        agent({"additionalProperties": {"text": {"verbosity": "low"}}}, outputs=CITY),
        HI,
        [],
        {"text": {"verbosity": "low", "format": FORMAT}},
    ),
    "a verbosity may stand alone": (
        agent({"additionalProperties": {"text": {"verbosity": "low"}}}),
        HI,
        [],
        {"text": {"verbosity": "low"}},
    ),
}
BODIES: dict[str, Json] = {
    **{name: request(agent(), messages, []) for name, (messages, _) in INPUTS.items()},
    **{name: request(prompt, messages, functions) for name, (prompt, messages, functions, _) in FIELDS.items()},
}


@pytest.mark.spec("000 §7.4.1", "a call goes back from the metadata of the message with its result")
@pytest.mark.spec("000 §7.4.1", "a message of one text is an item with a string")
@pytest.mark.spec("000 §7.4.1", "parts have the form of Chat Completions")
@pytest.mark.parametrize(("messages", "expected"), INPUTS.values(), ids=INPUTS)
def test_messages_become_input_items(messages: list[Message], expected: list[Json]) -> None:
    assert request(agent(), messages, [])["input"] == expected


@pytest.mark.spec("000 §7.7", "outputs become the provider's own mechanism")
@pytest.mark.spec("000 §7.4.1", "outputs become a text format")
@pytest.mark.spec("000 §7.4.1", "system messages are items of the input")
@pytest.mark.spec("000 §7.4.1", "tools have the form of Chat Completions")
@pytest.mark.parametrize(("prompt", "messages", "functions", "expected"), FIELDS.values(), ids=FIELDS)
def test_a_body_has_these_fields(
    prompt: PromptAgent, messages: list[Message], functions: list[Function], expected: Json
) -> None:
    body = request(prompt, messages, functions)
    assert body == {"model": "gpt-5", "input": [{"role": "user", "content": "hi"}], **expected}


@pytest.fixture(scope="module")
def create_response() -> jsonschema_rs.Draft202012Validator:
    if not OPENAPI.exists():
        pytest.skip("OpenAI's API description is not there; set PROMPTY_SHARED to the folder that holds openapi/")
    components = json.loads(OPENAPI.read_text(encoding="utf-8"))["components"]
    return jsonschema_rs.Draft202012Validator({"$ref": "#/components/schemas/CreateResponse", "components": components})


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_api_description_takes_every_body(body: Json, create_response: jsonschema_rs.Draft202012Validator) -> None:
    create_response.validate(body)
    create_response.validate(API.stream_body(body))


CREATE_PARAMS: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsNonStreaming)


def walked(value: Any) -> Any:
    """Go through what pydantic checks only when it is iterated over."""
    if isinstance(value, dict):
        return {name: walked(inner) for name, inner in value.items()}
    return [walked(inner) for inner in value] if isinstance(value, Iterable) and not isinstance(value, str) else value


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_types_of_the_sdk_take_every_body(body: Json) -> None:
    walked(CREATE_PARAMS.validate_python(body, strict=True))
    assert body.keys() <= ResponseCreateParamsNonStreaming.__annotations__.keys()


def test_the_types_of_the_sdk_would_refuse_a_wrong_body() -> None:
    with pytest.raises(ValueError, match="tools"):
        walked(CREATE_PARAMS.validate_python({**request(agent(), HI, [LOOSE]), "tools": [{"type": "function"}]}))


REFUSED: dict[str, tuple[Message, str]] = {
    "audio": (user(AudioPart("UklGRg==", "audio/wav")), "apiType: chat"),
    "audio in a result": (tool_result("c", AudioPart("UklGRg==", "audio/wav")), "apiType: chat"),
    "an image in the system message": (system(PNG), "user message"),
    "an image in the developer message": (Message("developer", [PNG]), "user message"),
    "an image in what the assistant said": (assistant(PNG), "user message"),
}


@pytest.mark.parametrize(("refused", "fix"), REFUSED.values(), ids=REFUSED)
def test_what_the_api_does_not_take_is_an_error_that_says_what_to_do(refused: Message, fix: str) -> None:
    with pytest.raises(RequestError, match=fix):
        request(agent(), [refused], [])


def test_items_of_a_tool_turn_go_back_byte_for_byte() -> None:
    stored = Message.from_json(json.loads(json.dumps(TOOL_MESSAGES[0].to_json())))
    sent = request(agent(), [stored], [])["input"]
    assert json.dumps(sent, ensure_ascii=False) == json.dumps(TOOL_TURN["output"], ensure_ascii=False)


@pytest.mark.parametrize("role", ["system", "developer"])
def test_instructions_alone_are_not_sent_twice(role: str) -> None:
    body = request(agent(), [Message(role, "Say hi.")], [])
    assert body == {"model": "gpt-5", "input": [{"role": "system", "content": "Say hi."}]}


def test_nothing_is_an_empty_input() -> None:
    assert request(agent(), [system("")], []) == {"model": "gpt-5", "input": []}


def test_reasoning_that_a_server_has_not_stored_goes_back_only_with_its_content() -> None:
    sealed, *others = TOOL_TURN["output"]
    thought = {name: value for name, value in sealed.items() if name != "encrypted_content"}
    messages = [replace(TOOL_MESSAGES[0], opaque={"responses_items": [thought, sealed, *others]})]
    not_stored = agent({"additionalProperties": {"store": False}})
    stored = agent({"additionalProperties": {"store": True}})
    assert request(not_stored, messages, [])["input"] == [sealed, *others]
    assert (
        request(stored, messages, [])["input"] == request(agent(), messages, [])["input"] == [thought, sealed, *others]
    )


def test_only_the_ids_of_stored_calls_follow_when_they_are_made_unique() -> None:
    turn = replace(TOOL_MESSAGES[0], tool_calls=(PARIS, ToolCall(id="new", name="get_time")))
    *same, clock = TOOL_TURN["output"]
    assert request(agent(), [turn], [])["input"] == [*same, {**clock, "call_id": "new"}]
    assert clock["call_id"] == CLOCK.id


def test_stored_items_stay_as_they_are_when_the_calls_beside_them_are_not_theirs() -> None:
    turn = replace(TOOL_MESSAGES[0], tool_calls=(CLOCK,))
    assert request(agent(), [turn], [])["input"] == TOOL_TURN["output"]


def test_nothing_is_sent_that_nobody_asked_for() -> None:
    body = request(agent(), [user("weather?"), *TOOL_MESSAGES], [])
    assert body.keys() == {"model", "input"}
    assert API.stream_body(body) == {**body, "stream": True}


@pytest.mark.spec("004 How Tool Calls Work with the Responses API", "a call is read from an item of the output")
def test_a_tool_turn_is_read_whole() -> None:
    assert reply(TOOL_TURN) == Reply(
        text="",
        tool_calls=(PARIS, CLOCK),
        reasoning="**Looking up the weather**\n\nTwo cities.\n\n**Calling the tool**\n\nLet me look.",
        finish_reason="tool_calls",
        usage=Usage(
            input_tokens=75, output_tokens=123, cache_read_tokens=64, cache_write_tokens=8, reasoning_tokens=100
        ),
        id="resp_67ccd3a9",
        model="gpt-5-2025-08-07",
        opaque={"responses_items": TOOL_TURN["output"]},
    )


def said(*parts: Json, **fields: Any) -> Json:
    return {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": list(parts), **fields}


def text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": []}


def call_item(name: str = "f", status: str | None = "completed", **fields: Any) -> Json:
    item = {"type": "function_call", "id": f"fc_{name}", "call_id": name, "name": name, "arguments": "{}", **fields}
    return {**item, "status": status} if status else item


def thinking(*summary: str, **fields: Any) -> Json:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"type": "reasoning", "id": "rs", "summary": parts, **fields}


CUT: Json = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
F = ToolCall(id="f", name="f")
REPLIES: dict[str, tuple[Json, Reply]] = {
    "texts are joined": (
        {"output": [said(text_part("a"), text_part("b")), said(text_part("c"))]},
        Reply(text="abc", finish_reason="stop"),
    ),
    "nothing is an empty text": ({"output": [], "output_text": ""}, Reply(finish_reason="stop")),
    "without output the convenience text counts": (
        {"output": [], "output_text": "hi"},
        Reply(text="hi", finish_reason="stop"),
    ),
    "a refusal is marked": (
        {"output": [said({"type": "refusal", "refusal": "No."})]},
        Reply(refusal="No.", finish_reason="stop"),
    ),
    "open thoughts are reasoning too": (
        {"output": [thinking(content=[{"type": "reasoning_text", "text": "hm"}]), said(text_part("a"))]},
        Reply(text="a", reasoning="hm", finish_reason="stop"),
    ),
    "a call without a status counts in a complete answer": (
        {"output": [call_item(status=None)]},
        Reply(tool_calls=(F,), finish_reason="tool_calls", opaque={"responses_items": [call_item(status=None)]}),
    ),
    "cut by the limit": ({"output": [said(text_part("a"))], **CUT}, Reply(text="a", finish_reason="length")),
    "cut for no given reason": ({"output": [], "status": "incomplete"}, Reply(finish_reason="length")),
    "cut by the filter": (
        {"output": [], "status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
        Reply(finish_reason="content_filter"),
    ),
    "a call that was cut off does not count": (
        {"output": [thinking("hm"), call_item(status="incomplete", arguments='{"ci')], **CUT},
        Reply(reasoning="hm", finish_reason="length"),
    ),
    "nor one that does not say, when the answer was cut": (
        {"output": [call_item(status=None)], **CUT},
        Reply(finish_reason="length"),
    ),
    "nor one still being written in an answer called complete": (
        {"output": [call_item(status="in_progress")], "status": "completed"},
        Reply(finish_reason="length"),
    ),
    "calls before the one cut off stay, thoughts that led to it do not go back": (
        {"output": [thinking("a"), call_item(), thinking("b"), call_item("g", "incomplete")], **CUT},
        Reply(
            tool_calls=(F,),
            reasoning="a\n\nb",
            finish_reason="length",
            opaque={"responses_items": [thinking("a"), call_item()]},
        ),
    ),
}


@pytest.mark.parametrize(("payload", "expected"), REPLIES.values(), ids=REPLIES)
def test_an_answer_is_read(payload: Json, expected: Reply) -> None:
    assert reply(payload) == expected


FAILURES: dict[str, tuple[Json, str, bool]] = {
    "an error": ({"error": {"code": "invalid_prompt", "message": "Bad prompt"}, "output": []}, "Bad prompt", False),
    "an error that passes": ({"error": {"code": "server_error", "message": "Oops"}, "status": "failed"}, "Oops", True),
    "an error of text alone": ({"error": "Oops"}, "Oops", True),
    "an error without a message": ({"error": {"code": "bio_policy"}}, "bio_policy", False),
    "failed without an error": ({"status": "failed", "error": None, "output": []}, "status 'failed'", True),
    "cancelled": ({"status": "cancelled", "output": []}, "status 'cancelled'", True),
    "in the background, without an id": ({"status": "queued", "output": []}, "status 'queued'", False),
}


@pytest.mark.spec("002 §8.4", "an error is a ValueError with its message")
@pytest.mark.parametrize(("payload", "cause", "retryable"), FAILURES.values(), ids=FAILURES)
def test_a_failure_is_a_model_error_and_a_value_error(payload: Json, cause: str, retryable: bool) -> None:
    with pytest.raises(ResponseFailed, match=cause) as raised:
        reply(payload)
    assert isinstance(raised.value, ModelError)
    assert isinstance(raised.value, ValueError)
    assert raised.value.retryable is retryable


def test_an_answer_of_another_api_is_an_empty_reply() -> None:
    with pytest.raises(EmptyReply):
        reply({"object": "chat.completion", "choices": []})


def pieces(text: str, cuts: Iterable[int]) -> list[str]:
    places = [0, *sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


def part_events(kind: str, text: str, place: Json, cuts: Iterable[int], done: str = "text") -> Iterator[Json]:
    for piece in pieces(text, cuts):
        yield {"type": f"response.{kind}.delta", "delta": piece, **place}
    yield {"type": f"response.{kind}.done", done: text, **place}


def opened(item: Json) -> Json:
    """An item as it is announced: nothing in it yet, its reasoning not encrypted to the end."""
    empty: Json = {"content": [], "summary": [], "arguments": "", "status": "in_progress", "encrypted_content": "gA"}
    return {name: empty.get(name, value) for name, value in item.items()}


def item_events(item: Json, index: int, cuts: Iterable[int]) -> Iterator[Json]:
    place = {"output_index": index, "item_id": item["id"]}
    yield {"type": "response.output_item.added", "output_index": index, "item": opened(item)}
    for number, part in enumerate(item.get("summary", [])):
        yield from part_events("reasoning_summary_text", part["text"], {**place, "summary_index": number}, cuts)
    for number, part in enumerate(item.get("content", [])):
        inside = {**place, "content_index": number}
        if part["type"] == "refusal":
            yield from part_events("refusal", part["refusal"], inside, cuts, "refusal")
        elif part["type"] == "reasoning_text":
            yield from part_events("reasoning_text", part["text"], inside, cuts)
        else:
            logprobs: Json = {"logprobs": []}
            yield {"type": "response.content_part.added", "part": {**part, "text": ""}, **inside}
            yield from part_events("output_text", part["text"], {**inside, **logprobs}, cuts)
            yield {"type": "response.content_part.done", "part": part, **inside}
    if "arguments" in item:
        name: Json = {"name": item["name"]}
        yield from part_events("function_call_arguments", item["arguments"], {**place, **name}, cuts, "arguments")
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def events(payload: Json, cuts: Iterable[int] = (1, 3), *, last_output: bool = True) -> list[Json]:
    """The events the API sends for an answer; some servers leave the output out of the last one."""
    begun = {**payload, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    listed: list[Json] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(payload["output"]):
        listed += item_events(item, index, cuts)
    last = payload if last_output else {**payload, "output": []}
    listed.append({"type": f"response.{payload['status']}", "response": last})
    return [{**event, "sequence_number": number} for number, event in enumerate(listed)]


def decoded(stream: Iterable[Json]) -> tuple[Reply, list[Delta]]:
    decoder = ResponsesDecoder()
    deltas = [delta for event in stream for delta in decoder.feed(event)]
    return decoder.finish(), deltas


def test_the_events_of_these_tests_are_events_to_the_sdk() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for event in events(TOOL_TURN):
        assert adapter.validate_python(event).type == event["type"]


words = st.text(max_size=12)
ids = st.text("abc", min_size=1, max_size=3)
summaries = st.lists(words, max_size=3)
contents = st.lists(words, max_size=2).map(lambda texts: [{"type": "reasoning_text", "text": text} for text in texts])
reasoning_items = st.builds(
    lambda texts, content: thinking(*texts, content=content, encrypted_content="gAAA"), summaries, contents
)
message_items = st.lists(words.map(text_part), max_size=3).map(lambda parts: said(*parts))
call_items = st.builds(
    lambda name, arguments, status: call_item(name, status, arguments=arguments),
    ids,
    st.sampled_from(["", "{}", '{"city": "Zürich"}']),
    st.sampled_from([None, "completed", "completed", "incomplete"]),
)
usages = st.none() | st.fixed_dictionaries({"input_tokens": st.integers(0, 9), "output_tokens": st.integers(0, 9)})
endings = st.sampled_from([{"status": "completed", "incomplete_details": None}, CUT])
payloads = st.builds(
    lambda output, usage, ending: {"id": "r", "model": "m", "error": None, "output": output, "usage": usage, **ending},
    st.lists(reasoning_items | message_items | call_items, max_size=5),
    usages,
    endings,
)
cut_places = st.lists(st.integers(0, 50), max_size=4)


@pytest.mark.spec("002 §8.6", "a stream is processed piece by piece")
@given(payloads, cut_places, st.booleans())
def test_a_stream_ends_in_the_reply_of_the_same_answer_unstreamed(
    payload: Json, cuts: list[int], last_output: bool
) -> None:
    found, deltas = decoded(events(payload, cuts, last_output=last_output))
    assert found == reply(payload)
    assert all(delta.text for delta in deltas if isinstance(delta, TextDelta | ReasoningDelta))
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == found.text
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == found.reasoning


@given(payloads, cut_places, st.data())
def test_a_stream_cut_anywhere_is_an_error_with_what_had_come(
    payload: Json, cuts: list[int], data: st.DataObject
) -> None:
    stream = events(payload, cuts)
    stream = stream[: data.draw(st.integers(0, len(stream) - 1))]
    with pytest.raises(StreamCut, match="before the answer was complete") as raised:
        decoded(stream)
    whole, partial = reply(payload), raised.value.partial
    assert isinstance(partial, Reply)
    assert whole.text.startswith(partial.text)
    assert whole.reasoning.startswith(partial.reasoning)
    assert partial.finish_reason is None
    done = [event["item"] for event in stream if event["type"] == "response.output_item.done"]
    assert {call.id for call in partial.tool_calls} <= {item.get("call_id") for item in done}


def test_thoughts_that_are_cut_keep_their_distance() -> None:
    answer = {"status": "completed", "output": [thinking("a"), thinking("b", "c"), said(text_part("d"))]}
    stream = events(answer)
    end = next(number for number, event in enumerate(stream) if event.get("delta") == "c")
    with pytest.raises(StreamCut) as raised:
        decoded(stream[: end + 1])
    assert raised.value.partial == Reply(reasoning="a\n\nb\n\nc")


def test_calls_are_shown_while_they_are_written() -> None:
    found, deltas = decoded(events(TOOL_TURN, [4]))
    assert found == reply(TOOL_TURN)
    assert [delta for delta in deltas if isinstance(delta, ToolCallDelta)] == [
        ToolCallDelta(0, PARIS.id, PARIS.name, ""),
        ToolCallDelta(0, PARIS.id, PARIS.name, '{"ci'),
        ToolCallDelta(0, PARIS.id, PARIS.name, 'ty": "Paris"}'),
        ToolCallDelta(1, CLOCK.id, CLOCK.name, ""),
        ToolCallDelta(1, CLOCK.id, CLOCK.name, "{"),
        ToolCallDelta(1, CLOCK.id, CLOCK.name, "}"),
    ]


def test_text_counts_when_a_server_sends_nothing_but_pieces() -> None:
    stream: list[Json] = [
        {"type": "response.created", "response": {"id": "r", "model": "m"}},
        {"type": "response.output_text.delta", "delta": "a"},
        {"type": "response.output_text.delta", "delta": "b"},
        {"type": "response.completed", "response": {"usage": {"input_tokens": 1, "output_tokens": 2}}},
    ]
    usage = Usage(input_tokens=1, output_tokens=2)
    assert decoded(stream)[0] == Reply(text="ab", finish_reason="stop", usage=usage, id="r", model="m")


@pytest.mark.parametrize(("last", "reason"), [("completed", "stop"), ("incomplete", "length")])
def test_the_last_event_says_how_it_ended_when_the_server_forgets_to_update_the_status(last: str, reason: str) -> None:
    unchanged = {"status": "in_progress", "output": [said(text_part("a"))]}
    found, _ = decoded([{"type": f"response.{last}", "response": unchanged}])
    assert found == Reply(text="a", finish_reason=reason)


def test_a_call_whose_item_never_ended_does_not_count() -> None:
    stream = [event for event in events(TOOL_TURN, last_output=False) if event["type"] != "response.output_item.done"]
    found, _ = decoded(stream)
    assert (found.tool_calls, found.finish_reason) == ((), "length")


BROKEN: dict[str, tuple[Json, str, bool]] = {
    "failed": (
        {
            "type": "response.failed",
            "response": {"status": "failed", "error": {"code": "server_error", "message": "Oops"}},
        },
        "Oops",
        True,
    ),
    "failed without an error": ({"type": "response.failed", "response": {"status": "failed"}}, "status 'failed'", True),
    "an error": (
        {"type": "error", "code": "context_length_exceeded", "message": "Too long", "param": None},
        "Too long",
        False,
    ),
    "an error inside": ({"type": "error", "error": {"code": "slow_down", "message": "Slow down"}}, "Slow down", True),
    "an error without a type": ({"error": {"message": "Oops"}}, "Oops", True),
}


@pytest.mark.parametrize(("event", "cause", "retryable"), BROKEN.values(), ids=BROKEN)
def test_a_stream_that_the_provider_breaks_off_has_its_message_and_what_had_come(
    event: Json, cause: str, retryable: bool
) -> None:
    answer = {"id": "r", "model": "m", "status": "completed", "output": [said(text_part("Hello"))]}
    with pytest.raises(StreamCut, match=cause) as raised:
        decoded([*events(answer)[:-3], event])
    assert raised.value.partial == Reply(text="Hello", id="r", model="m")
    assert raised.value.retryable is retryable


REFUSAL: Json = {"status": "completed", "output": [said({"type": "refusal", "refusal": "I cannot."})]}
REFUSALS = {
    "as it comes": events(REFUSAL),
    "cut before its end": [event for event in events(REFUSAL) if event["type"] == "response.refusal.delta"],
    "only in the whole answer": events(REFUSAL)[-1:],
}


@pytest.mark.parametrize("stream", REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_in_a_stream_is_an_error_that_carries_it(stream: list[Json]) -> None:
    with pytest.raises(Refused, match=r"Model refused: I cannot\.") as raised:
        decoded(stream)
    assert raised.value.refusal == "I cannot."


def test_events_of_other_tools_are_passed_over() -> None:
    searching: Json = {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws"}
    assert decoded([searching, {}, *events(TOOL_TURN)])[0] == reply(TOOL_TURN)
