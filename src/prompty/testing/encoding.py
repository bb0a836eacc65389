"""Answers as the three wires write them, whole and as the events of a stream."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

from prompty.model.message import Json, ToolCall
from prompty.model.reply import Reply, Usage, tool_call_to_wire
from prompty.providers.anthropic import messages
from prompty.providers.openai import chat, responses
from prompty.safety.json import read_json
from prompty.wire.json_bytes import write_bytes

_WORD = re.compile(r"\s*\S+\s*|\s+")
_COMPLETED = ("stop", "tool_calls")
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


class Part(NamedTuple):
    """An item or a block of an answer. In a stream, what is under `grows` begins empty and comes in `deltas`."""

    whole: Json
    grows: str
    deltas: list[Json]

    @property
    def begun(self) -> Json:
        return {**self.whole, self.grows: type(self.whole[self.grows])()}


def _finish_reason(reply: Reply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")


def _words(kind: str, key: str, text: str) -> list[Json]:
    return [{"type": kind, key: word} for word in _WORD.findall(text)]


def _halves(text: str) -> list[str]:
    """Text cut in the middle, which for the arguments of a call is in the middle of JSON."""
    middle = len(text) // 2
    return [half for half in (text[:middle], text[middle:]) if half]


def _object_in(arguments: str) -> Json | None:
    try:
        found = read_json(arguments)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _event(event: Json) -> bytes:
    """One server-sent event; where it has a type, so has its frame."""
    name = f"event: {event['type']}\n".encode() if "type" in event else b""
    return name + b"data: " + write_bytes(event) + b"\n\n"


def _chat_whole(reply: Reply) -> Json:
    said: Json = {"content": reply.text or None, "refusal": reply.refusal, "reasoning_content": reply.reasoning}
    calls = [tool_call_to_wire(call) for call in reply.tool_calls]
    turn = {"role": "assistant", **said, **_chat_details(reply), "tool_calls": calls}
    choice = {"index": 0, "message": turn, "finish_reason": _finish_reason(reply)}
    return {**_chat_head(reply, "chat.completion"), "choices": [choice], "usage": _chat_usage(reply)}


def _chat_events(reply: Reply) -> Iterator[bytes]:
    head = _chat_head(reply, "chat.completion.chunk")
    for delta in _chat_deltas(reply):
        yield _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish_reason(reply)}]})
    yield _event({**head, "choices": [], "usage": _chat_usage(reply)})
    yield b"data: [DONE]\n\n"


def _chat_head(reply: Reply, kind: str) -> Json:
    return {"id": reply.id, "object": kind, "created": 0, "model": reply.model}


def _chat_details(reply: Reply) -> dict[str, list[Json]]:
    details = cast(list[Json], reply.metadata.get("reasoning_details"))
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
        begun: Json = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        more: list[Json] = [{"function": {"arguments": half}} for half in _halves(call.arguments)]
        for piece in (begun, *more):
            yield {"tool_calls": [{"index": index, **piece}]}


def _chat_usage(reply: Reply) -> Json:
    usage = reply.usage
    given, made = {"cached_tokens": usage.cache_read_tokens}, {"reasoning_tokens": usage.reasoning_tokens}
    details: Json = {"prompt_tokens_details": given, "completion_tokens_details": made}
    return {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens, **details}


def _responses_whole(reply: Reply) -> Json:
    reason, usage = _finish_reason(reply), reply.usage
    ended: Json = {"status": "completed"}
    if reason not in _COMPLETED:
        told = "max_output_tokens" if reason == "length" else reason
        ended = {"status": "incomplete", "incomplete_details": {"reason": told}}
    given = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    details = {"input_tokens_details": given, "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens}}
    counted = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, **details}
    output = [item.whole for item in _items(reply)]
    return {"id": reply.id, "object": "response", "model": reply.model, **ended, "output": output, "usage": counted}


def _responses_events(reply: Reply) -> Iterator[bytes]:
    whole = _responses_whole(reply)
    yield _event({"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}})
    for index, item in enumerate(_items(reply)):
        begun = {**item.begun, "status": "in_progress"}
        yield _event({"type": "response.output_item.added", "output_index": index, "item": begun})
        yield from (_event({**delta, "output_index": index}) for delta in item.deltas)
        yield _event({"type": "response.output_item.done", "output_index": index, "item": item.whole})
    yield _event({"type": f"response.{whole['status']}", "response": whole})


def _items(reply: Reply) -> Iterator[Part]:
    """Reasoning comes before what it led to."""
    if reply.reasoning or "encrypted_content" in reply.metadata:
        kept = {name: value for name, value in reply.metadata.items() if name == "encrypted_content"}
        summary = [{"type": "summary_text", "text": reply.reasoning}] if reply.reasoning else []
        deltas = _words("response.reasoning_summary_text.delta", "delta", reply.reasoning)
        yield Part({"type": "reasoning", "id": f"rs_{reply.id}", "summary": summary, **kept}, "summary", deltas)
    if reply.text or reply.refusal:
        yield _message_item(reply)
    cut = _finish_reason(reply) not in _COMPLETED
    for number, call in enumerate(reply.tool_calls, 1):
        is_half = cut and number == len(reply.tool_calls) and _object_in(call.arguments) is None
        yield _call_item(call, "incomplete" if is_half else "completed")


def _message_item(reply: Reply) -> Part:
    content: list[Json] = [{"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}]
    deltas = _words("response.output_text.delta", "delta", reply.text)
    if reply.refusal:
        content.append({"type": "refusal", "refusal": reply.refusal})
        deltas.append({"type": "response.refusal.delta", "delta": reply.refusal})
    head = {"type": "message", "id": f"msg_{reply.id}", "role": "assistant", "status": "completed"}
    return Part({**head, "content": content}, "content", deltas)


def _call_item(call: ToolCall, status: str) -> Part:
    """A call. For one without an id the reader would take the id of the item, so then there is none."""
    named = {"id": f"fc_{call.id}", "call_id": call.id} if call.id else {"call_id": ""}
    head = {"type": "function_call", **named, "name": call.name, "status": status}
    halves = _halves(call.arguments)
    deltas: list[Json] = [{"type": "response.function_call_arguments.delta", "delta": half} for half in halves]
    return Part({**head, "arguments": call.arguments}, "arguments", deltas)


def _messages_whole(reply: Reply) -> Json:
    content = [block.whole for block in _blocks(reply)]
    return {**_messages_head(reply), **_stop(reply), "content": content}


def _messages_events(reply: Reply) -> Iterator[bytes]:
    head = _messages_head(reply)
    yield _event({"type": "message_start", "message": {**head, "content": [], "stop_reason": None}})
    for index, block in enumerate(_blocks(reply)):
        yield _event({"type": "content_block_start", "index": index, "content_block": block.begun})
        yield from (_event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in block.deltas)
        yield _event({"type": "content_block_stop", "index": index})
    yield _event({"type": "message_delta", "delta": _stop(reply), "usage": head["usage"]})
    yield _event({"type": "message_stop"})


def _messages_head(reply: Reply) -> Json:
    return {
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "usage": _counted(reply.usage),
    }


def _counted(usage: Usage) -> Json:
    """The tokens of an answer; this API counts what came from its cache apart."""
    read, written, given = usage.cache_read_tokens, usage.cache_write_tokens, usage.input_tokens
    apart = None if given is None else given - (read or 0) - (written or 0)
    cached: Json = {"cache_read_input_tokens": read, "cache_creation_input_tokens": written}
    made: Json = {"output_tokens_details": {"thinking_tokens": usage.reasoning_tokens}}
    return {"input_tokens": apart, "output_tokens": usage.output_tokens, **cached, **made}


def _stop(reply: Reply) -> Json:
    if reply.refusal:
        return {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": reply.refusal}}
    reason = _finish_reason(reply)
    return {"stop_reason": _STOP_REASONS.get(reason, reason)}


def _blocks(reply: Reply) -> Iterator[Part]:
    if reply.reasoning:
        signed = {"signature": reply.metadata.get("signature", "sig")}
        deltas = _words("thinking_delta", "thinking", reply.reasoning)
        whole = {"type": "thinking", "thinking": reply.reasoning, **signed}
        yield Part(whole, "thinking", [*deltas, {"type": "signature_delta", **signed}])
    if reply.text:
        yield Part({"type": "text", "text": reply.text}, "text", _words("text_delta", "text", reply.text))
    yield from map(_call_block, reply.tool_calls)


def _call_block(call: ToolCall) -> Part:
    """A call. Its input is an object: text that is none goes under the name that the reader knows."""
    found = _object_in(call.arguments or "{}")
    given = {"INVALID_JSON": call.arguments} if found is None else found
    deltas: list[Json] = [{"type": "input_json_delta", "partial_json": half} for half in _halves(call.arguments)]
    return Part({"type": "tool_use", "id": call.id, "name": call.name, "input": given}, "input", deltas)


class Wire(NamedTuple):
    """How an API writes answers."""

    whole: Callable[[Reply], Json]
    events: Callable[[Reply], Iterator[bytes]]


WIRES = {
    chat.API.path: Wire(_chat_whole, _chat_events),
    responses.API.path: Wire(_responses_whole, _responses_events),
    messages.API.path: Wire(_messages_whole, _messages_events),
}
