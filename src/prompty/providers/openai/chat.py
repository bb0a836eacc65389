"""OpenAI Chat Completions: the wire format (§7.1, §8.1, §8.6), also of every OpenAI-compatible server.

Pure functions between `Message` and `Reply` and the JSON of the API. Used by `pipeline.request` and `drivers`.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any, cast

from prompty.errors import ModelError, Refused, RequestError, StreamCut
from prompty.model.content import AudioPart, ContentPart, FilePart, ImagePart, TextPart
from prompty.model.delta import CitationAdded, Delta, ReasoningDelta, TextDelta, ToolCallDelta
from prompty.model.message import Json, Message, Reply, ToolCall, Usage
from prompty.model.request import Function
from prompty.providers import Api, RequestBase
from prompty.providers.citations import parse_annotations
from prompty.providers.profiles import OPENAI, Profile
from prompty.wire.json_bytes import as_count, as_mapping, as_text
from prompty.wire.request import (
    get_inline_data,
    is_url,
    map_options,
    merge_tools,
    refuse_one_of,
    require_text,
    to_data_uri,
)
from prompty.wire.stream import CallAssembler
from prompty.wire.structured import SCHEMA_NAME

OPTIONS = {
    "temperature": "temperature",
    "max_output_tokens": "max_completion_tokens",
    "top_p": "top_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "stop_sequences": "stop",
    "reasoning_effort": "reasoning_effort",
}
# OpenAI refuses these characters in a participant's name, and longer names.
_NOT_IN_NAMES = re.compile(r"[\s<|\\/>]+")
_MAX_NAME_LENGTH = 64
# An answer with one of these finish reasons may be truncated in the middle of a call.
_TRUNCATED = ("length", "content_filter")
_REASONING_CHOICES = {"reasoning": "reasoning", "reasoning_content": "reasoning_content", "none": None}
# Types of reasoning blocks that arrive in pieces → the field that grows.
_GROWING_FIELDS = {"reasoning.text": "text", "reasoning.summary": "summary"}
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


def request(
    base: RequestBase, messages: Sequence[Message], functions: Sequence[Function], profile: Profile = OPENAI
) -> Json:
    """Return the body of a chat request, in the form that the server of this profile takes."""
    options = base.options
    refuse_one_of(base.refusal)
    body: Json = {**map_options(options, _list_options(profile)), "model": base.model}
    body["messages"] = _messages_to_wire(messages, _choose_reasoning(profile, base.reasoning))
    body.pop("tools", None)
    if tools := merge_tools(options, functions, function_to_wire):
        body["tools"] = tools
        if options.allow_multiple_tool_calls is not None and "parallel_tool_calls" not in profile.unsupported:
            body["parallel_tool_calls"] = options.allow_multiple_tool_calls
    if output := base.output:
        format_ = {"name": SCHEMA_NAME, "strict": output.strict, "schema": output.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": format_}
    return body


def function_to_wire(function: Function) -> Json:
    """Return a function definition (§7.1.3)."""
    definition: Json = {"name": function.name, "parameters": function.parameters}
    if function.description:
        definition["description"] = function.description
    if function.strict:
        definition["strict"] = True
    return {"type": "function", "function": definition}


def _list_options(profile: Profile) -> dict[str, str]:
    """Return the options that a server has, under its names."""
    names = {"max_completion_tokens": profile.token_field, "seed": profile.seed_field}
    return {name: names.get(wire, wire) for name, wire in OPTIONS.items() if wire not in profile.unsupported}


def _choose_reasoning(profile: Profile, chosen: str | None) -> Profile:
    """Return the profile with the file's own choice of a field for reasoning: `metadata: {reasoning: reasoning}`,
    `reasoning_content` or `none`."""
    if chosen is None or chosen not in _REASONING_CHOICES:
        return profile
    field = _REASONING_CHOICES[chosen]
    if field is None:
        return replace(profile, reasoning=None, extras=False, longest_id=OPENAI.longest_id)
    return replace(profile, reasoning=field, extras=True, longest_id=None, id_length=None)


def _messages_to_wire(messages: Sequence[Message], profile: Profile) -> list[Json]:
    """Convert a conversation. Media in tool results follow their batch in one user message."""
    wire: list[Json] = []
    media: list[ContentPart] = []
    for message in messages:
        if media and message.role != "tool":
            wire.append({"role": "user", "content": [part_to_wire(part) for part in media]})
            media = []
        if message.role == "tool":
            media += [part for part in message.content if not isinstance(part, TextPart)]
        wire.append(write_message(message, profile))
    if media:
        wire.append({"role": "user", "content": [part_to_wire(part) for part in media]})
    return wire


def write_message(message: Message, profile: Profile = OPENAI) -> Json:
    """Convert one message (§7.1.1): a lone text part becomes a plain string.

    Reasoning is sent with calls only: servers of thinking models refuse such a turn without it, and ignore it in any
    other.
    """
    wire: Json = {"role": _choose_role(message.role, profile)}
    if message.role == "tool":
        if message.tool_call_id:
            wire["tool_call_id"] = _fit_id(message.tool_call_id, profile)
    elif message.name and "messages.name" not in profile.unsupported:
        wire["name"] = _NOT_IN_NAMES.sub("_", message.name)[:_MAX_NAME_LENGTH]
    if message.role == "assistant" and message.tool_calls:
        wire["tool_calls"] = [_call_to_wire(call, profile) for call in message.tool_calls]
        if profile.reasoning is not None:
            if details := message.opaque.get("reasoning_details"):
                wire["reasoning_details"] = details  # signed, so exactly as it came
            elif message.reasoning:
                wire[profile.reasoning] = message.reasoning
    parts = _sendable_parts(message)
    if len(parts) == 1 and isinstance(part := parts[0], TextPart) and part.extra is None:
        wire["content"] = part.value
    else:
        wire["content"] = [part_to_wire(part) for part in parts] or ""
    return wire


def _choose_role(role: str, profile: Profile) -> str:
    return "system" if role == "developer" and not profile.developer_role else role


def _call_to_wire(call: ToolCall, profile: Profile) -> Json:
    function = {"name": call.name, "arguments": call.arguments}
    wire: Json = {"id": _fit_id(call.id, profile), "type": "function", "function": function}
    is_sent = call.extra and profile.extras and not call.asks_approval
    return {**wire, "extra_content": call.extra} if is_sent else wire


def _fit_id(call_id: str, profile: Profile) -> str:
    """Change an id that the server would refuse. Other servers put data into their ids, and want it back whole."""
    if profile.id_length is not None:
        if len(call_id) == profile.id_length and call_id.isascii() and call_id.isalnum():
            return call_id
        return sha256(call_id.encode()).hexdigest()[: profile.id_length]
    if profile.longest_id is None or len(call_id) <= profile.longest_id:
        return call_id
    return f"{call_id[: profile.longest_id - 17]}_{sha256(call_id.encode()).hexdigest()[:16]}"


def _sendable_parts(message: Message) -> Sequence[ContentPart]:
    """Return all parts of a user message, and the text of any other. Media of a tool's result follow it."""
    if message.role == "tool":
        return [part for part in message.content if isinstance(part, TextPart)]
    if message.role != "user" and not all(isinstance(part, TextPart) for part in message.content):
        return [TextPart(text)] if (text := require_text(message)) else []
    return message.content


def part_to_wire(part: ContentPart) -> Json:
    """Convert one part of a message (§7.1.2). Keys that are not ours cross as they are (001)."""
    return _part_to_wire(part) if part.extra is None else {**part.extra, **_part_to_wire(part)}


def _part_to_wire(part: ContentPart) -> Json:
    match part:
        case TextPart(value=text):
            return {"type": "text", "text": text}
        case ImagePart():
            data = get_inline_data(part)
            image = {"url": to_data_uri(data) if data else part.value}
            return {"type": "image_url", "image_url": {**image, "detail": part.detail} if part.detail else image}
        case AudioPart():
            return {"type": "input_audio", "input_audio": _audio(part)}
        case FilePart():
            return {"type": "file", "file": _file(part)}


def _audio(part: AudioPart) -> Json:
    inline = get_inline_data(part)
    if inline is None:
        form = "as a URL" if is_url(part.value) else "without a media type"
        raise RequestError(
            f"audio is given {form}, which this API does not take", "Pass a data URI, or base64 with a media type."
        )
    kind = inline.media_type.lower()
    return {"data": inline.data, "format": _AUDIO_FORMATS.get(kind, kind.removeprefix("audio/"))}


def _file(part: FilePart) -> Json:
    if is_url(part.value):
        raise RequestError(
            "a file is given as a URL, which this API does not take",
            "Pass a data URI, base64 or a file id, or use `apiType: responses`.",
        )
    inline = get_inline_data(part)
    if inline is None:
        return {"file_id": part.value}
    return {"filename": part.name or "file", "file_data": to_data_uri(inline)}


def reply(payload: Json) -> Reply:
    """Parse a whole answer (§8.1)."""
    data = cast(dict[str, Any], payload)
    choices = data.get("choices") or []
    if not choices:
        raise ModelError(_get_error(data) or "the provider answered without a choice", retryable=True)
    message = choices[0].get("message") or {}
    finish_reason = choices[0].get("finish_reason")
    entries = message.get("tool_calls")
    parsed = Reply(
        text=_parse_text(message.get("content")),
        tool_calls=_parse_calls(entries, truncated=finish_reason in _TRUNCATED) if entries else (),
        reasoning=_get_reasoning(message),
        refusal=message.get("refusal") or None,
        finish_reason=finish_reason,
        usage=_parse_usage(data.get("usage")),
        id=as_text(data.get("id")) or None,
        model=as_text(data.get("model")) or None,
        opaque={"reasoning_details": details} if (details := message.get("reasoning_details")) else {},
    )
    return _add_citations(parsed, annotations) if (annotations := message.get("annotations")) else parsed


def _add_citations(reply: Reply, annotations: object) -> Reply:
    """Add the citations of a reply. The API does not report how often it searched for them."""
    citations = parse_annotations(annotations, len(reply.text))
    searched = {"web_search": None} if any(citation.kind == "web" for citation in citations) else {}
    return replace(reply, citations=tuple(citations), usage=replace(reply.usage, requests=searched))


def _get_reasoning(message: dict[str, Any]) -> str:
    """Return the reasoning of a message or a delta, which servers call by two names."""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    return reasoning if isinstance(reasoning, str) else ""


def _parse_calls(entries: list[dict[str, Any]], *, truncated: bool) -> tuple[ToolCall, ...]:
    calls = CallAssembler()
    for position, entry in enumerate(entries):
        _add_call(calls, position, entry)
    return calls.calls(truncated=truncated)


def _get_error(data: dict[str, Any]) -> str | None:
    error = data.get("error")
    return str(error.get("message") if isinstance(error, dict) else error) if error else None


def _parse_text(content: object) -> str:
    """Return content as text; some servers send a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _add_call(calls: CallAssembler, index: int | None, entry: dict[str, Any]) -> ToolCallDelta:
    """Add a call or a piece of one. Some servers write the arguments as an object; here they are text (§8.7)."""
    function = entry.get("function") or {}
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    delta = calls.add(index, entry.get("id"), function.get("name"), arguments)
    calls.add_extra(delta.index, entry.get("extra_content"))
    return delta


def _parse_usage(usage: object) -> Usage:
    if not usage:
        return Usage()
    counts = as_mapping(usage)
    input_details = as_mapping(counts.get("prompt_tokens_details"))
    return Usage(
        input_tokens=as_count(counts.get("prompt_tokens")),
        output_tokens=as_count(counts.get("completion_tokens")),
        cache_read_tokens=as_count(input_details.get("cached_tokens", counts.get("prompt_cache_hit_tokens"))),
        cache_write_tokens=as_count(input_details.get("cache_write_tokens")),
        reasoning_tokens=as_count(as_mapping(counts.get("completion_tokens_details")).get("reasoning_tokens")),
    )


class ChatDecoder:
    """Assembles a streamed answer (§8.6)."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._annotations: list[object] = []
        self._details = _ReasoningDetails()
        self._calls = CallAssembler()
        self._finish_reason: str | None = None
        self._usage: object = None
        self._id: str | None = None
        self._model: str | None = None

    def feed(self, event: Json, /) -> list[Delta]:
        data = cast(dict[str, Any], event)
        if data.get("error"):
            raise StreamCut(f"the provider broke the stream off: {_get_error(data)}", self._reply())
        self._id = self._id or as_text(data.get("id")) or None
        self._model = self._model or as_text(data.get("model")) or None
        self._usage = data.get("usage") or self._usage
        deltas: list[Delta] = []
        for choice in data.get("choices") or []:
            if not choice.get("index"):
                self._feed_choice(choice, deltas)
        return deltas

    def _feed_choice(self, choice: dict[str, Any], deltas: list[Delta]) -> None:
        delta = choice.get("delta") or {}
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        if text := _parse_text(delta.get("content")):
            self._text.append(text)
            deltas.append(TextDelta(text))
        if reasoning := _get_reasoning(delta):
            self._reasoning.append(reasoning)
            deltas.append(ReasoningDelta(reasoning))
        for piece in delta.get("reasoning_details") or []:
            self._details.add(piece)
        for call in delta.get("tool_calls") or []:
            deltas.append(_add_call(self._calls, call.get("index"), call))
        if refusal := delta.get("refusal"):
            self._refusal.append(refusal)
        if isinstance(annotations := delta.get("annotations"), list):
            self._annotations += annotations
            deltas += [CitationAdded(citation) for citation in parse_annotations(annotations, None)]

    def _reply(self) -> Reply:
        details = self._details.list_blocks()
        parsed = Reply(
            text="".join(self._text),
            tool_calls=self._calls.calls(truncated=self._finish_reason in _TRUNCATED),
            reasoning="".join(self._reasoning),
            finish_reason=self._finish_reason,
            usage=_parse_usage(self._usage),
            id=self._id,
            model=self._model,
            opaque={"reasoning_details": details} if details else {},
        )
        return _add_citations(parsed, self._annotations) if self._annotations else parsed

    def finish(self) -> Reply:
        if refusal := "".join(self._refusal):
            raise Refused(refusal, self._reply())
        if self._finish_reason is None:
            raise StreamCut("the stream ended before the answer was complete", self._reply())
        return self._reply()


class _ReasoningDetails:
    """Assembles structured reasoning. A signature covers the text of a whole block: sent back in pieces, it is
    refused."""

    def __init__(self) -> None:
        self._blocks: list[Json] = []
        self._texts: list[list[str]] = []  # of each block, in pieces

    def add(self, piece: Json) -> None:
        name = _GROWING_FIELDS.get(str(piece.get("type")))
        text = str(piece.get(name) or "") if name else ""
        last = self._blocks[-1] if self._blocks else {}
        same_block = piece.get("index") is not None and all(
            last.get(key) == piece.get(key) for key in ("type", "index")
        )
        if name is None or not same_block:
            self._blocks.append(dict(piece))
            self._texts.append([text])
            return
        self._texts[-1].append(text)
        last |= {key: value for key, value in piece.items() if value is not None and key != name}

    def list_blocks(self) -> list[Json]:
        return [
            {**block, _GROWING_FIELDS[str(block["type"])]: "".join(texts)} if len(texts) > 1 else block
            for block, texts in zip(self._blocks, self._texts, strict=True)
        ]


def stream_body(body: Json) -> Json:
    """Request a stream, with its usage at the end."""
    options = cast(Json, body.get("stream_options") or {})
    return {**body, "stream": True, "stream_options": {**options, "include_usage": True}}


def plain_stream_body(body: Json) -> Json:
    """Request a stream of a server that refuses `stream_options`."""
    return {**{name: value for name, value in body.items() if name != "stream_options"}, "stream": True}


def adapt(api: Api, profile: Profile) -> Api:
    """Return this API as the server of a profile takes it. Requests that a host writes itself stay as they are."""
    if profile is OPENAI or api.request is not request:
        return api
    return replace(
        api,
        request=partial(request, profile=profile),
        stream_body=stream_body if profile.stream_options else plain_stream_body,
        options=_list_options(profile),
    )


API = Api(
    path="/chat/completions",
    name="chat",
    request=request,
    reply=reply,
    decoder=ChatDecoder,
    stream_body=stream_body,
    options=OPTIONS,
    adapt=adapt,
)
