"""Anthropic Messages: requests its API takes, replies, and streams that end in the same reply (§7.5, §8.5, §8.6)."""

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage, RawMessageStreamEvent
from hypothesis import given, strategies as st
from pydantic import TypeAdapter

from prompty import Message, PromptAgent, ToolCall, Usage, assistant, system, tool_result, user
from prompty.errors import ModelError, Refused, RequestError, StreamCut
from prompty.events import Delta, ProviderCallStarted, ReasoningDelta, TextDelta, ToolCallDelta
from prompty.messages import ProviderCall, TextPart
from prompty.model.content import AudioPart, ContentPart, FilePart, ImagePart
from prompty.model.message import Reply, parse_messages
from prompty.model.tool import FunctionTool
from prompty.providers.anthropic.messages import API, MessagesDecoder
from prompty.providers.fitting import fit_request
from prompty.tools import Function
from prompty.tools.calls import parse_arguments
from prompty.wire.stream import EventReader
from prompty.wire.structured import build_function
from tests.legality import assert_legal
from tests.public_data import SHARED

Json = dict[str, Any]
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)

WEATHER = Function(name="get_weather", description="Get weather", parameters={"type": "object", "properties": {}})


def agent(options: Json | None = None, **fields: Any) -> PromptAgent:
    model = {"id": "claude-opus-5", "provider": "anthropic", "options": options or {}}
    return PromptAgent.model_validate({"model": model, **fields})


def body_of(*messages: Message, prompt: PromptAgent | None = None, functions: tuple[Function, ...] = ()) -> Json:
    """The body of a request, after it was held against the SDK's types and the rules beside them."""
    body = API.request(fit_request(prompt or agent(), API), messages, functions)
    assert_legal("messages", body)
    assert_legal("messages", API.stream_body(body))
    return body


def turns_of(*messages: Message) -> list[Json]:
    turns: list[Json] = body_of(*messages)["messages"]
    return turns


def calling(*calls: ToolCall, text: str = "", **fields: Any) -> Message:
    return Message("assistant", text or (), tool_calls=calls, **fields)


def failed(result: Message) -> Message:
    return replace(result, is_error=True)


def said(text: str) -> Json:
    return {"type": "text", "text": text}


def asked(call_id: str, **arguments: object) -> Json:
    return {"type": "tool_use", "id": call_id, "name": "get_weather", "input": arguments}


def answered(call_id: str, content: object) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def by_user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def by_assistant(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


PARIS = ToolCall(id="toolu_1", name="get_weather", arguments='{"city":"Paris"}')
ROME = ToolCall(id="toolu_2", name="get_weather", arguments='{"city":"Rome"}')
PNG = ImagePart("aWJt", "image/png")
PNG_BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aWJt"}}

CONVERSATIONS: dict[str, tuple[list[Message], list[Json]]] = {
    "one text is still a list of blocks": ([user("Hi")], [by_user(said("Hi"))]),
    "each part is a block": ([user("Look: ", PNG)], [by_user(said("Look: "), PNG_BLOCK)]),
    "blank parts are left out": ([user("", "Hi", " \n")], [by_user(said("Hi"))]),
    "messages of one role are one turn": ([user("Hi"), user("there")], [by_user(said("Hi"), said("there"))]),
    "a turn without content is left out": (
        [user("Hi"), assistant(""), assistant(), user("again")],
        [by_user(said("Hi"), said("again"))],
    ),
    "instructions are no turn": (
        [user("Hi"), system("Be brief."), Message("developer", "Be kind."), user("again")],
        [by_user(said("Hi"), said("again"))],
    ),
    "a turn to be continued does not end in blanks": (
        [user("Hi"), assistant("The answer is: \n")],
        [by_user(said("Hi")), by_assistant(said("The answer is:"))],
    ),
    "all results of a turn are in one message, and what the user says follows them": (
        [
            user("Weather?"),
            calling(PARIS, ROME, text="Let me see."),
            tool_result("toolu_1", "sunny"),
            tool_result("toolu_2", "rain"),
            user("And?"),
        ],
        [
            by_user(said("Weather?")),
            by_assistant(said("Let me see."), asked("toolu_1", city="Paris"), asked("toolu_2", city="Rome")),
            by_user(answered("toolu_1", "sunny"), answered("toolu_2", "rain"), said("And?")),
        ],
    ),
    "results come first even when the user spoke before them": (
        [user("Weather?"), calling(PARIS), user("Hurry!"), system("Be brief."), tool_result("toolu_1", "sunny")],
        [
            by_user(said("Weather?")),
            by_assistant(asked("toolu_1", city="Paris")),
            by_user(answered("toolu_1", "sunny"), said("Hurry!")),
        ],
    ),
    "reasoning of another provider stays here": (
        [user("Hi"), assistant("Hello", reasoning="They greet."), user("Bye")],
        [by_user(said("Hi")), by_assistant(said("Hello")), by_user(said("Bye"))],
    ),
}


@pytest.mark.spec("000 §7.5", "each message is a turn of its own")
@pytest.mark.spec("000 §7.5", "an image is a block with a base64 source")
@pytest.mark.spec("000 §7.5", "messages are always blocks")
@pytest.mark.parametrize(("messages", "turns"), CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_a_conversation_becomes_turns_of_blocks(messages: list[Message], turns: list[Json]) -> None:
    assert turns_of(*messages) == turns


SYSTEMS: dict[str, tuple[list[Message], str | None]] = {
    "there is none": ([user("Hi")], None),
    "it is empty": ([system(""), Message("developer", " "), user("Hi")], None),
    "it stands anywhere": (
        [system("A"), user("Hi"), Message("developer", [TextPart("B"), TextPart("C")]), system("")],
        "A\n\nBC",
    ),
}


@pytest.mark.spec("000 §7.5", "the last system message wins")
@pytest.mark.spec("000 §7.5", "the system message is a field of its own")
@pytest.mark.parametrize(("messages", "text"), SYSTEMS.values(), ids=SYSTEMS)
def test_system_and_developer_text_is_joined_by_a_blank_line(messages: list[Message], text: str | None) -> None:
    assert body_of(*messages).get("system") == text


def test_instructions_alone_are_a_user_message() -> None:
    body = body_of(system("Say hi."), Message("developer", "In French."))
    assert body["messages"] == [{"role": "user", "content": [said("Say hi."), said("In French.")]}]
    assert "system" not in body


RESULTS: dict[str, tuple[Message, Json]] = {
    "text is a string": (tool_result("toolu_1", "sun", "ny"), answered("toolu_1", "sunny")),
    "nothing is no content": (tool_result("toolu_1", ""), {"type": "tool_result", "tool_use_id": "toolu_1"}),
    "media are blocks": (tool_result("toolu_1", "A map: ", PNG), answered("toolu_1", [said("A map: "), PNG_BLOCK])),
    "blank text beside media is left out": (tool_result("toolu_1", " ", PNG), answered("toolu_1", [PNG_BLOCK])),
    "an error says so": (
        failed(tool_result("toolu_1", "no such city")),
        {**answered("toolu_1", "no such city"), "is_error": True},
    ),
    "an error may not be empty": (
        failed(tool_result("toolu_1")),
        {**answered("toolu_1", "The tool failed and said nothing."), "is_error": True},
    ),
    "an error may hold text only, so one with media is told by its text": (
        failed(tool_result("toolu_1", "broken: ", PNG)),
        answered("toolu_1", [said("broken: "), PNG_BLOCK]),
    ),
}


@pytest.mark.spec("001 tool — one result per call", "no error flag crosses the wire")
@pytest.mark.parametrize(("result", "block"), RESULTS.values(), ids=RESULTS)
def test_a_tool_result_on_the_wire(result: Message, block: Json) -> None:
    assert turns_of(user("Weather?"), calling(PARIS), result)[-1] == by_user(block)


DEEP = '{"a":' * 900 + '"\\ud800"' + "}" * 900
ARGUMENTS: dict[str, tuple[str, Json]] = {
    "an object": ('{"city": "Paris"}', {"city": "Paris"}),
    "nothing": (" ", {}),
    "broken JSON": ('{"city": "Par', {"INVALID_JSON": '{"city": "Par'}),
    "a list": ("[1]", {"INVALID_JSON": "[1]"}),
    "a key twice": ('{"a": 1, "a": 2}', {"INVALID_JSON": '{"a": 1, "a": 2}'}),
    "a number that JSON lacks": ('{"a": NaN}', {"INVALID_JSON": '{"a": NaN}'}),
    "half a character, nested too deep": (DEEP, {"INVALID_JSON": DEEP}),
}


@pytest.mark.spec(
    "001 Arguments are a string until the moment of execution", "malformed arguments go back to the model as they are"
)
@pytest.mark.parametrize(("arguments", "given_input"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_go_back_as_an_object_and_come_again_as_what_they_were(arguments: str, given_input: Json) -> None:
    call = ToolCall(id="toolu_1", name="get_weather", arguments=arguments)
    turn = turns_of(user("Weather?"), calling(call), tool_result("toolu_1", "?"))[1]
    assert turn["content"][0]["input"] == given_input
    [again] = API.reply(payload(*turn["content"], stop_reason="tool_use")).tool_calls
    assert again.arguments == arguments or parse_arguments(again.arguments) == parse_arguments(arguments)


PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
MEDIA: dict[str, tuple[ContentPart, Json]] = {
    "base64 with its type": (PNG, PNG_BLOCK),
    "a data URI is split": (ImagePart("data:image/png;base64,aWJt"), PNG_BLOCK),
    "a type is known however it is written": (ImagePart("aWJt", "IMAGE/PNG; q=1"), PNG_BLOCK),
    "jpg means jpeg": (
        ImagePart("aWJt", "image/jpg"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "aWJt"}},
    ),
    "the URL of an image": (
        ImagePart("https://example.com/a.png", "image/png", "high"),
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
    ),
    "a PDF with its name": (
        FilePart("JVBERg==", "application/pdf", "a.pdf"),
        {"type": "document", "source": PDF, "title": "a.pdf"},
    ),
    "a PDF as a data URI": (
        FilePart("data:application/pdf;base64,JVBERg=="),
        {"type": "document", "source": PDF},
    ),
    "plain text is decoded": (
        FilePart(b64encode("Grüße".encode()).decode(), "text/plain"),
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"}},
    ),
    "the URL of a document": (
        FilePart("https://example.com/a.pdf"),
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
    ),
    "an uploaded file": (
        FilePart("file_011CNha8"),
        {"type": "document", "source": {"type": "file", "file_id": "file_011CNha8"}},
    ),
}


@pytest.mark.parametrize(("part", "block"), MEDIA.values(), ids=MEDIA)
def test_media_in_a_user_message(part: ContentPart, block: Json) -> None:
    assert turns_of(user(part)) == [by_user(block)]


REFUSED: dict[str, tuple[list[Message], str]] = {
    "an image of another type": ([user(ImagePart("aWJt", "image/bmp"))], "image/jpeg, image/png"),
    "a file where an image should be": ([user(ImagePart("aWJt", "application/pdf"))], "image/jpeg"),
    "an image of no type": ([user(ImagePart("file_1"))], "image/jpeg"),
    "a document of another type": ([user(FilePart("eA==", "text/csv"))], "application/pdf, text/plain"),
    "text that is not base64": ([user(FilePart("??", "text/plain"))], "Encode it again"),
    "text that is not UTF-8": ([user(FilePart("/w==", "text/plain"))], "Encode it again"),
    "audio": ([user(AudioPart("eA==", "audio/wav"))], "another provider"),
    "audio in a result": ([user("Hi"), calling(PARIS), tool_result("toolu_1", AudioPart("eA==", "audio/wav"))], "text"),
    "media in instructions": ([system(PNG), user("Hi")], "Move it to a user message"),
    "media from the assistant": ([user("Hi"), assistant("Look", PNG)], "Move it to a user message"),
    "nothing to answer": ([system(" ")], "Begin it with a `user:` message"),
    "nothing but blanks": ([user(" ")], "Begin it with a `user:` message"),
    "the assistant speaks first": ([assistant("Welcome!"), user("Hi")], "Begin it with a `user:` message"),
    "a result of no call": ([user("Hi"), Message("tool", "sunny")], "`tool_call_id`"),
}


@pytest.mark.parametrize(("messages", "fix"), REFUSED.values(), ids=REFUSED)
def test_what_the_api_does_not_take_is_an_error_before_the_call(messages: list[Message], fix: str) -> None:
    with pytest.raises(RequestError) as caught:
        API.request(fit_request(agent(), API), messages, [])
    assert fix in caught.value.fix


OPTIONS: dict[str, tuple[Json, Json]] = {
    "max_tokens has a default": ({}, {"max_tokens": 4096}),
    "the file may set it": ({"maxOutputTokens": 9}, {"max_tokens": 9}),
    "also under its own name": ({"additionalProperties": {"max_tokens": 8}}, {"max_tokens": 8}),
    "the option wins": ({"maxOutputTokens": 9, "additionalProperties": {"max_tokens": 8}}, {"max_tokens": 9}),
    "options have their names on the wire": (
        {"temperature": 0.5, "topP": 0.9, "topK": 40, "stopSequences": ["END"]},
        {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "stop_sequences": ["END"], "max_tokens": 4096},
    ),
    "options the API lacks are dropped": (
        {"seed": 1, "frequencyPenalty": 1, "presencePenalty": 1, "allowMultipleToolCalls": False},
        {"max_tokens": 4096},
    ),
    "others pass through": (
        {"additionalProperties": {"thinking": {"type": "enabled", "budget_tokens": 1024}}},
        {"max_tokens": 4096, "thinking": {"type": "enabled", "budget_tokens": 1024}},
    ),
    "a budget for thinking above the default raises it": (
        {"additionalProperties": {"thinking": {"type": "enabled", "budget_tokens": 8000}}},
        {"max_tokens": 12_096, "thinking": {"type": "enabled", "budget_tokens": 8000}},
    ),
    "but not a limit of the file": (
        {"maxOutputTokens": 9000, "additionalProperties": {"thinking": {"type": "enabled", "budget_tokens": 8000}}},
        {"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 8000}},
    ),
    "but never override the conversation": (
        {"additionalProperties": {"messages": [], "model": "other"}},
        {"max_tokens": 4096},
    ),
}


@pytest.mark.spec("000 §7.5", "sampling options and stop sequences are sent where the file has them")
@pytest.mark.spec("000 §7.5", "the most tokens are 4096 unless the file says otherwise")
@pytest.mark.parametrize(("options", "fields"), OPTIONS.values(), ids=OPTIONS)
def test_options_on_the_wire(options: Json, fields: Json) -> None:
    hi = {"model": "claude-opus-5", "messages": [by_user(said("Hi"))]}
    assert body_of(user("Hi"), prompt=agent(options)) == {**hi, **fields}


HEADERS: dict[str, tuple[Json, bool]] = {
    "no option": ({}, False),
    "another option": ({"maxOutputTokens": 9, "stopSequences": ["END"]}, False),
    "temperature": ({"temperature": 0}, True),
    "top_p": ({"topP": 1}, True),
    "top_k": ({"topK": 1}, True),
    "one under its own name": ({"additionalProperties": {"top_k": 1}}, True),
}


@pytest.mark.parametrize(("options", "older"), HEADERS.values(), ids=HEADERS)
def test_sampling_options_ask_for_the_version_of_the_api_that_has_them(options: Json, older: bool) -> None:
    assert API.headers(fit_request(agent(options), API)) == ({"anthropic-version": "2023-06-01"} if older else {})


@pytest.mark.spec("000 §7.5", "a tool has a name, a description and an input schema")
def test_a_tool_has_a_schema_and_says_only_what_it_has() -> None:
    plain = Function(name="now", description=None, parameters={"type": "object", "properties": {}})
    strict = Function(name="then", description="", parameters=plain.parameters, strict=True)
    assert body_of(user("Hi"), functions=(WEATHER, plain, strict))["tools"] == [
        {"name": "get_weather", "description": "Get weather", "input_schema": WEATHER.parameters},
        {"name": "now", "input_schema": plain.parameters},
        {"name": "then", "input_schema": plain.parameters, "strict": True},
    ]


CHOICES: dict[str, tuple[Json, tuple[Function, ...], Json | None]] = {
    "one call a turn": (
        {"allowMultipleToolCalls": False},
        (WEATHER,),
        {"type": "auto", "disable_parallel_tool_use": True},
    ),
    "beside what the file says": (
        {"allowMultipleToolCalls": False, "additionalProperties": {"tool_choice": {"type": "any"}}},
        (WEATHER,),
        {"type": "any", "disable_parallel_tool_use": True},
    ),
    "many calls": ({"allowMultipleToolCalls": True}, (WEATHER,), None),
    "not said": ({}, (WEATHER,), None),
    "no tools": ({"allowMultipleToolCalls": False}, (), None),
}


@pytest.mark.spec("003 §2.6", "several calls at once can be allowed or forbidden")
@pytest.mark.parametrize(("options", "functions", "choice"), CHOICES.values(), ids=CHOICES)
def test_several_calls_in_a_turn_can_be_forbidden(
    options: Json, functions: tuple[Function, ...], choice: Json | None
) -> None:
    assert body_of(user("Hi"), prompt=agent(options), functions=functions).get("tool_choice") == choice


@pytest.mark.spec("000 §7.7", "outputs become the provider's own mechanism")
def test_outputs_are_a_format_beside_what_the_file_sets() -> None:
    effort = {"additionalProperties": {"output_config": {"effort": "low"}}}
    prompt = agent(effort, outputs={"city": {"kind": "string"}})
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    assert body_of(user("Hi"), prompt=prompt)["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": schema},
    }


def payload(*content: Json, stop_reason: str | None = "end_turn", **fields: object) -> Json:
    """An answer as the API gives it."""
    usage = {"input_tokens": 10, "output_tokens": 3}
    ends = {"stop_reason": stop_reason, "stop_sequence": None, "usage": usage}
    shape = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5"}
    return {**shape, "content": list(content), **ends, **fields}


THINKING = {"type": "thinking", "thinking": "Paris, then.", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3d"}
REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIw"}
SOURCED = {
    "type": "text",
    "text": "The sky is blue.",
    "citations": [
        {
            "type": "char_location",
            "cited_text": "The sky is blue.",
            "document_index": 0,
            "document_title": None,
            "file_id": None,
            "start_char_index": 0,
            "end_char_index": 16,
        }
    ],
}
DIRECT = {**asked("toolu_1", city="Paris"), "caller": {"type": "direct"}}
TOOL_TURN = (THINKING, REDACTED, said("Let me see."), DIRECT, asked("toolu_2", city="Rome"))
USAGE = Usage(input_tokens=10, output_tokens=3)
DONE = Reply(usage=USAGE, id="msg_1", model="claude-opus-5", finish_reason="stop")


def like(other: Reply, **changes: Any) -> Reply:
    return Reply(**{name: getattr(other, name) for name in Reply.__slots__} | changes)


REPLIES: dict[str, tuple[Json, Reply]] = {
    "text blocks are joined": (payload(said("Hel"), said("lo")), like(DONE, text="Hello")),
    "nothing is an empty answer": (payload(), DONE),
    "thinking is reasoning": (
        payload(THINKING, REDACTED, said("Hi")),
        like(DONE, text="Hi", reasoning="Paris, then."),
    ),
    "blocks of an unknown type are passed over, and go back": (
        payload({"type": "novel", "text": "?"}),
        replace(DONE, opaque={"anthropic_blocks": [{"type": "novel", "text": "?"}]}),
    ),
    "a tool turn keeps its blocks": (
        payload(*TOOL_TURN, stop_reason="tool_use"),
        like(
            DONE,
            text="Let me see.",
            reasoning="Paris, then.",
            tool_calls=(PARIS, ROME),
            finish_reason="tool_calls",
            opaque={"anthropic_blocks": list(TOOL_TURN)},
        ),
    ),
    "arguments are compact and not escaped": (
        payload({"type": "tool_use", "id": "t", "name": "f", "input": {"a": ["é", 1.5]}}, stop_reason="tool_use"),
        like(
            DONE,
            tool_calls=(ToolCall(id="t", name="f", arguments='{"a":["é",1.5]}'),),
            finish_reason="tool_calls",
            opaque={"anthropic_blocks": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": ["é", 1.5]}}]},
        ),
    ),
    "a call that the limit may have cut in two is none": (
        payload(said("Let me see."), asked("toolu_1"), stop_reason="max_tokens"),
        like(DONE, text="Let me see.", finish_reason="length"),
    ),
    "a call before the one that was cut is one": (
        payload(asked("toolu_1", city="Paris"), asked("toolu_2"), stop_reason="max_tokens"),
        like(
            DONE,
            tool_calls=(PARIS,),
            finish_reason="length",
            opaque={"anthropic_blocks": [asked("toolu_1", city="Paris")]},
        ),
    ),
    "calls before text that was cut are calls": (
        payload(asked("toolu_1", city="Paris"), said("And n"), stop_reason="model_context_window_exceeded"),
        like(
            DONE,
            text="And n",
            tool_calls=(PARIS,),
            finish_reason="model_context_window_exceeded",
            opaque={"anthropic_blocks": [asked("toolu_1", city="Paris"), said("And n")]},
        ),
    ),
    "usage has all its counts": (
        payload(
            usage={
                "input_tokens": 1,
                "output_tokens": 2,
                "cache_read_input_tokens": 3,
                "cache_creation_input_tokens": 4,
                "output_tokens_details": {"thinking_tokens": 1},
            }
        ),
        like(
            DONE,
            usage=Usage(input_tokens=8, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4, reasoning_tokens=1),
        ),
    ),
    "a paused turn says so": (payload(stop_reason="pause_turn"), like(DONE, finish_reason="pause_turn")),
    "a stop sequence is a stop": (payload(stop_reason="stop_sequence"), DONE),
}


@pytest.mark.spec("002 §8.5", "the first text block is the result")
@pytest.mark.spec("002 §8.5", "without a text block the result is empty")
@pytest.mark.parametrize(("answer", "expected"), REPLIES.values(), ids=REPLIES)
def test_an_answer_becomes_a_reply_streamed_or_not(answer: Json, expected: Reply) -> None:
    assert API.reply(answer) == expected
    assert decoded(events_of(answer)) == expected


EXPLAINED = {"type": "refusal", "category": "bio", "explanation": "This could do harm."}
REFUSALS: dict[str, tuple[Json, str]] = {
    "by its explanation": (payload(said("Take"), stop_reason="refusal", stop_details=EXPLAINED), "This could do harm."),
    "by its text": (payload(said("I will not."), stop_reason="refusal", stop_details=None), "I will not."),
    "by a sentence of ours": (payload(stop_reason="refusal"), "The model declined to answer."),
    "and calls none of its tools": (payload(said("No."), asked("toolu_1"), stop_reason="refusal"), "No."),
}


@pytest.mark.parametrize(("answer", "refusal"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_told(answer: Json, refusal: str) -> None:
    reply = API.reply(answer)
    assert (reply.refusal, reply.finish_reason, reply.tool_calls) == (refusal, "content_filter", ())
    with pytest.raises(Refused) as caught:
        decoded(events_of(answer))
    assert caught.value.refusal == refusal


def error(kind: str, text: str = "Overloaded") -> Json:
    return {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}


FAILURES: dict[str, tuple[Json, str, bool]] = {
    "overloaded": (error("overloaded_error"), "overloaded_error: Overloaded", True),
    "a limit": (error("rate_limit_error"), "rate_limit_error", True),
    "a bad request": (error("invalid_request_error", "max_tokens: too many"), "max_tokens: too many", False),
    "an error of a gateway": ({"error": "bad upstream"}, "bad upstream", True),
    "nothing": ({}, "without content", True),
}


@pytest.mark.parametrize(("answer", "cause", "retryable"), FAILURES.values(), ids=FAILURES)
def test_an_answer_that_is_an_error_is_raised(answer: Json, cause: str, retryable: bool) -> None:
    with pytest.raises(ModelError, match=cause) as caught:
        API.reply(answer)
    assert caught.value.retryable is retryable


def test_a_tool_turn_goes_back_as_it_came_signatures_and_all() -> None:
    for reply in (
        API.reply(payload(*TOOL_TURN, stop_reason="tool_use")),
        decoded(events_of(payload(*TOOL_TURN, stop_reason="tool_use"))),
    ):
        results = [tool_result("toolu_1", "sunny"), tool_result("toolu_2", "rain")]
        turns = turns_of(user("Weather?"), *API.tool_messages(reply, results))
        assert turns[1] == by_assistant(*TOOL_TURN)
        assert turns[2] == by_user(answered("toolu_1", "sunny"), answered("toolu_2", "rain"))


def test_a_blank_text_block_of_a_tool_turn_does_not_go_back() -> None:
    reply = API.reply(payload(THINKING, said("\n\n"), DIRECT, stop_reason="tool_use"))
    turns = turns_of(user("Weather?"), *API.tool_messages(reply, [tool_result("toolu_1", "sunny")]))
    assert turns[1] == by_assistant(THINKING, DIRECT)


def test_a_turn_with_a_block_without_a_type_is_written_anew() -> None:
    reply = API.reply(payload({"text": "?"}, DIRECT, stop_reason="tool_use"))
    turns = turns_of(user("Weather?"), *API.tool_messages(reply, [tool_result("toolu_1", "sunny")]))
    call = {name: DIRECT[name] for name in ("type", "id", "name", "input")}
    assert turns[1] == by_assistant(call)


def test_a_call_whose_id_was_changed_since_goes_back_with_the_new_one() -> None:
    turn = API.reply(payload(THINKING, DIRECT, stop_reason="tool_use")).message()
    turn = replace(turn, tool_calls=(ToolCall(id="toolu_1_2", name=PARIS.name),))
    turns = turns_of(user("Weather?"), turn, tool_result("toolu_1_2", "sunny"))
    assert turns[1] == by_assistant(THINKING, {**DIRECT, "id": "toolu_1_2"})


def test_a_turn_that_lost_a_call_since_is_written_anew() -> None:
    turn = API.reply(payload(*TOOL_TURN, stop_reason="tool_use")).message()
    turn = replace(turn, tool_calls=(ROME,))
    turns = turns_of(user("Weather?"), turn, tool_result("toolu_2", "rain"))
    assert turns[1] == by_assistant(said("Let me see."), asked("toolu_2", city="Rome"))


def events_of(answer: Json, pieces: int = 3) -> list[Json]:
    """The stream that stands for an answer, its text cut into so many pieces."""
    cuts = [index / pieces for index in range(1, pieces)]
    return list(stream_of(answer, lambda text: cut(text, cuts)))


def cut(text: str, places: list[float]) -> list[str]:
    """Text in pieces, cut at these shares of it."""
    at = [0, *sorted(round(len(text) * place) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(at)]


def stream_of(answer: Json, split: Any) -> Iterator[Json]:
    usage = {"cache_read_input_tokens": None, **answer["usage"], "output_tokens": 1}
    begun = {**answer, "content": [], "stop_reason": None, "stop_details": None, "usage": usage}
    yield {"type": "message_start", "message": begun}
    yield {"type": "ping"}
    for index, block in enumerate(answer["content"]):
        start, deltas = taken_apart(block, split)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ends = {name: answer.get(name) for name in ("stop_reason", "stop_sequence", "stop_details")}
    yield {"type": "message_delta", "delta": ends, "usage": {**answer["usage"], "input_tokens": None}}
    yield {"type": "message_stop"}


def taken_apart(block: Json, split: Any) -> tuple[Json, list[Json]]:
    match block["type"]:
        case "text":
            start = {**block, "text": ""} | ({"citations": []} if "citations" in block else {})
            texts = [{"type": "text_delta", "text": piece} for piece in split(block["text"])]
            return start, texts + [{"type": "citations_delta", "citation": one} for one in block.get("citations", [])]
        case "thinking":
            thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in split(block["thinking"])]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*thoughts, signed]
        case "tool_use" | "server_tool_use":
            written = json.dumps(block["input"]) if block["input"] else ""
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": piece} for piece in ["", *split(written)]
            ]
        case _:
            return block, []


def fed(decoder: MessagesDecoder, events: list[Json]) -> list[Delta]:
    return [delta for event in events for delta in decoder.feed(event)]


def decoded(events: list[Json]) -> Reply:
    decoder = MessagesDecoder()
    fed(decoder, events)
    return decoder.finish()


def test_the_streams_made_here_are_what_the_sdk_knows() -> None:
    answer = payload(*TOOL_TURN, SOURCED, stop_reason="tool_use")
    AnthropicMessage.model_validate(answer)
    for event in events_of(answer):
        if event["type"] != "ping":
            EVENT.validate_python(event)


@pytest.mark.spec("002 §8.6", "deltas are given out as they come")
def test_deltas_come_as_the_answer_is_written() -> None:
    events = events_of(payload(THINKING, said("Let me see."), DIRECT, DIRECT, stop_reason="tool_use"), pieces=2)
    assert fed(MessagesDecoder(), events) == [
        ReasoningDelta("Paris,"),
        ReasoningDelta(" then."),
        TextDelta("Let me"),
        TextDelta(" see."),
        *(
            ToolCallDelta(position, "toolu_1", "get_weather", piece)
            for position in (0, 1)
            for piece in ("", '{"city":', ' "Paris"}')
        ),
    ]


def test_text_that_is_there_when_its_block_begins_counts() -> None:
    events = events_of(payload(said("Hello")))
    events[2]["content_block"]["text"] = "Oh. "
    decoder = MessagesDecoder()
    assert fed(decoder, events)[0] == TextDelta("Oh. ")
    assert decoder.finish().text == "Oh. Hello"


STRANGE: dict[str, list[Json]] = {
    "an event nobody knows": [{"type": "novel_event", "index": 0}],
    "an event of no type": [{}],
    "a delta nobody knows": [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "novel_delta", "text": "?"}}
    ],
    "the end of a block that never began": [{"type": "content_block_stop", "index": 7}],
}


@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
def test_what_is_new_in_a_stream_is_passed_over(strange: list[Json]) -> None:
    events = events_of(payload(said("Hello")))
    assert decoded([*events[:3], *strange, *events[3:]]) == like(DONE, text="Hello")


def test_blocks_are_told_apart_where_a_server_repeats_or_omits_their_index() -> None:
    answer = payload(said("Let me see."), DIRECT, asked("toolu_2", city="Rome"), stop_reason="tool_use")
    repeated = [{**event, "index": 0} if "index" in event else event for event in events_of(answer)]
    omitted = [{name: value for name, value in event.items() if name != "index"} for event in events_of(answer)]
    assert decoded(repeated) == decoded(omitted) == API.reply(answer)


def test_the_input_of_a_call_may_be_there_from_the_start() -> None:
    events = events_of(payload(DIRECT, stop_reason="tool_use"))
    events[2]["content_block"] = DIRECT
    whole = [event for event in events if event["type"] != "content_block_delta"]
    assert decoded(whole).tool_calls == (PARIS,)


def test_arguments_that_are_not_json_stay_the_text_that_came() -> None:
    events = events_of(payload(DIRECT, stop_reason="tool_use"), pieces=1)
    events[4]["delta"]["partial_json"] = '{"city": Paris}'
    reply = decoded(events)
    assert reply.tool_calls[0].arguments == '{"city": Paris}'
    turns = turns_of(user("Weather?"), *API.tool_messages(reply, [failed(tool_result("toolu_1", "no JSON"))]))
    assert turns[1]["content"][0]["input"] == {"INVALID_JSON": '{"city": Paris}'}


def test_a_stream_that_ends_early_is_an_error_with_what_came_and_no_half_call() -> None:
    events = events_of(payload(THINKING, said("Let me see."), DIRECT, stop_reason="tool_use"))
    closed = next(i for i, event in enumerate(events) if event == {"type": "content_block_stop", "index": 2})
    for length in range(len(events)):
        decoder = MessagesDecoder()
        deltas = fed(decoder, events[:length])
        with pytest.raises(StreamCut) as caught:
            decoder.finish()
        partial = caught.value.partial
        assert isinstance(partial, Reply)
        assert partial.text == "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
        assert partial.reasoning == "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
        assert partial.tool_calls == ((PARIS,) if length > closed else ())


def test_a_stream_that_does_not_say_why_it_ended_is_cut() -> None:
    with pytest.raises(StreamCut):
        decoded(events_of(payload(said("Hello"), stop_reason=None)))


def test_a_tool_of_the_provider_is_no_call_of_ours() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "weather"}}
    decoder, answer = MessagesDecoder(), payload(search, stop_reason="pause_turn")
    call = ProviderCall(id="srvtoolu_1", tool="web_search", input={"query": "weather"}, status="in_progress")
    assert fed(decoder, events_of(answer)) == [ProviderCallStarted(call)]
    assert decoder.finish() == API.reply(answer)
    assert (API.reply(answer).tool_calls, API.reply(answer).provider_calls) == ((), (call,))
    assert API.reply(answer).opaque == {"anthropic_blocks": [search]}


def test_a_call_that_was_never_closed_cuts_the_stream_whatever_its_end_says() -> None:
    unclosed = {"type": "content_block_stop", "index": 1}
    events = [e for e in events_of(payload(said("Hm"), DIRECT, stop_reason="tool_use")) if e != unclosed]
    with pytest.raises(StreamCut) as caught:
        decoded(events)
    assert caught.value.partial == like(DONE, text="Hm", finish_reason="tool_calls")


@pytest.mark.parametrize("closed", [True, False])
def test_a_call_cut_by_the_limit_does_not_run_and_the_one_before_it_does(closed: bool) -> None:
    events = events_of(payload(DIRECT, asked("toolu_2", city="Rome"), stop_reason="max_tokens"))
    end = events.index({"type": "content_block_stop", "index": 1})
    cut_short = [*events[: end - 1], *events[end if closed else end + 1 :]]
    assert decoded(cut_short) == API.reply(payload(DIRECT, asked("toolu_2"), stop_reason="max_tokens"))


BROKEN: dict[str, tuple[Json, str, bool]] = {
    "overloaded": (error("overloaded_error"), "overloaded_error: Overloaded", True),
    "a request that was wrong": (error("invalid_request_error", "no"), "invalid_request_error: no", False),
    "a block that never began": (
        {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "?"}},
        "never began",
        True,
    ),
}


@pytest.mark.parametrize(("event", "cause", "retryable"), BROKEN.values(), ids=BROKEN)
def test_an_error_in_a_stream_cuts_it_and_keeps_what_came(event: Json, cause: str, retryable: bool) -> None:
    decoder = MessagesDecoder()
    fed(decoder, events_of(payload(said("Hello")))[:-3])
    with pytest.raises(StreamCut, match=cause) as caught:
        decoder.feed(event)
    expected = Usage(input_tokens=10, output_tokens=1)
    assert caught.value.partial == like(DONE, text="Hello", finish_reason=None, usage=expected)
    assert caught.value.retryable is retryable


def vectors(stage: str) -> list[Any]:
    file = SHARED / "vectors" / f"{stage}.json"
    if not file.is_file():
        return [pytest.param({}, id="no vectors", marks=pytest.mark.skip(reason="the public vectors are not there"))]
    found = json.loads(file.read_text(encoding="utf-8"))
    return [pytest.param(vector, id=vector["name"]) for vector in found if vector["name"].startswith("anthropic_")]


@pytest.mark.parametrize("vector", vectors("wire"))
def test_requests_of_the_public_vectors(vector: Json) -> None:
    given_input = vector["input"]
    model = {"id": given_input["model_id"], "provider": "anthropic", "options": given_input["options"]}
    prompt = PromptAgent.model_validate({"model": model, "tools": given_input["tools"]})
    functions = tuple(build_function(tool) for tool in prompt.tools if isinstance(tool, FunctionTool))
    body = body_of(*parse_messages(given_input["messages"]), prompt=prompt, functions=functions)
    assert body == vector["expected"]["request_body"]


@pytest.mark.parametrize("vector", vectors("process"))
def test_replies_of_the_public_vectors(vector: Json) -> None:
    result, answer = vector["expected"]["result"], vector["input"]["response"]
    for reply in (API.reply(answer), decoded(events_of(answer))):
        if isinstance(result, list):
            assert [ToolCall(**call) for call in result] == list(reply.tool_calls)
        else:
            assert (json.loads(reply.text) if vector["input"]["has_outputs"] else reply.text) == result


texts = st.text(max_size=8) | st.sampled_from(["", " ", "\n\n", "Hi ", "```json\n{}\n```"])
arguments_of_calls = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)
base64_texts = st.text(max_size=4).map(lambda text: b64encode(text.encode()).decode())
media: st.SearchStrategy[ContentPart] = st.one_of(
    st.sampled_from(["image/png", "image/jpeg", "image/gif", "image/webp"]).map(lambda kind: ImagePart("eA==", kind)),
    st.just(ImagePart("https://example.com/a.png")),
    st.just(FilePart("data:application/pdf;base64,JVBERg==")),
    st.builds(FilePart, base64_texts, st.just("text/plain"), st.none() | st.just("a.txt")),
    st.just(FilePart("file_1")),
)
parts = st.lists(st.one_of(texts.map(TextPart), media), max_size=3)
wild_arguments = st.one_of(arguments_of_calls.map(json.dumps), st.sampled_from(["", "{", "[]", "null", '{"a": NaN}']))
instructions = st.builds(Message, st.sampled_from(["system", "developer"]), st.lists(texts.map(TextPart), max_size=2))
blocks_beside_calls = st.one_of(texts.map(said), st.just(THINKING), st.just(REDACTED))


@st.composite
def tool_turns(draw: st.DrawFn, number: int) -> list[Message]:
    """A turn of calls, of this API or another's, and its results."""
    ids = [f"toolu_{number}_{position}" for position in range(draw(st.integers(1, 3)))]
    results = [Message("tool", draw(parts), tool_call_id=one, is_error=draw(st.booleans())) for one in ids]
    if draw(st.booleans()):
        calls = [ToolCall(id=one, name="f", arguments=draw(wild_arguments)) for one in ids]
        return [calling(*calls, text=draw(texts)), *results]
    content = draw(st.lists(blocks_beside_calls, max_size=3)) + [asked(one, **draw(arguments_of_calls)) for one in ids]
    return API.tool_messages(API.reply(payload(*content, stop_reason="tool_use")), results)


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    messages = [user("Hi", *draw(parts))]
    for number in range(draw(st.integers(0, 4))):
        plain = st.one_of(parts.map(lambda found: user(*found)), texts.map(lambda text: assistant(text)))
        messages += draw(st.one_of(plain.map(lambda one: [one]), tool_turns(number)))
    for _ in range(draw(st.integers(0, 3))):
        messages.insert(draw(st.integers(0, len(messages))), draw(instructions))
    return messages


@given(messages=histories())
def test_any_history_becomes_a_request_the_api_takes(messages: list[Message]) -> None:
    last = body_of(*messages)["messages"][-1]
    final = last["content"][-1]
    assert last["role"] == "user" or final["type"] != "text" or final["text"] == final["text"].rstrip()


server_blocks = st.sampled_from(
    [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "weather"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    ]
)
answer_blocks = st.one_of(
    blocks_beside_calls,
    st.just(SOURCED),
    server_blocks,
    st.builds(
        lambda one, given_input: {**DIRECT, "id": one, "input": given_input}, st.text(max_size=4), arguments_of_calls
    ),
)
stop_reasons = st.sampled_from(["end_turn", "tool_use", "max_tokens", "stop_sequence", "pause_turn", "novel_reason"])


@given(
    content=st.lists(answer_blocks, max_size=5),
    stop_reason=stop_reasons,
    places=st.lists(st.floats(0, 1), max_size=4),
    chunk=st.integers(1, 400),
)
def test_any_answer_is_the_same_reply_however_its_stream_is_cut(
    content: list[Json], stop_reason: str, places: list[float], chunk: int
) -> None:
    answer = payload(*content, stop_reason=stop_reason)
    events = list(stream_of(answer, lambda text: cut(text, places)))
    sent = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
    reader, decoder = EventReader(), MessagesDecoder()
    received = [event for at in range(0, len(sent), chunk) for event in reader.feed(sent[at : at + chunk])]
    deltas = fed(decoder, received)
    reply = decoder.finish()
    assert reply == API.reply(answer)
    assert reply.text == "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert reply.reasoning == "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))


def test_a_number_beyond_all_floats_is_an_error_and_not_infinity() -> None:
    content = [{"type": "tool_use", "id": "c", "name": "add", "input": {"a": float("inf")}}]
    with pytest.raises(ModelError, match="too large"):
        API.reply({"content": content, "stop_reason": "tool_use"})
