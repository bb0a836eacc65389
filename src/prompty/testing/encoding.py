"""Encode replies in the three wire formats, whole and as the events of a stream."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple, cast

from prompty.model.message import Json, Reply, ToolCall, Usage
from prompty.providers.anthropic import messages
from prompty.providers.openai import chat, responses
from prompty.safety.json import read_json
from prompty.wire.json_bytes import write_bytes

_WORD = re.compile(r"\s*\S+\s*|\s+")
_COMPLETED = ("stop", "tool_calls")
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


class ReplyPart(NamedTuple):
    """An item or a block of a reply. In a stream, its field `streamed` starts empty and arrives in `deltas`."""

    whole: Json
    streamed: str
    deltas: list[Json]

    @property
    def start(self) -> Json:
        return {**self.whole, self.streamed: type(self.whole[self.streamed])()}


def _get_finish_reason(reply: Reply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")


def _split_words(kind: str, key: str, text: str) -> list[Json]:
    return [{"type": kind, key: word} for word in _WORD.findall(text)]


def _split_in_half(text: str) -> list[str]:
    """Split text in the middle, which for the arguments of a call is the middle of JSON."""
    middle = len(text) // 2
    return [half for half in (text[:middle], text[middle:]) if half]


def _parse_object(arguments: str) -> Json | None:
    try:
        value = read_json(arguments)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _encode_event(event: Json) -> bytes:
    """Encode one server-sent event. Its type, if it has one, is the name of the event."""
    name = f"event: {event['type']}\n".encode() if "type" in event else b""
    return name + b"data: " + write_bytes(event) + b"\n\n"


def _encode_chat(reply: Reply) -> Json:
    fields: Json = {"content": reply.text or None, "refusal": reply.refusal, "reasoning_content": reply.reasoning}
    calls = [call.to_wire() for call in reply.tool_calls]
    message = {"role": "assistant", **fields, **_chat_details(reply), "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": _get_finish_reason(reply)}
    return {**_chat_head(reply, "chat.completion"), "choices": [choice], "usage": _chat_usage(reply)}


def _stream_chat(reply: Reply) -> Iterator[bytes]:
    head = _chat_head(reply, "chat.completion.chunk")
    for delta in _chat_deltas(reply):
        yield _encode_event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _encode_event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _get_finish_reason(reply)}]})
    yield _encode_event({**head, "choices": [], "usage": _chat_usage(reply)})
    yield b"data: [DONE]\n\n"


def _chat_head(reply: Reply, kind: str) -> Json:
    return {"id": reply.id, "object": kind, "created": 0, "model": reply.model}


def _chat_details(reply: Reply) -> dict[str, list[Json]]:
    details = cast(list[Json], reply.opaque.get("reasoning_details"))
    return {"reasoning_details": details} if details else {}


def _chat_deltas(reply: Reply) -> Iterator[Json]:
    yield {"role": "assistant", "content": ""}
    for word in _WORD.findall(reply.reasoning):
        yield {"reasoning_content": word}
    for detail in _chat_details(reply).get("reasoning_details", []):
        yield {"reasoning_details": [detail]}
    for word in _WORD.findall(reply.text):
        yield {"content": word}
    if reply.refusal:
        yield {"refusal": reply.refusal}
    for index, call in enumerate(reply.tool_calls):
        start = replace(call, arguments="").to_wire()
        rest: list[Json] = [{"function": {"arguments": half}} for half in _split_in_half(call.arguments)]
        for piece in (start, *rest):
            yield {"tool_calls": [{"index": index, **piece}]}


def _chat_usage(reply: Reply) -> Json:
    usage = reply.usage
    cached = {"cached_tokens": usage.cache_read_tokens}
    if usage.cache_write_tokens is not None:
        cached["cache_write_tokens"] = usage.cache_write_tokens
    details: Json = {
        "prompt_tokens_details": cached,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
    return {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens, **details}


def _encode_responses(reply: Reply) -> Json:
    reason, usage = _get_finish_reason(reply), reply.usage
    status: Json = {"status": "completed"}
    if reason not in _COMPLETED:
        incomplete = {"reason": "max_output_tokens" if reason == "length" else reason}
        status = {"status": "incomplete", "incomplete_details": incomplete}
    cached = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    details = {
        "input_tokens_details": cached,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
    tokens = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, **details}
    output = [item.whole for item in _items(reply)]
    return {"id": reply.id, "object": "response", "model": reply.model, **status, "output": output, "usage": tokens}


def _stream_responses(reply: Reply) -> Iterator[bytes]:
    whole = _encode_responses(reply)
    yield _encode_event({"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}})
    for index, item in enumerate(_items(reply)):
        start = {**item.start, "status": "in_progress"}
        yield _encode_event({"type": "response.output_item.added", "output_index": index, "item": start})
        yield from (_encode_event({**delta, "output_index": index}) for delta in item.deltas)
        yield _encode_event({"type": "response.output_item.done", "output_index": index, "item": item.whole})
    yield _encode_event({"type": f"response.{whole['status']}", "response": whole})


def _items(reply: Reply) -> Iterator[ReplyPart]:
    """Yield the output items, reasoning first."""
    if reply.reasoning or "encrypted_content" in reply.opaque:
        encrypted = {name: value for name, value in reply.opaque.items() if name == "encrypted_content"}
        summary = [{"type": "summary_text", "text": reply.reasoning}] if reply.reasoning else []
        deltas = _split_words("response.reasoning_summary_text.delta", "delta", reply.reasoning)
        yield ReplyPart(
            {"type": "reasoning", "id": f"rs_{reply.id}", "summary": summary, **encrypted}, "summary", deltas
        )
    if reply.text or reply.refusal:
        yield _message_item(reply)
    cut = _get_finish_reason(reply) not in _COMPLETED
    for number, call in enumerate(reply.tool_calls, 1):
        is_partial = cut and number == len(reply.tool_calls) and _parse_object(call.arguments) is None
        yield _call_item(call, "incomplete" if is_partial else "completed")


def _message_item(reply: Reply) -> ReplyPart:
    content: list[Json] = [{"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}]
    deltas = _split_words("response.output_text.delta", "delta", reply.text)
    if reply.refusal:
        content.append({"type": "refusal", "refusal": reply.refusal})
        deltas.append({"type": "response.refusal.delta", "delta": reply.refusal})
    head = {"type": "message", "id": f"msg_{reply.id}", "role": "assistant", "status": "completed"}
    return ReplyPart({**head, "content": content}, "content", deltas)


def _call_item(call: ToolCall, status: str) -> ReplyPart:
    """Build the item of a call. Without a call id it has no item id either, because the parser would use that."""
    ids = {"id": f"fc_{call.id}", "call_id": call.id} if call.id else {"call_id": ""}
    head = {"type": "function_call", **ids, "name": call.name, "status": status}
    halves = _split_in_half(call.arguments)
    deltas: list[Json] = [{"type": "response.function_call_arguments.delta", "delta": half} for half in halves]
    return ReplyPart({**head, "arguments": call.arguments}, "arguments", deltas)


def _encode_messages(reply: Reply) -> Json:
    content = [block.whole for block in _blocks(reply)]
    return {**_messages_head(reply), **_stop_reason(reply), "content": content}


def _stream_messages(reply: Reply) -> Iterator[bytes]:
    head = _messages_head(reply)
    yield _encode_event({"type": "message_start", "message": {**head, "content": [], "stop_reason": None}})
    for index, block in enumerate(_blocks(reply)):
        yield _encode_event({"type": "content_block_start", "index": index, "content_block": block.start})
        yield from (
            _encode_event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in block.deltas
        )
        yield _encode_event({"type": "content_block_stop", "index": index})
    yield _encode_event({"type": "message_delta", "delta": _stop_reason(reply), "usage": head["usage"]})
    yield _encode_event({"type": "message_stop"})


def _messages_head(reply: Reply) -> Json:
    return {
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "usage": _messages_usage(reply.usage),
    }


def _messages_usage(usage: Usage) -> Json:
    """Encode the token counts. This API counts cached input separately."""
    read, written, total = usage.cache_read_tokens, usage.cache_write_tokens, usage.input_tokens
    creation: Json = {}
    if (hourly := usage.cache_write_1h_tokens) is not None:
        durations = {"ephemeral_5m_input_tokens": (written or 0) - hourly, "ephemeral_1h_input_tokens": hourly}
        creation = {"cache_creation": durations}
    return {
        "input_tokens": None if total is None else total - (read or 0) - (written or 0),
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        **creation,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _stop_reason(reply: Reply) -> Json:
    if reply.refusal:
        return {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": reply.refusal}}
    reason = _get_finish_reason(reply)
    return {"stop_reason": _STOP_REASONS.get(reason, reason)}


def _blocks(reply: Reply) -> Iterator[ReplyPart]:
    if reply.reasoning:
        signed = {"signature": reply.opaque.get("signature", "sig")}
        deltas = _split_words("thinking_delta", "thinking", reply.reasoning)
        whole = {"type": "thinking", "thinking": reply.reasoning, **signed}
        yield ReplyPart(whole, "thinking", [*deltas, {"type": "signature_delta", **signed}])
    if reply.text:
        yield ReplyPart({"type": "text", "text": reply.text}, "text", _split_words("text_delta", "text", reply.text))
    yield from map(_call_block, reply.tool_calls)


def _call_block(call: ToolCall) -> ReplyPart:
    """Build the block of a call. Its input must be an object: other text goes under a key that the parser knows."""
    arguments = _parse_object(call.arguments or "{}")
    value = {"INVALID_JSON": call.arguments} if arguments is None else arguments
    deltas: list[Json] = [{"type": "input_json_delta", "partial_json": half} for half in _split_in_half(call.arguments)]
    return ReplyPart({"type": "tool_use", "id": call.id, "name": call.name, "input": value}, "input", deltas)


class Wire(NamedTuple):
    """Wire format of an API."""

    whole: Callable[[Reply], Json]
    events: Callable[[Reply], Iterator[bytes]]


WIRES = {
    chat.API.path: Wire(_encode_chat, _stream_chat),
    responses.API.path: Wire(_encode_responses, _stream_responses),
    messages.API.path: Wire(_encode_messages, _stream_messages),
}
