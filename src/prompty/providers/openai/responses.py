"""OpenAI Responses: the wire format (004, §7.4, §8.4).

Four pure functions between our `Message`/`Reply` and the JSON the API speaks. An answer is a list of items; those of
a turn that called tools go back as they came, since a reasoning item and the call after it belong together.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from prompty.errors import EmptyReply, Refused, RequestError, ResponseFailed, StreamCut
from prompty.model.agent import PromptAgent
from prompty.model.content import AudioPart, ContentPart, FilePart, ImagePart, TextPart
from prompty.model.event import Delta, ReasoningDelta, TextDelta
from prompty.model.message import Json, Message, ToolCall, Usage
from prompty.model.reply import Reply
from prompty.model.request import Function
from prompty.providers import Api, turn_messages
from prompty.wire.media import data_uri, encoded, is_url, only_text
from prompty.wire.options import RESPONSES, wire_options
from prompty.wire.stream import CallAssembler
from prompty.wire.structured import SCHEMA_NAME, output_schema

Item = dict[str, Any]

_INSTRUCTING = ("system", "developer")
_NO_ANSWER = ("failed", "cancelled", "queued", "in_progress")
# Errors that may be gone the next time; all others are about the request or the account.
_PASSING = (None, "server_error", "rate_limit_exceeded", "server_is_overloaded", "slow_down", "vector_store_timeout")
_BLANK_LINE = "\n\n"


def request(agent: PromptAgent, messages: Sequence[Message], functions: Sequence[Function]) -> Json:
    """The body of a request (004)."""
    options = agent.model.options
    told = [only_text(message) for message in messages if message.role in _INSTRUCTING]
    items = [item for message in messages if message.role not in _INSTRUCTING for item in message_to_items(message)]
    body: Json = {**wire_options(options, RESPONSES), "model": agent.model.id, "input": items}
    if any(told):
        body["instructions"] = _BLANK_LINE.join(filter(None, told))
    if functions:
        body["tools"] = [function_to_wire(function) for function in functions]
        if options.allow_multiple_tool_calls is not None:
            body["parallel_tool_calls"] = options.allow_multiple_tool_calls
    if schema := output_schema(agent):
        format_ = {"type": "json_schema", "name": SCHEMA_NAME, "strict": True, "schema": schema}
        body["text"] = {**cast(Json, body.get("text") or {}), "format": format_}
    return body


def function_to_wire(function: Function) -> Json:
    """A flat function. Without `strict` the API takes it for strict and makes optional parameters mandatory (W9)."""
    described: Json = {"description": function.description} if function.description else {}
    named: Json = {"type": "function", "name": function.name, **described}
    return {**named, "parameters": function.parameters, "strict": function.strict}


def message_to_items(message: Message) -> list[Json]:
    """Convert one message: none, one or several items."""
    if message.role == "assistant":
        return _assistant_items(message)
    if message.role == "tool":
        return [{"type": "function_call_output", "call_id": message.tool_call_id or "", "output": _output(message)}]
    match message.content:
        case [TextPart(value=text)]:
            return [{"role": message.role, "content": text}]
        case parts:
            return [{"role": message.role, "content": [part_to_wire(part) for part in parts]}]


def _assistant_items(message: Message) -> list[Json]:
    text, calls = only_text(message), message.tool_calls
    stored = message.opaque.get("responses_items")
    if calls and isinstance(stored, list):
        return _stored_items(stored, calls)
    said: list[Json] = [{"role": "assistant", "content": text}] if text else []
    return said + [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments} for call in calls
    ]


def _stored_items(stored: list[Json], calls: Sequence[ToolCall]) -> list[Json]:
    """The items as they came, but with what the calls have by now: ids that repeat are made unique (L1), and what no
    server takes was changed."""
    if len(_of_type(stored, "function_call")) != len(calls):
        return stored
    left = iter(calls)
    return [_as_called(item, next(left)) if item.get("type") == "function_call" else item for item in stored]


def _as_called(item: Json, call: ToolCall) -> Json:
    return {**item, "call_id": call.id, "name": call.name, "arguments": call.arguments}


def _output(message: Message) -> str | list[Json]:
    if all(isinstance(part, TextPart) for part in message.content):
        return message.text
    return [part_to_wire(part) for part in message.content]


def part_to_wire(part: ContentPart) -> Json:
    """Convert one part of a user message or of a tool's result (W9, W15)."""
    match part:
        case TextPart(value=text):
            return {"type": "input_text", "text": text}
        case ImagePart():
            found = encoded(part)
            url = data_uri(found) if found else part.value
            return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}
        case AudioPart():
            raise RequestError("the Responses API takes no audio", "Use `apiType: chat`.")
        case FilePart():
            return {"type": "input_file", **_file(part)}


def _file(part: FilePart) -> Json:
    if is_url(part.value):
        return {"file_url": part.value}
    if (found := encoded(part)) is None:
        return {"file_id": part.value}
    return {"filename": part.name or "file", "file_data": data_uri(found)}


def reply(payload: Json) -> Reply:
    """Read a whole answer (§8.4)."""
    data = cast(Item, payload)
    if data.get("error") or data.get("status") in _NO_ANSWER:
        cause, retryable = _failure(data)
        raise ResponseFailed(cause, retryable=retryable)
    if "output" not in data and "output_text" not in data:
        raise EmptyReply("the provider answered without output", retryable=True)
    return _read(data)


def _failure(data: Item) -> tuple[str, bool]:
    """What went wrong, and whether it may pass."""
    error = data.get("error")
    if isinstance(error, dict):
        cause = error.get("message") or error.get("code") or "no reason was given"
        return str(cause), error.get("code") in _PASSING
    return str(error or f"the provider answered with the status '{data.get('status')}'"), True


def _read(data: Item) -> Reply:
    output: list[Item] = data.get("output") or []
    kept = _finished(output, incomplete=data.get("status") == "incomplete")
    calls = tuple(_call(item) for item in _of_type(kept, "function_call"))
    messages = [part for item in _of_type(output, "message") for part in item.get("content") or []]
    text = "".join(part.get("text") or "" for part in _of_type(messages, "output_text"))
    reasoning = _of_type(output, "reasoning")
    # OpenAI gives a summary of the thoughts; servers of open models give the thoughts themselves.
    thoughts = [part for item in reasoning for key in ("summary", "content") for part in item.get(key) or []]
    return Reply(
        text=text if output else data.get("output_text") or "",
        tool_calls=calls,
        reasoning=_BLANK_LINE.join(filter(None, (part.get("text") for part in thoughts))),
        refusal="".join(part.get("refusal") or "" for part in messages) or None,
        finish_reason=_finish_reason(data, calls, cut_off=len(kept) < len(output)),
        usage=_usage(data.get("usage")),
        id=data.get("id"),
        model=data.get("model"),
        opaque={"responses_items": kept} if calls else {},
    )


def _of_type(items: list[Item], kind: str) -> list[Item]:
    return [item for item in items if item.get("type") == kind]


def _finished(output: list[Item], *, incomplete: bool) -> list[Item]:
    """The items that may go back: no call that was cut off (P3), and no thoughts that led only to one; the API
    refuses reasoning without the item that followed it."""
    fine = ("completed",) if incomplete else ("completed", None)
    kept = [item for item in output if item.get("type") != "function_call" or item.get("status") in fine]
    while len(kept) < len(output) and kept and kept[-1].get("type") == "reasoning":
        kept.pop()
    return kept


def _call(item: Item) -> ToolCall:
    identifier = item.get("call_id") or item.get("id") or ""
    return ToolCall(id=identifier, name=item.get("name") or "", arguments=item.get("arguments") or "{}")


def _finish_reason(data: Item, calls: Sequence[ToolCall], *, cut_off: bool) -> str:
    reason: str | None = (data.get("incomplete_details") or {}).get("reason")
    if reason and reason != "max_output_tokens":
        return reason
    if reason or cut_off or data.get("status") == "incomplete":
        return "length"
    return "tool_calls" if calls else "stop"


def _usage(usage: Item | None) -> Usage:
    if not usage:
        return Usage()
    given = usage.get("input_tokens_details") or {}
    made = usage.get("output_tokens_details") or {}
    return Usage(
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=given.get("cached_tokens"),
        cache_write_tokens=given.get("cache_write_tokens"),
        reasoning_tokens=made.get("reasoning_tokens"),
    )


class ResponsesDecoder:
    """Puts a streamed answer together (§8.6). The last event holds the whole of it; where a server leaves the output
    out there, and where the stream is cut, it is put together from what came before."""

    def __init__(self) -> None:
        self._done: list[Item] = []
        self._pieces: dict[str, list[str]] = {"message": [], "reasoning": []}
        self._thought: list[object] | None = None
        self._calls = CallAssembler()
        self._refusal: list[str] = []
        self._response: Item = {}
        self._ended = False

    def feed(self, event: Json, /) -> list[Delta]:
        data = cast(Item, event)
        self._response |= data.get("response") or {}
        match data.get("type") or ("error" if data.get("error") else None):
            case "response.completed" | "response.incomplete" as kind:
                self._response["status"] = kind.removeprefix("response.")
                self._ended = True
            case "response.failed" | "error":
                cause, retryable = _failure(data.get("response") or (data if data.get("error") else {"error": data}))
                raise self._cut(f"the provider broke the stream off: {cause}", retryable=retryable)
            case "response.refusal.delta":
                self._refusal.append(data.get("delta") or "")
            case "response.refusal.done":
                raise Refused(data.get("refusal") or "".join(self._refusal))
            case kind:
                return list(self._item_event(kind, data))
        return []

    def _item_event(self, kind: str | None, data: Item) -> Iterator[Delta]:
        index, item, more = data.get("output_index"), data.get("item") or {}, data.get("delta")
        match kind:
            case "response.output_item.added" if item.get("type") == "function_call":
                yield self._calls.add(index, _call(item).id, item.get("name"), item.get("arguments"))
            case "response.output_item.done":
                self._done.append(item)
                self._pieces.get(item.get("type", ""), []).clear()
            case "response.function_call_arguments.delta" if more:
                yield self._calls.add(index, None, None, more)
            case "response.output_text.delta" if more:
                self._pieces["message"].append(more)
                yield TextDelta(more)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" if more:
                yield self._think(data, more)

    def _think(self, data: Item, text: str) -> ReasoningDelta:
        """Thoughts come in parts, with a blank line between them as in the whole reply."""
        part = [data.get(name) for name in ("type", "output_index", "summary_index", "content_index")]
        gap = _BLANK_LINE if self._thought not in (None, part) else ""
        self._thought, pieces = part, self._pieces["reasoning"]
        pieces.append(gap + text if pieces else text)
        return ReasoningDelta(gap + text)

    def _whole(self) -> Item:
        return {**self._response, "output": self._response.get("output") or [*self._done, *self._unfinished()]}

    def _unfinished(self) -> Iterator[Item]:
        """What was being written. Of a call no more than that there was one: it counts when its item is done (P3)."""
        if thoughts := "".join(self._pieces["reasoning"]):
            yield {"type": "reasoning", "summary": [{"type": "summary_text", "text": thoughts}]}
        if text := "".join(self._pieces["message"]):
            yield {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        for _ in range(len(self._calls.calls()) - len(_of_type(self._done, "function_call"))):
            yield {"type": "function_call", "status": "in_progress"}

    def _cut(self, cause: str, *, retryable: bool = True) -> StreamCut:
        return StreamCut(cause, replace(_read(self._whole()), finish_reason=None), retryable=retryable)

    def finish(self) -> Reply:
        if self._refusal:
            raise Refused("".join(self._refusal))
        if not self._ended:
            raise self._cut("the stream ended before the answer was complete")
        found = reply(self._whole())
        if found.refusal:
            raise Refused(found.refusal)
        return found


def stream_body(body: Json) -> Json:
    """Ask for a stream; its last event has the usage (P5)."""
    return {**body, "stream": True}


API = Api(
    path="/responses",
    request=request,
    reply=reply,
    tool_messages=turn_messages,
    decoder=ResponsesDecoder,
    stream_body=stream_body,
    options=RESPONSES,
    call_ids=re.compile(r"[A-Za-z0-9_-]{1,64}"),
)
