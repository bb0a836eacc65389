"""Anthropic Messages: the wire format (§7.5, §8.5, §8.6).

Pure functions between `Message` and `Reply` and the JSON of the API. The decoder assembles the payload that a stream
stands for and parses it with `reply`, so that both ways give the same `Reply`.
"""

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any, cast

from prompty.errors import ModelError, Refused, RequestError, StreamCut
from prompty.model.citation import Citation
from prompty.model.content import AudioPart, ContentPart, FilePart, ImagePart, TextPart
from prompty.model.delta import (
    CitationAdded,
    Delta,
    ProviderCallDone,
    ProviderCallStarted,
    ReasoningDelta,
    TextDelta,
)
from prompty.model.message import INSTRUCTION_ROLES, Json, Message, Reply, ToolCall, Usage, user
from prompty.model.request import Function
from prompty.model.tool import McpTool
from prompty.providers import Api, RequestBase
from prompty.providers.anthropic.provider_tools import BETA, write_anthropic_tool
from prompty.providers.citations import (
    TextPlaces,
    begin_call,
    count_blocks,
    is_call_block,
    join_cited,
    parse_block_call,
    parse_block_calls,
    parse_block_citations,
)
from prompty.providers.facts import ModelFacts
from prompty.safety.json import may_have_surrogates, read_json, repair_json
from prompty.wire.json_bytes import INVALID_JSON, PARAGRAPH, as_count, as_mapping, as_text
from prompty.wire.request import (
    get_inline_data,
    have_same_words,
    is_url,
    map_options,
    merge_tools,
    refuse_one_of,
    require_text,
)
from prompty.wire.stream import CallAssembler, check_call_count, sort_by_index

_Block = dict[str, Any]

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)

DEFAULT_MAX_TOKENS = 4096
BLOCKS = "anthropic_blocks"
BOUND_TO = "anthropic_bound_to"
CONTAINER = "anthropic_container"
_THOUGHTS = ("thinking", "redacted_thinking")
OPTIONS = {
    "temperature": "temperature",
    "max_output_tokens": "max_tokens",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop_sequences": "stop_sequences",
    "reasoning_effort": "output_config.effort",
}
# Later versions of the API answer 400 to these.
_SAMPLING = frozenset({"temperature", "top_p", "top_k"})
_SAMPLING_VERSION = {"anthropic-version": "2023-06-01"}
_MEDIA_TYPES = {
    "image": ("image/jpeg", "image/png", "image/gif", "image/webp"),
    "file": ("application/pdf", "text/plain"),
}
_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
# An answer with one of these stop reasons may be truncated in the middle of a call.
_TRUNCATED = ("max_tokens", "model_context_window_exceeded")
# An answer with one of these stop reasons goes on when it is sent back.
UNFINISHED = ("pause_turn", "compaction")
_TRANSIENT = ("overloaded_error", "rate_limit_error", "api_error", "timeout_error")


def request(
    base: RequestBase, messages: Sequence[Message], functions: Sequence[Function], *, is_bound: bool = False
) -> Json:
    """Return the body of a request. If `is_bound`, the model refuses thoughts after a change."""
    refuse_one_of(base.refusal)
    options = base.options
    extra = options.additional_properties or {}
    body: Json = {"max_tokens": _get_default_limit(extra), **map_options(options, OPTIONS), "model": base.model}
    body["messages"] = []
    instructions = [message for message in messages if message.role in INSTRUCTION_ROLES]
    if len(instructions) == len(messages):  # the API needs a user message
        messages = [user(*message.content) for message in instructions if require_text(message).strip()]
    elif system := _join_instructions(instructions):
        body["system"] = system
    body.pop("tools", None)
    if tools := merge_tools(options, functions, _function_to_wire):
        body["tools"] = tools
    body["messages"] = _group_turns(messages, body, is_bound=is_bound)
    if container := _find_container(messages):
        body["container"] = container
    if tools and options.allow_multiple_tool_calls is False:
        choice = extra.get("tool_choice") or {"type": "auto"}
        body["tool_choice"] = {**choice, "disable_parallel_tool_use": True}
    if base.output and base.output.strict:  # the API takes no other
        config = cast(Json, body.get("output_config") or {})
        body["output_config"] = {**config, "format": {"type": "json_schema", "schema": base.output.schema}}
    return body


def _find_container(messages: Sequence[Message]) -> object:
    """Return the id of the container in which code of the current turn runs. As a mapping it would be refused."""
    for message in reversed(messages):
        if message.role == "user":
            return None
        if container := message.opaque.get(CONTAINER):
            return container
    return None


def _get_default_limit(extra: Mapping[str, Any]) -> int:
    """Return the default for `max_tokens`, which the API wants above the budget for thinking."""
    thinking = extra.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    return DEFAULT_MAX_TOKENS + (budget if isinstance(budget, int) and budget >= DEFAULT_MAX_TOKENS else 0)


def _join_instructions(messages: Sequence[Message]) -> str | list[Json]:
    """Return instructions as one text, or as blocks if a part has keys of its own, such as `cache_control`."""
    texts = [require_text(message) for message in messages]
    if any(part.extra for message in messages for part in message.content):
        return [block for message in messages for block in _parts_to_blocks(message.content)]
    return "\n\n".join(text for text in texts if text.strip())


def headers(base: RequestBase) -> Mapping[str, str]:
    """Return the header of the API version that has sampling options, if the prompt sets one, and that of the
    beta that has MCP servers."""
    betas = {"anthropic-beta": BETA} if any(isinstance(tool, McpTool) for tool in base.hosted) else {}
    options = base.options
    given = options.model_fields_set
    if not given or (_SAMPLING.isdisjoint(given) and not options.additional_properties):
        return betas
    return {**betas, **_SAMPLING_VERSION} if _SAMPLING & map_options(options, OPTIONS).keys() else betas


def _function_to_wire(function: Function) -> Json:
    """Return a tool definition."""
    tool: Json = {"name": function.name, "input_schema": function.parameters}
    if function.description:
        tool["description"] = function.description
    if function.strict:
        tool["strict"] = True
    return tool


def _group_turns(messages: Sequence[Message], body: Json, *, is_bound: bool) -> list[Json]:
    """Return alternating turns of blocks, a user turn first. Tool results come first in their turn.

    If `is_bound`, thoughts of earlier turns are left out, unless what precedes them is known to be the same.
    Those of the current turn always go back.
    """
    spoken = [message for message in messages if message.role not in INSTRUCTION_ROLES]
    last_user = max((at for at, message in enumerate(spoken) if message.role == "user"), default=0)
    turns: list[Json] = []
    converted = _drop_halves([_message_to_blocks(message) for message in spoken], last_user)
    for at, (message, blocks) in enumerate(zip(spoken, converted, strict=True)):
        role = "assistant" if message.role == "assistant" else "user"
        if is_bound and at < last_user and not _is_unchanged(message, body, turns):
            blocks = [block for block in blocks if block["type"] not in _THOUGHTS]
        if turns and turns[-1]["role"] == role:
            blocks = [*cast(list[Json], turns.pop()["content"]), *blocks]
        if blocks:
            turns.append({"role": role, "content": sorted(blocks, key=lambda block: block["type"] != "tool_result")})
    if not turns or turns[0]["role"] == "assistant":
        raise RequestError("the conversation begins without a user message", "Begin it with a `user:` message.")
    return turns


def _drop_halves(converted: list[list[Json]], last_user: int) -> list[list[Json]]:
    """Return the blocks of all messages without calls of the provider's tools that have no result, and without results
    that have no call: the API refuses both. Calls after the last user message may still get their result."""
    called = {block["id"] for blocks in converted for block in blocks if _is_server_call(block)}
    answered = {block["tool_use_id"] for blocks in converted for block in blocks if _is_server_result(block)}
    if called == answered:
        return converted
    kept = answered.union(block["id"] for blocks in converted[last_user:] for block in blocks if _is_server_call(block))
    return [
        [
            block
            for block in blocks
            if not (_is_server_call(block) and block["id"] not in kept)
            and not (_is_server_result(block) and block["tool_use_id"] not in called)
        ]
        for blocks in converted
    ]


def _is_server_call(block: Json) -> bool:
    kind = block["type"]
    return kind != "tool_use" and str(kind).endswith("tool_use") and isinstance(block.get("id"), str)


def _is_server_result(block: Json) -> bool:
    return block["type"] != "tool_result" and isinstance(block.get("tool_use_id"), str)


def _is_unchanged(message: Message, body: Json, turns: list[Json]) -> bool:
    """Return True if a message is known to follow what it followed when its model thought."""
    bound_to = message.opaque.get(BOUND_TO)
    return bound_to is not None and bound_to == _digest(body, turns)


def _digest(body: Json, turns: list[Json]) -> str:
    """Return a digest of all that precedes an answer: instructions, tools and turns.

    The model is not part of it: the API ignores thoughts that a model cannot read, and in the middle of a turn a
    fallback must get them all, because each is bound to those before it.
    """
    before = [body.get("system"), body.get("tools"), turns]
    return sha256(json.dumps(before, sort_keys=True).encode()).hexdigest()


def bind(body: Json, reply: Reply) -> Reply:
    """Return a reply whose thoughts are marked with a digest of what precedes them. The next model may need it, also if
    this one does not."""
    blocks = cast(list[_Block], reply.opaque.get(BLOCKS) or [])
    if not any(block.get("type") in _THOUGHTS for block in blocks):
        return reply
    return replace(reply, opaque={**reply.opaque, BOUND_TO: _digest(body, cast(list[Json], body["messages"]))})


def _message_to_blocks(message: Message) -> list[Json]:
    """Convert one message to blocks. The API refuses blank text, so there may be none."""
    match message.role:
        case "assistant":
            return _update_stored_blocks(message) or _assistant_to_blocks(message)
        case "tool":
            return [_result_to_block(message)]
        case _:
            return _parts_to_blocks(message.content)


def _update_stored_blocks(message: Message) -> list[Json]:
    """Return the original blocks of an answer, signatures included; none if it has other calls or another text by now,
    or a block without a type."""
    stored, calls = message.opaque.get(BLOCKS), message.tool_calls
    if not isinstance(stored, list) or len(calls) != sum(map(_is_call, stored)):
        return []
    if not calls and not have_same_words(join_cited(_list_texts(stored))[0], require_text(message)):
        return []
    if not all(isinstance(block.get("type"), str) for block in stored):  # the API refuses it
        return []
    current = iter(calls)
    blocks = [block for block in stored if not _is_blank(block)]
    # `normalize_history` makes repeated ids unique, and names valid
    return [_update_call(block, next(current)) if _is_call(block) else block for block in blocks]


def _update_call(block: _Block, call: ToolCall) -> _Block:
    return {**block, "id": call.id, "name": call.name}


def _is_call(block: _Block) -> bool:
    return block.get("type") == "tool_use"


def _is_blank(block: _Block) -> bool:
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


def _assistant_to_blocks(message: Message) -> list[Json]:
    # the API refuses trailing whitespace in a turn that the model continues
    text = require_text(message).rstrip()
    blocks: list[Json] = [{"type": "text", "text": text}] if text else []
    for call in message.tool_calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": _parse_input(call.arguments)})
    return blocks


def _parse_input(arguments: str) -> Json:
    """Return arguments as an object. Invalid JSON goes under the name that Anthropic's guide gives it."""
    if not arguments.strip():
        return {}
    try:
        value = read_json(arguments)
        value = repair_json(value) if may_have_surrogates(arguments) else value
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {INVALID_JSON: arguments}


def _result_to_block(message: Message) -> Json:
    """Convert a tool result: text stays text, media become blocks. An error must have text, and nothing else."""
    if not message.tool_call_id:
        raise RequestError("a tool message does not name the call it answers", "Give it the call's `tool_call_id`.")
    result: Json = {"type": "tool_result", "tool_use_id": message.tool_call_id}
    if any(not isinstance(part, TextPart) for part in message.content):
        return {**result, "content": _parts_to_blocks(message.content)}
    text = message.text
    if text.strip() or message.is_error:
        result["content"] = text if text.strip() else "The tool failed and said nothing."
    return {**result, "is_error": True} if message.is_error else result


def _parts_to_blocks(parts: Iterable[ContentPart]) -> list[Json]:
    return [block for block in map(_part_to_block, parts) if not _is_blank(block)]


def _part_to_block(part: ContentPart) -> Json:
    """Convert one part of a user message or of a tool result."""
    return _part_to_wire(part) if part.extra is None else {**part.extra, **_part_to_wire(part)}


def _part_to_wire(part: ContentPart) -> Json:
    match part:
        case TextPart(value=text):
            return {"type": "text", "text": text}
        case ImagePart():
            return {"type": "image", "source": _get_source(part)}
        case FilePart(name=name):
            document: Json = {"type": "document", "source": _get_source(part)}
            return {**document, "title": name} if name else document
        case AudioPart():
            raise RequestError("this API takes no audio", "Send what is said as text, or use another provider.")


def _get_source(part: ImagePart | FilePart) -> Json:
    """Return the source of the data: a URL, the id of an uploaded file, or the data itself."""
    inline = get_inline_data(part)
    if is_url(part.value):
        return {"type": "url", "url": part.value}
    if inline is None and isinstance(part, FilePart):
        return {"type": "file", "file_id": part.value}
    media_type, data = inline or ("unknown", "")
    media_type = media_type.lower().replace("image/jpg", "image/jpeg")
    if media_type not in _MEDIA_TYPES[part.kind]:
        accepted = ", ".join(_MEDIA_TYPES[part.kind])
        raise RequestError(f"this API takes no {part.kind} of type '{media_type}'", f"Pass one of {accepted}.")
    if media_type == "text/plain":
        return {"type": "text", "media_type": media_type, "data": _decode_text(data)}
    return {"type": "base64", "media_type": media_type, "data": data}


def _decode_text(data: str) -> str:
    try:
        return b64decode(data, validate=True).decode()
    except ValueError:
        raise RequestError("a text file is not base64 of UTF-8 text", "Encode it again, or pass it as text.") from None


def reply(payload: Json) -> Reply:
    """Parse a whole answer (§8.5)."""
    data = cast(dict[str, Any], payload)
    if not isinstance(data.get("content"), list):
        cause, retryable = _get_failure(data)
        raise ModelError(cause, retryable=retryable)
    stop_reason = data.get("stop_reason") or ""
    blocks = _drop_incomplete(data["content"], stop_reason)
    check_call_count(sum(map(_is_call, blocks)))
    calls = tuple(_parse_call(block) for block in blocks if _is_call(block))
    text, citations = join_cited(_list_texts(blocks))
    # text before a refusal is often the start of an answer, so the explanation takes precedence
    refusal = (data.get("stop_details") or {}).get("explanation") or text or "The model declined to answer."
    return Reply(
        text=text,
        tool_calls=calls,
        reasoning="".join(str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking"),
        refusal=refusal if stop_reason == "refusal" else None,
        finish_reason=_FINISH_REASONS.get(stop_reason, stop_reason) or None,
        usage=_count_requests(data.get("usage"), blocks),
        id=as_text(data.get("id")) or None,
        model=as_text(data.get("model")) or None,
        opaque=_keep_blocks(blocks, as_mapping(data.get("container")).get("id"), stop_reason),
        citations=citations,
        provider_calls=parse_block_calls(blocks) if any(map(is_call_block, blocks)) else (),
    )


def _keep_blocks(blocks: list[_Block], container: object, stop_reason: str) -> Json:
    """Return the blocks that go back unchanged: all, if there is more than text and thoughts, or more to come."""
    if not blocks or (all(map(_is_plain, blocks)) and stop_reason not in UNFINISHED):
        return {}
    return {BLOCKS: blocks, CONTAINER: container} if isinstance(container, str) else {BLOCKS: blocks}


def _is_plain(block: _Block) -> bool:
    kind = block.get("type")
    return kind in _THOUGHTS or (kind == "text" and not block.get("citations"))


def _get_failure(data: dict[str, Any]) -> tuple[str, bool]:
    """Return the cause of a failure, and True if a retry may help."""
    error = data.get("error")
    if not isinstance(error, dict):
        return str(error or "the provider answered without content"), True
    return f"{error.get('type') or 'error'}: {error.get('message')}", error.get("type") in _TRANSIENT


def _drop_incomplete(content: list[Any], stop_reason: str) -> list[_Block]:
    """Return the blocks of an answer, without a call that may be truncated, and without any call of a refusal."""
    blocks: list[_Block] = [block for block in content if isinstance(block, dict)]
    if stop_reason == "refusal":
        return [block for block in blocks if not _is_call(block)]
    return blocks[:-1] if stop_reason in _TRUNCATED and blocks and _is_call(blocks[-1]) else blocks


def _parse_call(block: _Block) -> ToolCall:
    """Parse a call. Arguments that were not an object (see `_parse_input`) become their original text."""
    value = block.get("input") or {}
    is_invalid = isinstance(value, dict) and value.keys() == {INVALID_JSON}
    try:
        arguments = str(value[INVALID_JSON]) if is_invalid else _ENCODER.encode(value)
    except ValueError:  # a number beyond all floats was parsed as infinity, which cannot be sent back
        raise ModelError("the provider sent a number that is too large", retryable=True) from None
    return ToolCall(id=as_text(block.get("id")), name=as_text(block.get("name")), arguments=arguments)


def _list_texts(blocks: Iterable[_Block]) -> Iterator[tuple[str, Sequence[Citation]]]:
    """Yield the texts of an answer with their citations. Texts around a tool of the provider are paragraphs."""
    has_text = is_apart = False
    for block in blocks:
        if block.get("type") != "text":
            is_apart = is_apart or _sets_apart(block)
        elif said := str(block.get("text") or ""):
            if has_text and is_apart:
                yield PARAGRAPH, ()
            has_text, is_apart = True, False
            yield said, parse_block_citations(block.get("citations"), len(said))


def _sets_apart(block: _Block) -> bool:
    """Return True for a block that ends a paragraph. Thoughts and our own tools are not part of the text."""
    return block.get("type") not in ("text", "tool_use", *_THOUGHTS)


def _count_requests(usage: object, blocks: list[_Block]) -> Usage:
    """Parse token counts, and count the calls that the provider ran."""
    counts = _parse_usage(usage)
    if not as_mapping(usage).get("server_tool_use") and not any(map(is_call_block, blocks)):
        return counts
    return replace(counts, requests=count_blocks(blocks, usage))


def _parse_usage(usage: object) -> Usage:
    """Parse token counts. Other APIs include cached tokens in the input; this one counts them separately."""
    counts = as_mapping(usage)
    fresh, read = as_count(counts.get("input_tokens")), as_count(counts.get("cache_read_input_tokens"))
    written = as_count(counts.get("cache_creation_input_tokens"))
    by_duration = as_mapping(counts.get("cache_creation"))
    hourly = as_count(by_duration.get("ephemeral_1h_input_tokens"))
    if written is None and by_duration:
        written = (as_count(by_duration.get("ephemeral_5m_input_tokens")) or 0) + (hourly or 0)
    return Usage(
        input_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        output_tokens=as_count(counts.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=as_count(as_mapping(counts.get("output_tokens_details")).get("thinking_tokens")),
        cache_write_1h_tokens=hourly,
    )


@dataclass
class _OpenBlock:
    """A block as it began, and the pieces since. A call is open until its block ends."""

    start: _Block
    index: int | None
    is_open_call: bool
    pieces: list[str] = field(default_factory=list)
    citations: list[object] = field(default_factory=list)

    def assemble(self) -> _Block:
        """Return the block as an answer without a stream holds it."""
        text, start = "".join(self.pieces), self.start
        if self.citations:
            start = {**start, "citations": [*(start.get("citations") or []), *self.citations]}
        kind = start.get("type")
        if kind in ("text", "thinking"):
            return {**start, kind: text}
        return {**start, "input": _parse_input(text)} if text else start


class MessagesDecoder:
    """Assembles a streamed answer (§8.6)."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: list[_OpenBlock] = []
        self._at: dict[int | None, _OpenBlock] = {}
        self._places = TextPlaces()
        self._provider_calls: dict[str, _OpenBlock] = {}
        self._calls = CallAssembler()
        self._has_text = self._is_apart = False
        self._stopped = False

    def feed(self, event: Json, /) -> list[Delta]:
        data = cast(dict[str, Any], event)
        match data.get("type"):
            case "message_start":
                self._message = dict(data.get("message") or {})
            case "content_block_start":
                return list(self._begin(data.get("index"), dict(data.get("content_block") or {})))
            case "content_block_delta":
                return list(self._append(data.get("index"), data.get("delta") or {}))
            case "content_block_stop" if data.get("index") in self._at:  # llama.cpp ends blocks that never began
                return list(self._end(self._at[data.get("index")]))
            case "message_delta":
                self._update_message(data)
            case "message_stop":
                self._stopped = True
            case "error":
                cause, retryable = _get_failure(data)
                raise StreamCut(f"the provider broke the stream off: {cause}", self._partial(), retryable=retryable)
        return []

    def _begin(self, index: int | None, start: _Block) -> Iterator[Delta]:
        block = _OpenBlock(start, index, is_open_call=_is_call(start))
        self._blocks.append(block)
        self._at[index] = block
        self._is_apart = self._is_apart or _sets_apart(start)
        if start.get("tool_use_id"):
            return self._end_provider_call(start)
        kind = str(start.get("type"))
        return self._append(index, {"type": f"{kind}_delta", kind: start.get(kind)})

    def _end(self, block: _OpenBlock) -> Iterator[Delta]:
        """End a block. Its input and its citations are complete now."""
        block.is_open_call = False
        if block.citations or block.start.get("citations"):
            for citation in self._places.cite_all(id(block), block.assemble()["citations"]):
                yield CitationAdded(citation)
        elif is_call_block(block.start):
            self._provider_calls[str(block.start.get("id"))] = block
            yield ProviderCallStarted(parse_block_call(block.assemble()))

    def _end_provider_call(self, result: _Block) -> Iterator[Delta]:
        """End the call that a block is the result of. The block arrives whole."""
        block = self._provider_calls.get(str(result["tool_use_id"]))
        yield ProviderCallDone(parse_block_call(block.assemble() if block else begin_call(result), result))

    def _append(self, index: int | None, delta: dict[str, Any]) -> Iterator[Delta]:
        """Append to the newest block of an index; a server may repeat or omit the index."""
        if index not in self._at:
            raise StreamCut("the provider continued a block that never began", self._partial())
        block = self._at[index]
        start = block.start
        match delta:
            case {"type": "text_delta", "text": str(text)} if text:
                block.pieces.append(text)
                gap = ""
                if self._is_apart and self._has_text:
                    gap = PARAGRAPH
                    self._places.add(None, gap)
                self._has_text, self._is_apart = True, False
                self._places.add(id(block), text)
                yield TextDelta(gap + text)
            case {"type": "thinking_delta", "thinking": str(text)} if text:
                block.pieces.append(text)
                yield ReasoningDelta(text)
            case {"type": "input_json_delta", "partial_json": str(text)}:
                block.pieces.append(text)
                if _is_call(start):
                    yield self._calls.add(index, start.get("id"), start.get("name"), text)
            case {"type": "signature_delta", "signature": signature}:
                start["signature"] = signature
            case {"type": "citations_delta", "citation": citation}:
                block.citations.append(citation)
            case {"type": "compaction_delta", "content": str(text)}:
                start |= {key: value for key, value in delta.items() if key not in ("type", "content")}
                start["content"] = (start.get("content") or "") + text

    def _update_message(self, data: dict[str, Any]) -> None:
        """Set the stop reason and the usage, whose totals replace those of the start."""
        usage = {name: value for name, value in (data.get("usage") or {}).items() if value is not None}
        self._message |= {name: value for name, value in (data.get("delta") or {}).items() if value is not None}
        self._message["usage"] = self._message.get("usage") or {}
        self._message["usage"] |= usage
        if self._message.get("stop_reason") == "refusal":
            refused = self._reply(self._blocks)
            raise Refused(refused.refusal or "", refused)

    def _reply(self, blocks: list[_OpenBlock]) -> Reply:
        ordered = sort_by_index(blocks, [block.index for block in blocks])
        return reply({**self._message, "content": [block.assemble() for block in ordered]})

    def _partial(self) -> Reply:
        return self._reply([block for block in self._blocks if not block.is_open_call])

    def finish(self) -> Reply:
        stop_reason = self._message.get("stop_reason")
        complete = self._blocks[:-1] if stop_reason in _TRUNCATED else self._blocks
        if not self._stopped or stop_reason is None or any(block.is_open_call for block in complete):
            raise StreamCut("the stream ended before the answer was complete", self._partial())
        return self._reply(self._blocks)


def join(before: Reply, piece: Reply) -> Reply:
    """Return an answer with the piece that follows its beginning, as one reply. The last piece says how it ended."""
    following = piece.opaque.get(BLOCKS) or ([{"type": "text", "text": piece.text}] if piece.text else [])
    blocks = [*cast(list[_Block], before.opaque.get(BLOCKS) or []), *cast(list[_Block], following)]
    gap = PARAGRAPH if before.text and piece.text else ""
    text, citations = join_cited([(before.text, before.citations), (gap, ()), (piece.text, piece.citations)])
    return replace(
        piece,
        text=text,
        citations=citations,
        provider_calls=parse_block_calls(blocks),  # a call of one piece may have its result in the next
        reasoning=before.reasoning + piece.reasoning,
        usage=before.usage + piece.usage,
        opaque={**before.opaque, **piece.opaque, BLOCKS: blocks},
    )


def fit(api: Api, facts: ModelFacts) -> Api:
    """Return this API as a model takes it."""
    return replace(api, request=partial(request, is_bound=True)) if facts.known.get("thinking_blocks_bound") else api


API = Api(
    path="/v1/messages",
    name="messages",
    request=request,
    reply=reply,
    decoder=MessagesDecoder,
    stream_body=lambda body: {**body, "stream": True},
    headers=headers,
    options=OPTIONS,
    fit=fit,
    bind=bind,
    unfinished=UNFINISHED,
    join=join,
    call_ids=re.compile(r"[A-Za-z0-9_-]+"),
    provider_tool=write_anthropic_tool,
)
