"""Anthropic Messages: the wire format (§7.5, §8.5, §8.6).

Four pure functions between our `Message`/`Reply` and the JSON the API speaks. The decoder puts the events of a
stream together into the payload they stand for and reads that with `reply`, so both ways end in the same `Reply`.
"""

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

from prompty.errors import ModelError, Refused, RequestError, StreamCut
from prompty.model.agent import PromptAgent
from prompty.model.content import AudioPart, ContentPart, FilePart, ImagePart, TextPart
from prompty.model.event import Delta, ReasoningDelta, TextDelta
from prompty.model.message import Json, Message, ToolCall, Usage
from prompty.model.reply import Reply
from prompty.model.request import Function
from prompty.providers import Api, turn_messages
from prompty.safety.json import read_json
from prompty.wire.json_bytes import INVALID_JSON
from prompty.wire.media import encoded, is_url, only_text
from prompty.wire.options import MESSAGES, wire_options
from prompty.wire.stream import CallAssembler
from prompty.wire.structured import output_schema

Block = dict[str, Any]

DEFAULT_MAX_TOKENS = 4096
BLOCKS = "anthropic_blocks"
# Later versions of the API answer 400 to these (W11).
_SAMPLING = frozenset({"temperature", "top_p", "top_k"})
_SAMPLING_VERSION = {"anthropic-version": "2023-06-01"}
_INSTRUCTIONS = ("system", "developer")
_TAKEN = {"image": ("image/jpeg", "image/png", "image/gif", "image/webp"), "file": ("application/pdf", "text/plain")}
# `input` must be an object: what the model wrote instead travels under the name that Anthropic's guide gives it.
_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
# The answer ended wherever the model was, which may be the middle of a call.
_CUT = ("max_tokens", "model_context_window_exceeded")
_PASSING = ("overloaded_error", "rate_limit_error", "api_error", "timeout_error")


def request(agent: PromptAgent, messages: Sequence[Message], functions: Sequence[Function]) -> Json:
    """The body of a request (§7.5)."""
    options = agent.model.options
    given = options.additional_properties or {}
    body: Json = {"max_tokens": DEFAULT_MAX_TOKENS, **wire_options(options, MESSAGES)}
    body |= {"model": agent.model.id, "messages": _turns(messages)}
    instructions = [only_text(message) for message in messages if message.role in _INSTRUCTIONS]
    if system := "\n\n".join(text for text in instructions if text.strip()):
        body["system"] = system
    if functions:
        body["tools"] = [function_to_wire(function) for function in functions]
        if options.allow_multiple_tool_calls is False:
            choice = given.get("tool_choice") or {"type": "auto"}
            body["tool_choice"] = {**choice, "disable_parallel_tool_use": True}
    if schema := output_schema(agent):
        config = given.get("output_config") or {}
        body["output_config"] = {**config, "format": {"type": "json_schema", "schema": schema}}
    return body


def headers(agent: PromptAgent) -> Mapping[str, str]:
    """The version of the API that still has sampling options, when the prompt sets one (W11)."""
    return _SAMPLING_VERSION if _SAMPLING & wire_options(agent.model.options, MESSAGES).keys() else {}


def function_to_wire(function: Function) -> Json:
    """A tool definition; one without a description has none."""
    tool: Json = {"name": function.name, "input_schema": function.parameters}
    if function.description:
        tool["description"] = function.description
    if function.strict:
        tool["strict"] = True
    return tool


def _turns(messages: Sequence[Message]) -> list[Json]:
    """A conversation as alternating turns of blocks, the first of them the user's, results before anything else."""
    spoken = [message for message in messages if message.role not in _INSTRUCTIONS]
    said = [(message.role == "assistant", block) for message in spoken for block in message_to_wire(message)]
    if not said or said[0][0]:
        raise RequestError("the conversation begins without a user message", "Begin it with a `user:` message.")
    turns: list[Json] = []
    for is_assistant, group in groupby(said, key=itemgetter(0)):
        blocks = sorted((block for _, block in group), key=lambda block: block["type"] != "tool_result")
        turns.append({"role": "assistant" if is_assistant else "user", "content": blocks})
    return turns


def message_to_wire(message: Message) -> list[Json]:
    """The blocks of one message; the API refuses blank text, so a message may have none."""
    match message.role:
        case "assistant":
            return _original_blocks(message) or _assistant_blocks(message)
        case "tool":
            return [_tool_result(message)]
        case _:
            return _parts(message.content)


def _original_blocks(message: Message) -> list[Json]:
    """The blocks of a tool turn as they came, signatures included; none when its calls are no longer the same."""
    blocks, calls = message.opaque.get(BLOCKS), message.tool_calls
    if not calls or not isinstance(blocks, list) or len(calls) != sum(map(_is_call, blocks)):
        return []
    left = iter(calls)
    # an id that stood twice in the history was changed since (L1), and so was a name that no server takes
    return [_as_called(block, next(left)) if _is_call(block) else block for block in blocks if not _is_blank(block)]


def _as_called(block: Block, call: ToolCall) -> Block:
    return {**block, "id": call.id, "name": call.name}


def _is_call(block: Block) -> bool:
    return block.get("type") == "tool_use"


def _is_blank(block: Block) -> bool:
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


def _assistant_blocks(message: Message) -> list[Json]:
    # a turn that the model is to continue may not end in blanks
    text = only_text(message).rstrip()
    blocks: list[Json] = [{"type": "text", "text": text}] if text else []
    for call in message.tool_calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)})
    return blocks


def _input(arguments: str) -> Json:
    if not arguments.strip():
        return {}
    try:
        found = read_json(arguments)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {INVALID_JSON: arguments}


def _tool_result(message: Message) -> Json:
    """A result: text as it is, or blocks where it holds media. An error must have text, and nothing else."""
    if not message.tool_call_id:
        raise RequestError("a tool message does not say which call it answers", "Give it the call's `tool_call_id`.")
    result: Json = {"type": "tool_result", "tool_use_id": message.tool_call_id}
    if any(not isinstance(part, TextPart) for part in message.content):
        return {**result, "content": _parts(message.content)}
    text = message.text
    if text.strip() or message.is_error:
        result["content"] = text if text.strip() else "The tool failed and said nothing."
    return {**result, "is_error": True} if message.is_error else result


def _parts(parts: Iterable[ContentPart]) -> list[Json]:
    return [block for block in map(part_to_wire, parts) if not _is_blank(block)]


def part_to_wire(part: ContentPart) -> Json:
    """Convert one part of a user message or of a tool's result."""
    match part:
        case TextPart(value=text):
            return {"type": "text", "text": text}
        case ImagePart():
            return {"type": "image", "source": _source(part)}
        case FilePart(name=name):
            document: Json = {"type": "document", "source": _source(part)}
            return {**document, "title": name} if name else document
        case AudioPart():
            raise RequestError("this API takes no audio", "Send what is said as text, or use another provider.")


def _source(part: ImagePart | FilePart) -> Json:
    """Where the data is: at a URL, under the id of an uploaded file, or right here."""
    found = encoded(part)
    if is_url(part.value):
        return {"type": "url", "url": part.value}
    if found is None and isinstance(part, FilePart):
        return {"type": "file", "file_id": part.value}
    media_type, data = found or ("unknown", "")
    media_type = media_type.partition(";")[0].strip().lower().replace("image/jpg", "image/jpeg")
    if media_type not in _TAKEN[part.kind]:
        taken = ", ".join(_TAKEN[part.kind])
        raise RequestError(f"this API takes no {part.kind} of type '{media_type}'", f"Pass one of {taken}.")
    if media_type == "text/plain":
        return {"type": "text", "media_type": media_type, "data": _plain_text(data)}
    return {"type": "base64", "media_type": media_type, "data": data}


def _plain_text(data: str) -> str:
    try:
        return b64decode(data, validate=True).decode()
    except ValueError:
        raise RequestError("a text file is not base64 of UTF-8 text", "Encode it again, or pass it as text.") from None


def reply(payload: Json) -> Reply:
    """Read a whole answer (§8.5)."""
    data = cast(dict[str, Any], payload)
    if not isinstance(data.get("content"), list):
        cause, retryable = _failure(data)
        raise ModelError(cause, retryable=retryable)
    stop_reason = data.get("stop_reason") or ""
    blocks = _whole_blocks(data["content"], stop_reason)
    calls = tuple(_call(block) for block in blocks if _is_call(block))
    text = _joined(blocks, "text")
    # text before a refusal is often the start of an answer, so the explanation comes first
    refusal = (data.get("stop_details") or {}).get("explanation") or text or "The model declined to answer."
    return Reply(
        text=text,
        tool_calls=calls,
        reasoning=_joined(blocks, "thinking"),
        refusal=refusal if stop_reason == "refusal" else None,
        finish_reason=_FINISH_REASONS.get(stop_reason, stop_reason) or None,
        usage=_usage(data.get("usage") or {}),
        id=data.get("id"),
        model=data.get("model"),
        opaque={BLOCKS: blocks} if calls else {},
    )


def _failure(data: dict[str, Any]) -> tuple[str, bool]:
    """What the provider says went wrong, and whether the same call may succeed later."""
    error = data.get("error")
    if not isinstance(error, dict):
        return str(error or "the provider answered without content"), True
    return f"{error.get('type') or 'error'}: {error.get('message')}", error.get("type") in _PASSING


def _whole_blocks(content: list[Any], stop_reason: str) -> list[Block]:
    """The blocks of an answer, without a call that its end may have cut in two, or any call of a refusal (P3)."""
    blocks: list[Block] = [block for block in content if isinstance(block, dict)]
    if stop_reason == "refusal":
        return [block for block in blocks if not _is_call(block)]
    return blocks[:-1] if stop_reason in _CUT and blocks and _is_call(blocks[-1]) else blocks


def _call(block: Block) -> ToolCall:
    """A call; what was not an object (see `_input`) is the text it was, which no tool runs with."""
    given = block.get("input") or {}
    was_text = isinstance(given, dict) and given.keys() == {INVALID_JSON}
    arguments = str(given[INVALID_JSON]) if was_text else _as_json(given)
    return ToolCall(id=block.get("id") or "", name=block.get("name") or "", arguments=arguments)


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:  # a number beyond all floats was read as infinity, which could not be sent back
        raise ModelError("the provider sent a number that is too large", retryable=True) from None


def _joined(blocks: list[Block], kind: str) -> str:
    return "".join(str(block.get(kind) or "") for block in blocks if block.get("type") == kind)


def _usage(usage: dict[str, Any]) -> Usage:
    """The tokens of an answer. This API counts what came from its cache apart; everybody else counts it in."""
    details = usage.get("output_tokens_details") or {}
    given = [usage.get(name) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")]
    return Usage(
        input_tokens=None if given[0] is None else sum(filter(None, given)),
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=usage.get("cache_read_input_tokens"),
        cache_write_tokens=usage.get("cache_creation_input_tokens"),
        reasoning_tokens=details.get("thinking_tokens"),
    )


@dataclass
class _OpenBlock:
    """A block that is being written: how it began, and what came since. Until it is closed, a call is half a call."""

    begun: Block
    is_half_a_call: bool
    written: list[str] = field(default_factory=list)

    def block(self) -> Block:
        """The block as an answer without a stream holds it."""
        written = "".join(self.written)
        kind = self.begun.get("type")
        if kind in ("text", "thinking"):
            return {**self.begun, kind: written}
        return {**self.begun, "input": _input(written)} if written else self.begun


class MessagesDecoder:
    """Puts a streamed answer together (§8.6)."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: list[_OpenBlock] = []
        self._at: dict[int | None, _OpenBlock] = {}
        self._calls = CallAssembler()
        self._stopped = False

    def feed(self, event: Json, /) -> list[Delta]:
        data = cast(dict[str, Any], event)
        match data.get("type"):
            case "message_start":
                self._message = dict(data.get("message") or {})
            case "content_block_start":
                return list(self._begin(data.get("index"), dict(data.get("content_block") or {})))
            case "content_block_delta":
                return list(self._write(data.get("index"), data.get("delta") or {}))
            case "content_block_stop" if data.get("index") in self._at:  # llama.cpp closes what it never began
                self._at[data.get("index")].is_half_a_call = False
            case "message_delta":
                self._end(data)
            case "message_stop":
                self._stopped = True
            case "error":
                cause, retryable = _failure(data)
                raise StreamCut(f"the provider broke the stream off: {cause}", self._partial(), retryable=retryable)
        return []

    def _begin(self, index: int | None, begun: Block) -> Iterator[Delta]:
        block = _OpenBlock(begun, is_half_a_call=_is_call(begun))
        self._blocks.append(block)
        self._at[index] = block
        kind = str(begun.get("type"))
        return self._write(index, {"type": f"{kind}_delta", kind: begun.get(kind)})

    def _write(self, index: int | None, delta: dict[str, Any]) -> Iterator[Delta]:
        """Add to the newest block of an index, also where a server repeats one index or names none."""
        if index not in self._at:
            raise StreamCut("the provider went on with a block that it had not begun", self._partial())
        block = self._at[index]
        begun = block.begun
        match delta:
            case {"type": "text_delta", "text": str(text)} if text:
                block.written.append(text)
                yield TextDelta(text)
            case {"type": "thinking_delta", "thinking": str(text)} if text:
                block.written.append(text)
                yield ReasoningDelta(text)
            case {"type": "input_json_delta", "partial_json": str(text)}:
                block.written.append(text)
                if _is_call(begun):
                    yield self._calls.add(index, begun.get("id"), begun.get("name"), text)
            case {"type": "signature_delta", "signature": signature}:
                begun["signature"] = signature
            case {"type": "citations_delta", "citation": citation}:
                begun["citations"] = [*(begun.get("citations") or []), citation]

    def _end(self, data: dict[str, Any]) -> None:
        """Take over why the answer ended, and its usage: totals, which replace those of the start (P5)."""
        told = {name: value for name, value in (data.get("usage") or {}).items() if value is not None}
        self._message |= data.get("delta") or {}
        self._message["usage"] = {**(self._message.get("usage") or {}), **told}
        if self._message.get("stop_reason") == "refusal":
            raise Refused(self._reply(self._blocks).refusal or "")

    def _reply(self, blocks: list[_OpenBlock]) -> Reply:
        return reply({**self._message, "content": [block.block() for block in blocks]})

    def _partial(self) -> Reply:
        return self._reply([block for block in self._blocks if not block.is_half_a_call])

    def finish(self) -> Reply:
        stop_reason = self._message.get("stop_reason")
        settled = self._blocks[:-1] if stop_reason in _CUT else self._blocks
        if not self._stopped or stop_reason is None or any(block.is_half_a_call for block in settled):
            raise StreamCut("the stream ended before the answer was complete", self._partial())
        return self._reply(self._blocks)


def stream_body(body: Json) -> Json:
    """Ask for a stream; usage comes with it."""
    return {**body, "stream": True}


API = Api(
    path="/v1/messages",
    request=request,
    reply=reply,
    tool_messages=turn_messages,
    decoder=MessagesDecoder,
    stream_body=stream_body,
    headers=headers,
    options=MESSAGES,
    call_ids=re.compile(r"[A-Za-z0-9_-]+"),
)
