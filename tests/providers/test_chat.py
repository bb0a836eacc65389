"""Chat Completions: requests, replies, and streams that end in the same reply (000 §7.1, 002 §8.1, §8.6)."""

import json
from dataclasses import fields
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prompty import Message, PromptAgent, ToolCall, Usage, assistant, loads, prepare, system, tool_result, user
from prompty.errors import ModelError, Refused, RequestError, StreamCut
from prompty.events import ReasoningDelta, TextDelta, ToolCallDelta
from prompty.messages import Citation, ProviderCall, TextPart, message_to_wire
from prompty.model.content import AudioPart, ContentPart, FilePart, ImagePart
from prompty.model.message import Reply
from prompty.model.tool import FunctionTool
from prompty.pipeline.request import list_declared_functions, process_reply
from prompty.providers import PROVIDERS
from prompty.providers.fitting import fit_request
from prompty.providers.openai.chat import API, ChatDecoder, part_to_wire, reply, write_message
from prompty.providers.profiles import GENERIC
from prompty.registry import DEFAULT
from prompty.tools import Function
from prompty.wire.structured import build_function
from tests.legality import assert_legal

Json = dict[str, Any]

ELSEWHERE = "http://localhost:8080/v1"


def agent(options: Json | None = None, *, model: Json | None = None, **fields: Any) -> PromptAgent:
    return PromptAgent.model_validate({"model": {"id": "m", "options": options or {}, **(model or {})}, **fields})


def body(*messages: Message, of: PromptAgent | None = None, functions: list[Function] | None = None) -> Json:
    prompt = of or agent()
    api = DEFAULT[PROVIDERS].get(prompt.model.provider).api_for(prompt)
    made = api.request(fit_request(prompt, api), messages or [user("Hi")], functions or [])
    assert_legal("chat", made)
    return made


def calling(*calls: ToolCall, **fields: Any) -> Message:
    return Message("assistant", tool_calls=calls, **fields)


ONE = ToolCall(id="call_1", name="weather", arguments='{"city": "Oslo"}')
TWO = ToolCall(id="call_2", name="clock", arguments="{}")
PNG = "data:image/png;base64,iVBORw=="


# Messages (W2).

MESSAGES: dict[str, tuple[Message, Json]] = {
    "one text is a string": (user("Hi"), {"role": "user", "content": "Hi"}),
    "an empty text is an empty string": (user(""), {"role": "user", "content": ""}),
    "nothing at all is an empty string": (user(), {"role": "user", "content": ""}),
    "blanks and lines stay": (user(" a\n\nb "), {"role": "user", "content": " a\n\nb "}),
    "a system message": (system("Be brief"), {"role": "system", "content": "Be brief"}),
    "a developer message": (Message("developer", "Be brief"), {"role": "developer", "content": "Be brief"}),
    "an assistant's text": (assistant("Hello"), {"role": "assistant", "content": "Hello"}),
    "a result": (tool_result("call_1", "12°"), {"role": "tool", "tool_call_id": "call_1", "content": "12°"}),
    "a result without text": (tool_result("call_1"), {"role": "tool", "tool_call_id": "call_1", "content": ""}),
}


@pytest.mark.spec("000 §7.1.1", "a message with one text is a plain string")
@pytest.mark.parametrize(("given", "expected"), MESSAGES.values(), ids=MESSAGES)
def test_a_message_of_one_text_has_a_string_for_content(given: Message, expected: Json) -> None:
    assert write_message(given) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("ada", "ada"), ("Ada L", "Ada_L"), ("Zoë", "Zoë"), ("a\n<b>|c\\d/e", "a_b_c_d_e"), ("n" * 70, "n" * 64)],
)
def test_a_name_has_no_character_that_openai_refuses(name: str, expected: str) -> None:
    assert write_message(Message("user", [TextPart("Hi")], name=name))["name"] == expected


def test_a_developer_message_keeps_all_but_its_role_at_a_server_that_may_not_know_it() -> None:
    message = Message("developer", [TextPart("a"), TextPart("b")], name="ada")
    assert write_message(message, GENERIC) == {**write_message(message), "role": "system"}
    assert message_to_wire(message)["role"] == "system"
    assert message_to_wire(message, reasoning_field=None)["role"] == "developer"


@pytest.mark.spec("000 §7.1.1", "a message with several parts is an array")
@pytest.mark.parametrize("role", ["user", "system", "developer", "assistant", "tool"])
def test_a_message_of_several_texts_is_an_array_for_every_role(role: str) -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert write_message(Message(role, [TextPart("a"), TextPart("b")]))["content"] == blocks


@pytest.mark.spec("000 §7.1.1", "a message with several parts is an array")
def test_text_beside_an_image_is_an_array_in_the_order_it_was_written() -> None:
    [sent] = body(user("see", ImagePart("https://x/y.png"), "there"))["messages"]
    assert [part["type"] for part in sent["content"]] == ["text", "image_url", "text"]


@pytest.mark.spec("000 §7.1.1", "every message is converted")
def test_a_whole_conversation_is_converted_in_order() -> None:
    sent = body(
        system("Be brief"), user("Weather?"), calling(ONE), tool_result("call_1", "12°"), assistant("12°"), user("Ta")
    )
    assert [entry["role"] for entry in sent["messages"]] == ["system", "user", "assistant", "tool", "assistant", "user"]


ALL_FIELDS: dict[str, Any] = {
    "name": "Ada",
    "tool_calls": (ONE,),
    "tool_call_id": "call_1",
    "reasoning": "hm",
    "opaque": {
        "reasoning_details": [{"type": "reasoning.text", "text": "hm"}],
        "responses_items": [{"type": "function_call"}],
    },
    "attributes": {"finish_reason": "stop", "anything": 1},
    "finish_reason": "stop",
    "tool_name": "weather",
    "is_error": True,
    "usage": Usage(input_tokens=3),
    "cost": Decimal(1),
    "citations": (Citation(kind="web", url="https://a.example"),),
    "provider_calls": (ProviderCall(id="ws_1", tool="web_search"),),
}
WIRE_FIELDS: Json = {"name": "Ada", "tool_calls": [ONE.to_wire()], "tool_call_id": "call_1"}
CROSSING = {
    "system": {"name"},
    "developer": {"name"},
    "user": {"name"},
    "assistant": {"name", "tool_calls"},
    "tool": {"tool_call_id"},
}


@pytest.mark.spec("000 §7.1.1", "all metadata of a message goes beside its content")
@pytest.mark.parametrize(("role", "crossing"), CROSSING.items())
def test_a_field_crosses_only_where_the_role_allows_it(role: str, crossing: set[str]) -> None:
    expected = {name: WIRE_FIELDS[name] for name in crossing}
    assert write_message(Message(role, "x", **ALL_FIELDS)) == {"role": role, "content": "x", **expected}


def test_every_field_of_a_message_is_covered_by_the_test_above() -> None:
    assert {"role", "content", *ALL_FIELDS} == {field.name for field in fields(Message)}


def test_a_name_that_a_marker_made_a_number_is_text_again() -> None:
    [sent] = body(*prepare(loads("user[name=7]:\nHi")))["messages"]
    assert sent["name"] == "7"


@pytest.mark.spec("001 assistant — text and/or tool calls", "a turn of calls alone has empty content")
@pytest.mark.spec("001 assistant — text and/or tool calls", "an answer has text, calls or both")
def test_a_turn_of_calls_alone_has_empty_content() -> None:
    assert write_message(calling(ONE)) == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
        ],
    }


@pytest.mark.spec("001 assistant — text and/or tool calls", "an answer has text, calls or both")
def test_what_was_said_before_a_call_goes_with_it() -> None:
    said = assistant("Let me see", tool_calls=[ONE])
    assert write_message(said)["content"] == "Let me see"


# Parts (W3).


def image(url: str, **detail: str) -> Json:
    return {"type": "image_url", "image_url": {"url": url, **detail}}


PARTS: dict[str, tuple[ContentPart, Json]] = {
    "text": (TextPart("a"), {"type": "text", "text": "a"}),
    "an image at a URL": (ImagePart("https://x/y.png"), image("https://x/y.png")),
    "a URL with a media type is still a URL": (ImagePart("https://x/y", "image/png"), image("https://x/y")),
    "an image in a data URI": (ImagePart(PNG), image(PNG)),
    "an image in base64": (ImagePart("iVBORw==", "image/png"), image(PNG)),
    "a data URI without a type takes the one beside it": (ImagePart("data:;base64,iVBORw==", "image/png"), image(PNG)),
    "a data URI that is not base64 becomes it": (
        ImagePart("data:image/svg+xml,%3Csvg/%3E"),
        image("data:image/svg+xml;base64,PHN2Zy8+"),
    ),
    "a detail": (ImagePart("https://x/y.png", None, "low"), image("https://x/y.png", detail="low")),
    "an empty detail is none": (ImagePart("https://x/y.png", None, ""), image("https://x/y.png")),
    "audio in base64": (
        AudioPart("UklGRg==", "audio/wav"),
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    ),
    "audio in a data URI becomes base64": (
        AudioPart("data:audio/mpeg;base64,UklGRg=="),
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "mp3"}},
    ),
    "a file by its id": (FilePart("file-abc"), {"type": "file", "file": {"file_id": "file-abc"}}),
    "a file in base64": (
        FilePart("JVBERg==", "application/pdf", "a.pdf"),
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
    ),
    "a file in a data URI": (
        FilePart("data:application/pdf;base64,JVBERg=="),
        {"type": "file", "file": {"filename": "file", "file_data": "data:application/pdf;base64,JVBERg=="}},
    ),
}


@pytest.mark.spec("000 §7.1.2", "the data of images and audio is sent as it is")
@pytest.mark.spec("000 §7.1.2", "an image without a detail has no such key")
@pytest.mark.spec("000 §7.1.2", "each part becomes its content block")
@pytest.mark.spec("000 §7.1.2", "no empty detail is sent")
@pytest.mark.parametrize(("part", "expected"), PARTS.values(), ids=PARTS)
def test_each_part_becomes_its_block(part: ContentPart, expected: Json) -> None:
    assert part_to_wire(part) == expected
    body(user(part, "and text"))


FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
    "audio/flac": "flac",
    "audio/ogg": "ogg",
    "audio/aac": "aac",
    "AUDIO/WAV": "wav",
    "audio/wav; codecs=1": "wav",
}


@pytest.mark.spec("000 §7.1.2", "audio types become formats")
@pytest.mark.parametrize("as_uri", [False, True], ids=["beside", "in the URI"])
@pytest.mark.parametrize(("media_type", "expected"), FORMATS.items())
def test_audio_types_become_the_formats_of_the_table(media_type: str, expected: str, as_uri: bool) -> None:
    part = AudioPart(f"data:{media_type};base64,AAAA") if as_uri else AudioPart("AAAA", media_type)
    assert part_to_wire(part)["input_audio"] == {"data": "AAAA", "format": expected}


REFUSED: dict[str, tuple[Message, str, str]] = {
    "a file at a URL": (user(FilePart("https://x/y.pdf")), "file is given as a URL", "apiType: responses"),
    "audio at a URL": (user(AudioPart("https://x/y.wav")), "audio is given as a URL", "data URI"),
    "audio of no type": (user(AudioPart("AAAA")), "without a media type", "media type"),
    "an image in a system message": (system(ImagePart(PNG)), "the system message contains image data", "user message"),
    "audio in a developer message": (
        Message("developer", [TextPart("x"), AudioPart("AAAA", "audio/wav")]),
        "the developer message contains audio data",
        "user message",
    ),
    "a file from the assistant": (
        assistant(FilePart("file-1")),
        "the assistant message contains file data",
        "user message",
    ),
}


@pytest.mark.spec("000 §7.1.2", "a file is sent as its URL")
@pytest.mark.parametrize(("given", "cause", "fix"), REFUSED.values(), ids=REFUSED)
def test_what_the_api_does_not_take_is_refused_before_the_call(given: Message, cause: str, fix: str) -> None:
    with pytest.raises(RequestError) as caught:
        API.request(fit_request(agent(), API), [given], [])
    assert cause in caught.value.cause
    assert fix in caught.value.fix


def test_media_in_results_follow_the_batch_in_one_user_message() -> None:
    sent = body(
        user("Look"),
        calling(ONE, TWO),
        tool_result("call_1", "a map", ImagePart(PNG)),
        tool_result("call_2", ImagePart("https://x/y.png")),
        assistant("Nice"),
        user("More"),
    )["messages"]
    assert [entry["role"] for entry in sent] == ["user", "assistant", "tool", "tool", "user", "assistant", "user"]
    assert [entry["content"] for entry in sent[2:5]] == ["a map", "", [image(PNG), image("https://x/y.png")]]


@pytest.mark.spec("000 §7.1.2", "messages of every role may have images, files and audio")
@pytest.mark.parametrize("role", ["system", "developer", "assistant"])
def test_media_outside_user_messages_is_an_error_that_says_where_to_move_it(role: str) -> None:
    with pytest.raises(RequestError, match="Move it to a user message"):
        write_message(Message(role, [ImagePart("https://x.example/a.png")]))


def test_media_in_the_last_results_come_last() -> None:
    sent = body(user("Look"), calling(ONE), tool_result("call_1", "a map", ImagePart(PNG)))["messages"]
    assert sent[-1] == {"role": "user", "content": [image(PNG)]}


# Tools (W4, W6).


def tool(**fields: Any) -> FunctionTool:
    return FunctionTool.model_validate({"name": "weather", "kind": "function", **fields})


CITY = {"city": {"kind": "string", "required": True, "description": "Which one"}, "days": {"kind": "integer"}}


@pytest.mark.spec("000 §7.1.4", "required lists what is required and is left out where nothing is")
@pytest.mark.spec("000 §7.1.3", "a function tool is a function definition")
@pytest.mark.spec("000 §7.1.4", "properties become a JSON Schema object")
def test_a_tool_is_a_function_with_the_schema_of_its_parameters() -> None:
    assert body(functions=[build_function(tool(description="Now", parameters=CITY))])["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "Now",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string", "description": "Which one"},
                        "days": {"type": "integer"},
                    },
                    "required": ["city"],
                },
            },
        }
    ]


@pytest.mark.spec("000 §7.1.3", "strict stands on the function and closes the schema")
def test_a_strict_tool_says_so_beside_a_closed_schema() -> None:
    [sent] = body(functions=[build_function(tool(parameters=CITY, strict=True))])["tools"]
    function = sent["function"]
    assert function["strict"] is True
    assert function["parameters"]["additionalProperties"] is False
    assert function["parameters"]["required"] == ["city", "days"]
    assert "strict" not in function["parameters"]


@pytest.mark.spec("000 §7.1.3", "bound parameters are stripped")
def test_what_the_host_fills_in_is_not_shown() -> None:
    [sent] = body(functions=[build_function(tool(parameters=CITY, bindings={"city": "Oslo"}))])["tools"]
    assert sent["function"]["parameters"] == {"type": "object", "properties": {"days": {"type": "integer"}}}


@pytest.mark.spec("000 §7.1.6", "without outputs there is no response format")
@pytest.mark.spec("000 §7.1.3", "no tools means no key")
def test_without_functions_there_is_no_tools_key() -> None:
    sent = body(of=agent({"allowMultipleToolCalls": False}))
    assert sent.keys() == {"model", "messages"}


@pytest.mark.spec("003 §2.9", "two tools of one name are an error")
def test_two_functions_of_one_name_are_an_error() -> None:
    twice = [{"name": "t", "kind": "function"}, {"name": "t", "kind": "function"}]
    with pytest.raises(RequestError, match="two tools are named 't'"):
        list_declared_functions(agent(tools=twice))


KINDS = {
    "string": "string",
    "integer": "integer",
    "float": "number",
    "boolean": "boolean",
    "array": "array",
    "object": "object",
}


@pytest.mark.spec("000 §7.1.4", "kinds become JSON types")
@pytest.mark.parametrize(("kind", "json_type"), KINDS.items())
def test_kinds_become_the_types_of_the_table(kind: str, json_type: str) -> None:
    function = build_function(tool(parameters={"x": {"kind": kind}}))
    [sent] = body(functions=[function])["tools"]
    assert sent["function"]["parameters"]["properties"]["x"]["type"] == json_type


# Options (W7) and outputs (W5).

OPTIONS: dict[str, tuple[Json, Json]] = {
    "temperature": ({"temperature": 0.5}, {"temperature": 0.5}),
    "zero is a value": ({"temperature": 0.0, "seed": 0}, {"temperature": 0.0, "seed": 0}),
    "the most tokens": ({"maxOutputTokens": 9}, {"max_completion_tokens": 9}),
    "top p": ({"topP": 0.9}, {"top_p": 0.9}),
    "frequency": ({"frequencyPenalty": 0.1}, {"frequency_penalty": 0.1}),
    "presence": ({"presencePenalty": -0.1}, {"presence_penalty": -0.1}),
    "stops": ({"stopSequences": ["a", "b"]}, {"stop": ["a", "b"]}),
    "no stops": ({"stopSequences": []}, {}),
    "what chat does not have": ({"topK": 40}, {}),
    "options of one provider": ({"additionalProperties": {"logprobs": True}}, {"logprobs": True}),
    "which do not override": (
        {"temperature": 0.5, "additionalProperties": {"temperature": 2, "model": "x", "messages": []}},
        {"temperature": 0.5},
    ),
}


@pytest.mark.spec("000 §7.1.5", "additional properties pass through and override nothing")
@pytest.mark.spec("000 §7.1.5", "options become request parameters")
@pytest.mark.spec("000 §7.6", "options have their names for chat")
@pytest.mark.spec("000 §7.6", "an option that a provider does not have is left out silently")
@pytest.mark.parametrize(("options", "expected"), OPTIONS.values(), ids=OPTIONS)
def test_options_go_under_their_names_on_the_wire(options: Json, expected: Json) -> None:
    assert body(of=agent(options)) == {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **expected}


@pytest.mark.spec("003 §2.6", "several calls at once can be allowed or forbidden")
@pytest.mark.parametrize("several", [True, False])
def test_several_calls_at_once_are_asked_for_beside_tools(several: bool) -> None:
    sent = body(of=agent({"allowMultipleToolCalls": several}), functions=[build_function(tool())])
    assert sent["parallel_tool_calls"] is several


@pytest.mark.spec("000 §7.1.6", "only required outputs are required in the schema")
@pytest.mark.spec("000 §7.1.6", "outputs become a response format")
@pytest.mark.spec("000 §7.7", "outputs become the provider's own mechanism")
def test_outputs_become_a_strict_schema() -> None:
    outputs = {"city": {"kind": "string"}, "note": {"kind": "string", "required": False}}
    assert body(of=agent(outputs=outputs))["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "structured_output",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "note": {"type": ["string", "null"]}},
                "required": ["city", "note"],
                "additionalProperties": False,
            },
        },
    }


@pytest.mark.spec("000 §7.1.7", "a chat request has the model, messages, options, tools and response format")
def test_a_request_has_the_model_messages_options_tools_and_format() -> None:
    outputs = {"city": {"kind": "string"}}
    sent = body(of=agent({"temperature": 0.5}, outputs=outputs), functions=[build_function(tool(parameters=CITY))])
    assert sent.keys() == {"model", "messages", "temperature", "tools", "response_format"}
    assert (sent["model"], sent["messages"]) == ("m", [{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize("asked", [None, {"include_obfuscation": False}], ids=["plain", "with an option"])
def test_a_stream_is_asked_for_with_its_usage(asked: Json | None) -> None:
    options: Json = {"additionalProperties": {"stream_options": asked}} if asked else {}
    plain = API.request(fit_request(agent(options), API), [user("Hi")], [])
    streamed = API.stream_body(plain)
    assert_legal("chat", streamed)
    assert streamed == {**plain, "stream": True, "stream_options": {**(asked or {}), "include_usage": True}}
    assert "stream" not in plain


# Reasoning (L6).

DETAILS = [{"type": "reasoning.text", "text": "hm", "signature": "c2ln", "index": 0}, {"type": "reasoning.encrypted"}]


def at(endpoint: str | None, provider: str = "openai") -> PromptAgent:
    connection = {"kind": "key", "apiKey": "k", "endpoint": endpoint} if endpoint else {"kind": "key", "apiKey": "k"}
    return agent(model={"connection": connection, "provider": provider})


def sent_back(to: PromptAgent, **fields: object) -> Json:
    turn = Message.from_json({"role": "assistant", "tool_calls": [ONE.to_wire()], **fields})
    sent: Json = body(user("Hi"), turn, tool_result("call_1", "x"), of=to)["messages"][1]
    return {name: value for name, value in sent.items() if name.startswith("reasoning")}


REASONING: dict[str, tuple[Json, Json]] = {
    "as text": ({"reasoning_content": "hm"}, {"reasoning_content": "hm"}),
    "by its other name": ({"reasoning": "hm"}, {"reasoning_content": "hm"}),
    "structured, as it came": (
        {"reasoning_details": DETAILS, "reasoning_content": "hm"},
        {"reasoning_details": DETAILS},
    ),
    "none": ({}, {}),
}


@pytest.mark.parametrize(("fields", "expected"), REASONING.values(), ids=REASONING)
def test_reasoning_goes_back_with_the_calls_it_led_to(fields: Json, expected: Json) -> None:
    assert sent_back(at(ELSEWHERE), **fields) == expected


NOWHERE: dict[str, tuple[str | None, str]] = {
    "no endpoint": (None, "openai"),
    "OpenAI": ("https://api.openai.com/v1", "openai"),
    "OpenAI in capitals": ("https://API.OpenAI.com/v1", "openai"),
    "OpenAI in Europe": ("https://eu.api.openai.com/v1", "openai"),
    "Azure": ("https://x.openai.azure.com", "azure"),
    "Foundry": ("https://x.services.ai.azure.com/api", "foundry"),
    "Azure behind the plain client": ("https://x.openai.azure.com/openai/v1", "openai"),
    "Azure behind a name of one's own": ("https://models.example.com", "azure"),
}


@pytest.mark.parametrize(("endpoint", "provider"), NOWHERE.values(), ids=NOWHERE)
def test_reasoning_never_goes_to_openai_or_azure(endpoint: str | None, provider: str) -> None:
    assert sent_back(at(endpoint, provider), reasoning_content="hm", reasoning_details=DETAILS) == {}


def test_reasoning_stays_here_when_no_call_followed_it() -> None:
    said = assistant("Hello", reasoning="hm", opaque={"reasoning_details": DETAILS})
    [_, sent, _] = body(user("Hi"), said, user("Go on"), of=at(ELSEWHERE))["messages"]
    assert sent == {"role": "assistant", "content": "Hello"}


def test_what_a_reply_held_goes_back_byte_for_byte() -> None:
    made = payload(None, [ONE], reasoning_content="hm", reasoning_details=DETAILS)
    turn = API.tool_messages(reply(made), [tool_result("call_1", "x")])
    assert [entry.role for entry in turn] == ["assistant", "tool"]
    [_, sent, _] = body(user("Hi"), *turn, of=at(ELSEWHERE))["messages"]
    assert json.dumps(sent["reasoning_details"]) == json.dumps(DETAILS)
    assert sent["tool_calls"] == [ONE.to_wire()]


# Replies.


def payload(content: object, calls: list[ToolCall] | None = None, finish: str = "stop", **fields: object) -> Json:
    said = {"role": "assistant", "content": content, **fields}
    if calls:
        said["tool_calls"] = [call.to_wire() for call in calls]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m-2025",
        "choices": [{"index": 0, "message": said, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    }


def test_a_reply_holds_all_of_an_answer() -> None:
    assert reply(payload("Hello", reasoning="hm")) == Reply(
        text="Hello",
        reasoning="hm",
        finish_reason="stop",
        usage=Usage(input_tokens=9, output_tokens=5, cache_read_tokens=4, reasoning_tokens=2),
        id="chatcmpl-1",
        model="m-2025",
    )


TEXTS: dict[str, tuple[object, str]] = {
    "text": ("Hello", "Hello"),
    "empty": ("", ""),
    "null": (None, ""),
    "a list of parts": ([{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}], "Hello"),
    "parts that are not text": ([{"type": "thinking", "thinking": []}, {"type": "text", "text": "Hello"}], "Hello"),
}


@pytest.mark.spec("002 §8.1", "no content is an empty text")
@pytest.mark.parametrize(("content", "text"), TEXTS.values(), ids=TEXTS)
def test_content_is_text_whatever_its_shape(content: object, text: str) -> None:
    assert reply(payload(content)).text == text
    assert decoded({"content": content}).text == text


@pytest.mark.spec("002 §8.1", "calls come before content")
@pytest.mark.spec("002 §8.1", "the full list of calls is the result")
@pytest.mark.spec("002 §8.7", "a call has an id, a name and arguments")
def test_calls_are_the_result_and_content_is_not() -> None:
    answer = reply(payload("Let me see", [ONE, TWO], "tool_calls"))
    assert process_reply(agent(), answer) == [ONE, TWO]
    assert process_reply(agent(outputs={"x": {"kind": "string"}}), answer) == [ONE, TWO]


ARGUMENTS: dict[str, tuple[object, str]] = {
    "text": ('{"a": 1}', '{"a": 1}'),
    "text that is no JSON stays": ("{a}", "{a}"),
    "null": (None, "{}"),
    "empty": ("", "{}"),
    "an object": ({"a": [1]}, '{"a": [1]}'),
    "an empty object": ({}, "{}"),
}


@pytest.mark.spec("002 §8.7", "arguments are always JSON text")
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("given", "expected"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_are_text_whatever_a_server_sends(given: object, expected: str, streamed: bool) -> None:
    call = {"index": 0, "id": "a", "function": {"name": "t", "arguments": given}}
    answer = decoded({"tool_calls": [call]}) if streamed else reply(payload(None, tool_calls=[call]))
    assert answer.tool_calls == (ToolCall(id="a", name="t", arguments=expected),)


@pytest.mark.parametrize("missing", [{}, {"id": None}, {"id": ""}], ids=["no key", "null", "empty"])
def test_calls_without_an_id_are_numbered(missing: Json) -> None:
    entries = [{**missing, "function": {"name": name, "arguments": "{}"}} for name in ("a", "b")]
    answer = reply(payload(None, tool_calls=entries))
    assert [(call.id, call.name) for call in answer.tool_calls] == [("call_0", "a"), ("call_1", "b")]
    body(user("Hi"), answer.message(), tool_result("call_0", "x"), tool_result("call_1", "y"))


@pytest.mark.spec("002 §8.1", "a refusal without content is an empty text")
def test_a_refusal_is_the_result_and_is_marked() -> None:
    answer = reply(payload(None, refusal="I cannot help with that"))
    assert answer.refusal == "I cannot help with that"
    assert process_reply(agent(), answer) == "I cannot help with that"


NO_ANSWER: dict[str, tuple[Json, str]] = {
    "no choices": ({"choices": []}, "without a choice"),
    "nothing": ({}, "without a choice"),
    "an error": ({"error": {"message": "overloaded", "code": 529}}, "overloaded"),
    "an error in one word": ({"error": "overloaded"}, "overloaded"),
}


@pytest.mark.parametrize(("given", "cause"), NO_ANSWER.values(), ids=NO_ANSWER)
def test_an_answer_without_a_choice_is_an_error_that_may_pass(given: Json, cause: str) -> None:
    with pytest.raises(ModelError, match=cause) as caught:
        reply(given)
    assert caught.value.retryable


@pytest.mark.spec("002 §8.1", "the first choice counts")
def test_of_several_answers_the_first_counts() -> None:
    made = payload("one")
    made["choices"].append({"index": 1, "message": {"content": "two"}, "finish_reason": "stop"})
    assert reply(made).text == "one"


@pytest.mark.spec("002 §8.1", "with outputs the content is parsed, and is the result where it is not JSON")
@pytest.mark.spec("000 §7.1.6", "the content is parsed as JSON where there are outputs")
@pytest.mark.spec("000 §7.7", "the parsed object is the result")
@pytest.mark.spec("000 §7.7", "what is not JSON is returned as it is")
@pytest.mark.parametrize(("text", "expected"), [('{"a": [1]}', {"a": [1]}), ("no JSON", "no JSON"), ("", "")])
def test_with_outputs_the_text_is_read_as_json(text: str, expected: object) -> None:
    assert process_reply(agent(outputs={"a": {"kind": "array"}}), reply(payload(text))) == expected
    assert process_reply(agent(), reply(payload(text))) == text


# An answer that ends before it is complete (P3).

WHOLE = ToolCall(id="a", name="t", arguments='{"x": 1}')
CUT_OFF: dict[str, tuple[list[str], str, int]] = {
    "in its arguments": (['{"x": 1}', '{"x": "Osl'], "length", 1),
    "before its arguments": (['{"x": 1}', ""], "length", 1),
    "the only one": (['{"x":'], "length", 0),
    "by a filter": (['{"x":'], "content_filter", 0),
    "after its arguments": (['{"x": 1}', '{"x": 2}'], "length", 2),
    "not at all": (['{"x": 1}', ""], "tool_calls", 2),
    "badly written is not cut off": (["{x"], "tool_calls", 1),
}


@pytest.mark.spec("002 §8.1", "a call that the token limit cut counts too")
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("arguments", "finish", "left"), CUT_OFF.values(), ids=CUT_OFF)
def test_a_call_that_was_cut_off_does_not_count(arguments: list[str], finish: str, left: int, streamed: bool) -> None:
    calls = [ToolCall(id=f"call_{number}", name="t", arguments=text) for number, text in enumerate(arguments)]
    made = payload("Let me see", calls, finish)
    answer = stream(whole_deltas(made)) if streamed else reply(made)
    assert [call.id for call in answer.tool_calls] == [f"call_{number}" for number in range(left)]
    assert answer.text == "Let me see"
    assert answer.finish_reason == finish


# Streams.


def chunk(delta: Json | None, finish: str | None = None, **fields: object) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m-2025", "choices": [choice], **fields}


def stream(events: list[Json]) -> Reply:
    decoder = ChatDecoder()
    for event in events:
        decoder.feed(event)
    return decoder.finish()


def decoded(*deltas: Json) -> Reply:
    return stream([*map(chunk, deltas), chunk({}, "stop")])


def piece(index: int | None, call_id: str | None, name: str | None, arguments: str | None) -> Json:
    function = {"name": name, "arguments": arguments}
    call = {"index": index, "id": call_id, "type": "function", "function": function}
    given = {key: value for key, value in call.items() if value is not None}
    return {"tool_calls": [{**given, "function": {k: v for k, v in function.items() if v is not None}}]}


@pytest.mark.spec("002 §8.6", "deltas are given out as they come")
def test_deltas_are_given_out_as_they_come() -> None:
    decoder = ChatDecoder()
    assert decoder.feed(chunk({"role": "assistant", "content": ""})) == []
    assert decoder.feed(chunk({"reasoning_content": "hm"})) == [ReasoningDelta("hm")]
    assert decoder.feed(chunk({"reasoning": "!"})) == [ReasoningDelta("!")]
    assert decoder.feed(chunk({"content": "Hel"})) == [TextDelta("Hel")]
    assert decoder.feed(chunk({"content": "lo"})) == [TextDelta("lo")]
    assert decoder.feed(chunk(piece(0, "a", "t", ""))) == [ToolCallDelta(0, "a", "t", "")]
    assert decoder.feed(chunk(piece(0, None, None, "{}"))) == [ToolCallDelta(0, "a", "t", "{}")]
    assert decoder.feed(chunk(None, "tool_calls")) == []
    answer = decoder.finish()
    assert (answer.reasoning, answer.text) == ("hm!", "Hello")
    assert answer.tool_calls == (ToolCall(id="a", name="t"),)


BUILT: dict[str, tuple[list[Json], list[tuple[str, str, str]]]] = {
    "by index": (
        [piece(0, "a", "t", ""), piece(1, "b", "t", '{"x"'), piece(0, None, None, "{}"), piece(1, None, None, ": 1}")],
        [("a", "t", "{}"), ("b", "t", '{"x": 1}')],
    ),
    "indexes with gaps": (
        [piece(3, "a", "t", "{}"), piece(7, "b", "t", "{}")],
        [("a", "t", "{}"), ("b", "t", "{}")],
    ),
    "indexes in another order": (
        [piece(1, "b", "t", "{}"), piece(0, "a", "t", "{}")],
        [("a", "t", "{}"), ("b", "t", "{}")],
    ),
    "no index, new ids": (
        [piece(None, "a", "t", "{"), piece(None, None, None, "}"), piece(None, "b", "t", "{}")],
        [("a", "t", "{}"), ("b", "t", "{}")],
    ),
    "no index, no ids, new names": (
        [piece(None, None, "t", "{"), piece(None, None, None, "}"), piece(None, None, "u", "{}")],
        [("call_0", "t", "{}"), ("call_1", "u", "{}")],
    ),
    "one index for all, new ids": (
        [piece(0, "a", "t", "{"), piece(0, None, None, "}"), piece(0, "b", "t", "{"), piece(0, None, None, "}")],
        [("a", "t", "{}"), ("b", "t", "{}")],
    ),
    "one index and one id for all, new names": (
        [piece(0, "a", "t", "{}"), piece(0, "a", "u", "{"), piece(0, None, None, "}")],
        [("a", "t", "{}"), ("a", "u", "{}")],
    ),
    "one index for all, turn by turn": (
        [piece(0, "a", "t", "{"), piece(0, "b", "t", "{"), piece(0, "a", None, "}"), piece(0, "b", None, "}")],
        [("a", "t", "{}"), ("b", "t", "{}")],
    ),
    "id and name repeated in every piece": (
        [piece(0, "a", "t", "{"), piece(0, "a", "t", "}"), piece(1, "b", "t", "{"), piece(1, "b", "t", "}")],
        [("a", "t", "{}"), ("b", "t", "{}")],
    ),
    "one id for calls at two indexes": (
        [piece(0, "a", "t", "{}"), piece(1, "a", "t", "{}")],
        [("a", "t", "{}"), ("a", "t", "{}")],
    ),
    "an id that comes late": ([piece(0, None, "t", "{"), piece(0, "a", None, "}")], [("a", "t", "{}")]),
    "several in one piece": (
        [{"tool_calls": [piece(0, "a", "t", "{}")["tool_calls"][0], piece(1, "b", "u", "{}")["tool_calls"][0]]}],
        [("a", "t", "{}"), ("b", "u", "{}")],
    ),
    "without arguments": ([piece(0, "a", "t", None)], [("a", "t", "{}")]),
}


@pytest.mark.spec("002 §8.6", "only the index tells calls apart")
@pytest.mark.spec("002 §8.6", "calls come after the text, in the order of their index")
@pytest.mark.spec("002 §8.6", "calls are put together by index")
@pytest.mark.parametrize(("deltas", "expected"), BUILT.values(), ids=BUILT)
def test_calls_are_put_together_however_a_server_counts(
    deltas: list[Json], expected: list[tuple[str, str, str]]
) -> None:
    calls = decoded(*deltas).tool_calls
    assert [(call.id, call.name, call.arguments) for call in calls] == expected


USAGE = {"prompt_tokens": 9, "completion_tokens": 5}
USED = Usage(input_tokens=9, output_tokens=5)
USAGES: dict[str, list[Json]] = {
    "in a last event without choices": [chunk({"content": "x"}, "stop"), {"choices": [], "usage": USAGE}],
    "in the event that ends": [chunk({"content": "x"}, "stop", usage=USAGE)],
    "growing": [chunk({"content": "x"}, usage={"prompt_tokens": 9}), chunk({}, "stop", usage=USAGE)],
    "before the end": [chunk({"content": "x"}, usage=USAGE), chunk({}, "stop", usage=None)],
}


@pytest.mark.spec("002 §8.6", "a chunk without a choice is passed over")
@pytest.mark.parametrize("events", USAGES.values(), ids=USAGES)
def test_usage_is_collected_wherever_it_comes(events: list[Json]) -> None:
    assert stream(events).usage == USED


def test_of_several_streamed_answers_the_first_counts() -> None:
    other = chunk({"content": "two"})
    other["choices"][0]["index"] = 1
    assert stream([chunk({"content": "one"}), other, chunk({}, "stop")]).text == "one"


CUT_STREAMS: dict[str, tuple[list[Json], str]] = {
    "an end without a reason": ([chunk({"content": "Hel"})], "ended before"),
    "an end in a call": ([chunk({"content": "Hel"}), chunk(piece(0, "a", "t", '{"x"'))], "ended before"),
    "an error inside": (
        [chunk({"content": "Hel"}), {"error": {"message": "overloaded", "code": 529}}],
        "overloaded",
    ),
    "an error in one word": ([chunk({"content": "Hel"}), {"error": "overloaded"}], "overloaded"),
    "an error after the end": ([chunk({"content": "Hel"}, "stop"), {"error": "overloaded"}], "overloaded"),
}


@pytest.mark.spec(
    "001 Arguments are a string until the moment of execution",
    "an answer whose stream failed is a message marked as an error",
)
@pytest.mark.parametrize(("events", "cause"), CUT_STREAMS.values(), ids=CUT_STREAMS)
def test_a_cut_stream_is_an_error_with_what_had_come(events: list[Json], cause: str) -> None:
    with pytest.raises(StreamCut, match=cause) as caught:
        stream([chunk({}, usage=USAGE), *events])
    partial = caught.value.partial
    assert isinstance(partial, Reply)
    assert (partial.text, partial.usage) == ("Hel", USED)
    assert caught.value.retryable


def test_a_stream_without_events_is_cut() -> None:
    with pytest.raises(StreamCut):
        stream([])


@pytest.mark.spec("002 §8.6", "a refusal ends a stream at its first piece")
@pytest.mark.spec("002 §8.6", "a refusal in a stream is a ValueError")
@pytest.mark.parametrize("end", [[], [chunk({}, "stop")]], ids=["broken off", "ended"])
def test_a_refusal_in_a_stream_is_an_error_with_all_of_it(end: list[Json]) -> None:
    with pytest.raises(ValueError, match=r"^Model refused: I cannot help with that$") as caught:
        stream([chunk({"refusal": "I cannot"}), chunk({"refusal": " help with that"}), *end])
    assert isinstance(caught.value, Refused)
    assert caught.value.refusal == "I cannot help with that"


def test_pieces_of_structured_reasoning_become_the_blocks_they_are() -> None:
    block = {"type": "reasoning.text", "index": 0, "format": "f"}
    answer = decoded(
        {"reasoning_details": [{**block, "text": "h", "signature": None}]},
        {"reasoning_details": [{**block, "text": "m"}]},
        {"reasoning_details": [{**block, "signature": "c2ln"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "x"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "y"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "a"}, {"type": "reasoning.text", "text": "b"}]},
    )
    assert answer.opaque["reasoning_details"] == [
        {**block, "text": "hm", "signature": "c2ln"},
        {"type": "reasoning.encrypted", "index": 1, "data": "x"},
        {"type": "reasoning.encrypted", "index": 1, "data": "y"},
        {"type": "reasoning.text", "text": "a"},
        {"type": "reasoning.text", "text": "b"},
    ]


# A reply and the same reply streamed are the same.

texts = st.text(max_size=12)
arguments = st.dictionaries(texts, texts, max_size=2).map(json.dumps) | texts


@st.composite
def payloads(draw: st.DrawFn) -> Json:
    wanted = [
        ToolCall(id=f"call_{number}", name=draw(st.sampled_from(["t", "u"])), arguments=draw(arguments))
        for number in range(draw(st.integers(0, 3)))
    ]
    fields: Json = {}
    if draw(st.booleans()):
        fields[draw(st.sampled_from(["reasoning", "reasoning_content"]))] = draw(texts)
    if draw(st.booleans()):
        thoughts = draw(st.lists(texts, min_size=1, max_size=2))
        fields["reasoning_details"] = [
            {"type": "reasoning.text", "index": number, "text": thought} for number, thought in enumerate(thoughts)
        ]
    finish = draw(st.sampled_from(["stop", "tool_calls", "length"]))
    refusal = draw(st.none() | st.just("No"))
    return payload(draw(texts | st.none()), wanted, finish, refusal=refusal, **fields)


def whole_deltas(made: Json) -> list[Json]:
    """The stream of a reply in the largest pieces there are."""
    return events_of(made, lambda text: [text])


def events_of(made: Json, cut: Any, *, indexed: bool = True, repeated: bool = False) -> list[Json]:
    """The stream of a reply, every text of it cut by `cut`."""
    [choice] = made["choices"]
    said = choice["message"]
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    for name in ("reasoning", "reasoning_content", "content", "refusal"):
        deltas += [{name: text} for text in cut(said.get(name) or "")]
    for block in said.get("reasoning_details", []):
        deltas += [{"reasoning_details": [{**block, "text": text}]} for text in cut(block["text"])]
    for position, call in enumerate(said.get("tool_calls", [])):
        index, function = position if indexed else None, call["function"]
        deltas.append(piece(index, call["id"], function["name"], ""))
        for text in cut(function["arguments"]):
            call_id, again = (call["id"], function["name"]) if repeated else (None, None)
            deltas.append(piece(index, call_id, again, text))
    last = {"id": made["id"], "choices": [], "usage": made["usage"]}
    return [*map(chunk, deltas), chunk({}, choice["finish_reason"]), last]


@pytest.mark.spec("002 §8.6", "a stream is processed piece by piece")
@given(payloads(), st.booleans(), st.booleans(), st.data())
def test_a_stream_ends_in_the_reply_it_would_have_been(
    made: Json, indexed: bool, repeated: bool, data: st.DataObject
) -> None:
    def cut(text: str) -> list[str]:
        inside = data.draw(st.lists(st.integers(0, len(text)), max_size=3))
        return [text[start:end] for start, end in pairwise([0, *sorted(inside), len(text)])]

    events = events_of(made, cut, indexed=indexed, repeated=repeated)
    expected = reply(made)
    if expected.refusal:
        with pytest.raises(Refused, match=rf"^Model refused: {expected.refusal}$"):
            stream(events)
    else:
        assert stream(events) == expected
