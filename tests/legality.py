"""Whether a request body is one that its API takes.

Held against OpenAI's own document, against the typed parameters of both SDKs with unknown fields forbidden, and
against the rules that neither can say.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jsonschema_rs
import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.embedding_create_params import EmbeddingCreateParams
from openai.types.image_generate_params import ImageGenerateParamsNonStreaming, ImageGenerateParamsStreaming
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter

from tests.public_data import DOCUMENT, NO_DOCUMENT

# Keys that a test puts into `additionalProperties` begin so; no API knows them.
OWN_OPTION = "x_"

Body = dict[str, Any]


class Checks(NamedTuple):
    """What a body of one API is held against: a schema of OpenAI's document, and types without and with a stream."""

    schema: str | None
    types: tuple[Any, Any]


CHECKS = {
    "chat": Checks(
        "CreateChatCompletionRequest", (CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming)
    ),
    "responses": Checks("CreateResponse", (ResponseCreateParamsNonStreaming, ResponseCreateParamsStreaming)),
    "embedding": Checks("CreateEmbeddingRequest", (EmbeddingCreateParams, EmbeddingCreateParams)),
    "image": Checks("CreateImageRequest", (ImageGenerateParamsNonStreaming, ImageGenerateParamsStreaming)),
    "messages": Checks(None, (MessageCreateParamsNonStreaming, MessageCreateParamsStreaming)),
}


def assert_legal(api_name: str, body: Body) -> None:
    """Fail with the reason when this API would refuse this body."""
    assert json.loads(json.dumps(body, allow_nan=False)) == body, "the body changes when it is written as JSON"
    plain = without_what_is_allowed_on_purpose(api_name, body)
    checks = CHECKS[api_name]
    if checks.schema and has_document():
        validator_of(checks.schema).validate(plain)
    walked(adapter_of(api_name, bool(plain.get("stream"))).validate_python(plain, extra="forbid"))
    RULES.get(api_name, no_rules)(plain)


def without_what_is_allowed_on_purpose(api_name: str, body: Body) -> Body:
    """The body without what we send although the document or the types do not know it.

    - `additionalProperties` of a test cross as they are (W7);
    - `temperature`, `top_p` and `top_k` go to Anthropic under an older version of its API (W11);
    - reasoning goes back to compatible servers, never to OpenAI's own (L6);
    - audio formats beside wav and mp3 are what §7.1.2 maps them to; compatible servers take them.
    """
    plain: Body = {name: value for name, value in body.items() if not name.startswith(OWN_OPTION)}
    if api_name == "messages":
        return {name: value for name, value in plain.items() if name not in ("temperature", "top_p", "top_k")}
    if api_name == "chat":
        return {**plain, "messages": [_plain_chat_message(message) for message in plain["messages"]]}
    return plain


def _plain_chat_message(message: Body) -> Body:
    plain = {name: value for name, value in message.items() if name not in ("reasoning_content", "reasoning_details")}
    if isinstance(plain["content"], list):
        plain["content"] = [_plain_chat_part(part) for part in plain["content"]]
    return plain


def _plain_chat_part(part: Body) -> Body:
    if part["type"] != "input_audio":
        return part
    return {**part, "input_audio": {**part["input_audio"], "format": "wav"}}


def has_document() -> bool:
    """Return True if OpenAI's document can be read. Without it, the other checks still hold (`tests/conftest.py`)."""
    if not (is_there := DOCUMENT.is_file()) and os.environ.get("CI"):
        pytest.fail(f"{NO_DOCUMENT}; set PROMPTY_SHARED to the folder that holds openapi/openai.json", pytrace=False)
    return is_there


@cache
def validator_of(schema: str) -> Any:
    components = json.loads(DOCUMENT.read_text(encoding="utf-8"))["components"]
    # It asks for a `request_id`, which neither it nor the SDK's type has.
    components["schemas"]["MCPApprovalResponse"]["required"].remove("request_id")
    return jsonschema_rs.Draft202012Validator({"$ref": f"#/components/schemas/{schema}", "components": components})


@cache
def adapter_of(api_name: str, stream: bool) -> TypeAdapter[Any]:
    return TypeAdapter(CHECKS[api_name].types[stream])


def walked(value: Any) -> Any:
    """Go through a validated value: what the types call an iterable is checked only when somebody reads it."""
    if isinstance(value, dict):
        return {name: walked(entry) for name, entry in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    return [walked(entry) for entry in value]


def no_rules(body: Body) -> None:
    """The document and the types say it all."""


def chat_rules(body: Body) -> None:
    """Every call is answered, once and in order, directly after the turn that made it."""
    messages: Sequence[Body] = body["messages"]
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert waiting, "a result that no call waits for"
            assert message["tool_call_id"] == waiting.pop(0)
        else:
            assert not waiting, f"calls without a result: {waiting}"
            waiting = [call["id"] for call in message.get("tool_calls", [])]
            assert_named(waiting)
    assert not waiting, f"calls without a result: {waiting}"
    assert_named([tool["function"]["name"] for tool in body.get("tools", [])])


def responses_rules(body: Body) -> None:
    """Every call has its output, and comes before it; reasoning is followed by what it led to."""
    items: Sequence[Body] = body["input"]
    kinds = [item.get("type", "message") for item in items]
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    assert outputs == calls
    for kind, following in zip(kinds, [*kinds[1:], None], strict=True):
        led_to = following in ("reasoning", "message") or str(following).endswith(("_call", "_list_tools", "_request"))
        assert kind != "reasoning" or led_to
    assert_named(calls)
    assert_named([tool["name"] for tool in body.get("tools", [])])


def messages_rules(body: Body) -> None:
    """Roles alternate, beginning with the user; calls are answered in the next message; no text is blank."""
    messages: Sequence[Body] = body["messages"]
    roles = [message["role"] for message in messages]
    assert roles == [("user", "assistant")[position % 2] for position in range(len(roles))]
    assert roles, "no message"
    assert body.get("system") != ""
    for message, following in zip(messages, [*messages[1:], {"content": []}], strict=True):
        assert message["content"], "a message without content"
        calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        leading = [block.get("tool_use_id") for block in following["content"][: len(calls)]]
        results = [block["tool_use_id"] for block in following["content"] if block["type"] == "tool_result"]
        assert calls == leading == results
        assert_named(calls)
    assert_no_blank_text(messages)
    assert_named([tool["name"] for tool in body.get("tools", [])])


def assert_no_blank_text(value: Any) -> None:
    if isinstance(value, list):
        for entry in value:
            assert_no_blank_text(entry)
    elif isinstance(value, dict):
        assert value.get("type") != "text" or value.get("media_type") or value["text"].strip(), "a blank text block"
        for name, entry in value.items():
            if name != "input":
                assert_no_blank_text(entry)


def assert_named(names: Sequence[str]) -> None:
    """Names and ids are there, of letters the APIs take, and no two are the same."""
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in names), names
    assert len(set(names)) == len(names), f"one name twice: {names}"


RULES: dict[str, Callable[[Body], None]] = {
    "chat": chat_rules,
    "responses": responses_rules,
    "messages": messages_rules,
}
