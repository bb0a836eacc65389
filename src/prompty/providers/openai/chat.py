"""OpenAI Chat Completions: the wire format (§7.1, §8.1, §8.6).

Four pure functions between our `Message`/`Reply` and the JSON the API speaks. Every server that calls itself
OpenAI-compatible speaks it.
"""

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import chain
from typing import Any, cast

from prompty.errors import ModelError, Refused, RequestError, StreamCut
from prompty.model.agent import PromptAgent
from prompty.model.content import AudioPart, ContentPart, FilePart, ImagePart, TextPart
from prompty.model.event import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from prompty.model.message import Json, Message, ToolCall, Usage
from prompty.model.reply import Reply
from prompty.model.request import Function
from prompty.providers import Api, turn_messages
from prompty.wire.media import data_uri, encoded, is_url, only_text
from prompty.wire.options import CHAT, wire_options
from prompty.wire.reasoning import reasoning_field, reasoning_to_wire
from prompty.wire.stream import CallAssembler
from prompty.wire.structured import SCHEMA_NAME, output_schema

# An answer that ends so may have been cut in the middle of a call.
_CUT = ("length", "content_filter")
_GROWING = {"reasoning.text": "text", "reasoning.summary": "summary"}
_SAME_BLOCK = ("type", "index")
_LONGEST_ID = 40
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


def request(agent: PromptAgent, messages: Sequence[Message], functions: Sequence[Function]) -> Json:
    """The body of a chat request (§7.1.7)."""
    model = agent.model
    told = _messages(messages, reasoning=reasoning_field(agent) if any(map(_has_tools, messages)) else None)
    body: Json = {**wire_options(model.options, CHAT), "model": model.id, "messages": told}
    if functions:
        body["tools"] = [function_to_wire(function) for function in functions]
        if model.options.allow_multiple_tool_calls is not None:
            body["parallel_tool_calls"] = model.options.allow_multiple_tool_calls
    schema = output_schema(agent) if agent.outputs else None
    if schema:
        format_ = {"name": SCHEMA_NAME, "strict": True, "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": format_}
    return body


def function_to_wire(function: Function) -> Json:
    """A function definition (§7.1.3)."""
    definition: Json = {"name": function.name, "parameters": function.parameters}
    if function.description:
        definition["description"] = function.description
    if function.strict:
        definition["strict"] = True
    return {"type": "function", "function": definition}


def _has_tools(message: Message) -> bool:
    return bool(message.tool_calls) or message.role == "tool"


def _messages(messages: Sequence[Message], *, reasoning: str | None) -> list[Json]:
    """Convert a conversation. Media in tool results follow their batch in one user message (W15)."""
    wire: list[Json] = []
    carried: list[ContentPart] = []
    for message in messages:
        if carried and message.role != "tool":
            wire.append({"role": "user", "content": [part_to_wire(part) for part in carried]})
            carried = []
        if message.role == "tool":
            carried += [part for part in message.content if not isinstance(part, TextPart)]
        wire.append(message_to_wire(message, reasoning=reasoning))
    if carried:
        wire.append({"role": "user", "content": [part_to_wire(part) for part in carried]})
    return wire


def message_to_wire(message: Message, *, reasoning: str | None = None) -> Json:
    """Convert one message (§7.1.1): a lone text part becomes a plain string. `reasoning` is the field in which the
    server takes reasoning back; a server without one gets short call ids and nothing beside the calls."""
    wire: Json = {"role": message.role}
    if message.role == "tool":
        if message.tool_call_id:
            wire["tool_call_id"] = _shorten(message.tool_call_id) if reasoning is None else message.tool_call_id
    elif message.name:
        wire["name"] = message.name
    if message.role == "assistant" and message.tool_calls:
        if reasoning is None:
            wire["tool_calls"] = [_plain_call(call) for call in message.tool_calls]
        else:
            wire["tool_calls"] = [call.to_wire() for call in message.tool_calls]
            wire |= reasoning_to_wire(message, reasoning)
    parts = _sendable_parts(message)
    if len(parts) == 1 and isinstance(part := parts[0], TextPart):
        wire["content"] = part.value
    else:
        wire["content"] = [part_to_wire(part) for part in parts] or ""
    return wire


def _plain_call(call: ToolCall) -> Json:
    return {
        "id": _shorten(call.id),
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _shorten(call_id: str) -> str:
    """Shorten an id that OpenAI would refuse. Other servers put data into their ids, and want it back whole."""
    if len(call_id) <= _LONGEST_ID:
        return call_id
    return f"{call_id[:23]}_{sha256(call_id.encode()).hexdigest()[:16]}"


def _sendable_parts(message: Message) -> Sequence[ContentPart]:
    """Return all parts of a user message, and the text of any other. Media of a tool's result follow it (W15)."""
    if message.role == "tool":
        return [part for part in message.content if isinstance(part, TextPart)]
    if message.role != "user" and not all(isinstance(part, TextPart) for part in message.content):
        only_text(message)
    return message.content


def part_to_wire(part: ContentPart) -> Json:
    """Convert one part of a user message (§7.1.2)."""
    match part:
        case TextPart(value=text):
            return {"type": "text", "text": text}
        case ImagePart():
            found = encoded(part)
            image = {"url": data_uri(found) if found else part.value}
            return {"type": "image_url", "image_url": {**image, "detail": part.detail} if part.detail else image}
        case AudioPart():
            return {"type": "input_audio", "input_audio": _audio(part)}
        case FilePart():
            return {"type": "file", "file": _file(part)}


def _audio(part: AudioPart) -> Json:
    found = encoded(part)
    if found is None:
        how = "as a URL" if is_url(part.value) else "without a media type"
        raise RequestError(
            f"audio is given {how}, which this API does not take", "Pass a data URI, or base64 with a media type."
        )
    kind = found.media_type.lower()
    return {"data": found.data, "format": _AUDIO_FORMATS.get(kind, kind.removeprefix("audio/"))}


def _file(part: FilePart) -> Json:
    if is_url(part.value):
        raise RequestError(
            "a file is given as a URL, which this API does not take",
            "Pass a data URI, base64 or a file id, or use `apiType: responses`.",
        )
    found = encoded(part)
    if found is None:
        return {"file_id": part.value}
    return {"filename": part.name or "file", "file_data": data_uri(found)}


def reply(payload: Json) -> Reply:
    """Read a whole answer (§8.1)."""
    data = cast(dict[str, Any], payload)
    choices = data.get("choices") or []
    if not choices:
        raise ModelError(_error_in(data) or "the provider answered without a choice", retryable=True)
    message = choices[0].get("message") or {}
    finish_reason = choices[0].get("finish_reason")
    entries = message.get("tool_calls")
    return Reply(
        text=_text(message.get("content")),
        tool_calls=_calls(entries, cut=finish_reason in _CUT) if entries else (),
        reasoning=message.get("reasoning_content") or message.get("reasoning") or "",
        refusal=message.get("refusal"),
        finish_reason=finish_reason,
        usage=_usage(data.get("usage")),
        id=data.get("id"),
        model=data.get("model"),
        opaque=_details(message.get("reasoning_details")),
    )


def _calls(entries: list[dict[str, Any]], *, cut: bool) -> tuple[ToolCall, ...]:
    calls = CallAssembler()
    for position, entry in enumerate(entries):
        _add_call(calls, position, entry)
    return calls.calls(cut=cut)


def _error_in(data: dict[str, Any]) -> str | None:
    error = data.get("error")
    return str(error.get("message") if isinstance(error, dict) else error) if error else None


def _text(content: object) -> str:
    """Content is text, or with some servers a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _add_call(calls: CallAssembler, index: int | None, entry: dict[str, Any]) -> ToolCallDelta:
    """A call, or a piece of one. Some servers write the arguments as an object; here they are text (§8.7)."""
    function = entry.get("function") or {}
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    delta = calls.add(index, entry.get("id"), function.get("name"), arguments)
    calls.keep(delta.index, entry.get("extra_content"))
    return delta


def _details(details: object) -> Json:
    return {"reasoning_details": details} if details else {}


def _usage(usage: dict[str, Any] | None) -> Usage:
    if not usage:
        return Usage()
    prompt = usage.get("prompt_tokens_details") or {}
    completion = usage.get("completion_tokens_details") or {}
    return Usage(
        input_tokens=usage.get("prompt_tokens"),
        output_tokens=usage.get("completion_tokens"),
        cache_read_tokens=prompt.get("cached_tokens"),
        reasoning_tokens=completion.get("reasoning_tokens"),
    )


class ChatDecoder:
    """Puts a streamed answer together (§8.6)."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._details: list[Json] = []
        self._calls = CallAssembler()
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] | None = None
        self._id: str | None = None
        self._model: str | None = None

    def feed(self, event: Json, /) -> list[Delta]:
        data = cast(dict[str, Any], event)
        if data.get("error"):
            raise StreamCut(f"the provider broke the stream off: {_error_in(data)}", self._reply())
        self._id = self._id or data.get("id")
        self._model = self._model or data.get("model")
        self._usage = data.get("usage") or self._usage
        first = (choice for choice in data.get("choices") or [] if not choice.get("index"))
        return list(chain.from_iterable(map(self._choice, first)))

    def _choice(self, choice: dict[str, Any]) -> Iterator[Delta]:
        delta = choice.get("delta") or {}
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        if text := _text(delta.get("content")):
            self._text.append(text)
            yield TextDelta(text)
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            self._reasoning.append(thought)
            yield ReasoningDelta(thought)
        for piece in delta.get("reasoning_details") or []:
            _add_detail(self._details, piece)
        for call in delta.get("tool_calls") or []:
            yield _add_call(self._calls, call.get("index"), call)
        self._refusal.append(delta.get("refusal") or "")

    def _reply(self) -> Reply:
        return Reply(
            text="".join(self._text),
            tool_calls=self._calls.calls(cut=self._finish_reason in _CUT),
            reasoning="".join(self._reasoning),
            finish_reason=self._finish_reason,
            usage=_usage(self._usage),
            id=self._id,
            model=self._model,
            opaque=_details(self._details),
        )

    def finish(self) -> Reply:
        if refusal := "".join(self._refusal):
            raise Refused(refusal)
        if self._finish_reason is None:
            raise StreamCut("the stream ended before the answer was complete", self._reply())
        return self._reply()


def _add_detail(details: list[Json], piece: Json) -> None:
    """Put a piece of structured reasoning to its block. A signature covers the text of a whole block: sent back in
    pieces, it is refused."""
    last = details[-1] if details else {}
    grows = _GROWING.get(str(piece.get("type")))
    if grows is None or piece.get("index") is None or any(last.get(name) != piece.get(name) for name in _SAME_BLOCK):
        details.append(dict(piece))
        return
    text = f"{last.get(grows) or ''}{piece.get(grows) or ''}"
    last |= {name: value for name, value in piece.items() if value is not None} | {grows: text}


def stream_body(body: Json) -> Json:
    """Ask for a stream, and for its usage at the end (P5)."""
    asked = cast(Json, body.get("stream_options") or {})
    return {**body, "stream": True, "stream_options": {**asked, "include_usage": True}}


API = Api(
    path="/chat/completions",
    request=request,
    reply=reply,
    tool_messages=turn_messages,
    decoder=ChatDecoder,
    stream_body=stream_body,
    options=CHAT,
)
