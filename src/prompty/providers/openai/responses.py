"""OpenAI Responses: the wire format (004, §7.4, §8.4).

Pure functions between `Message` and `Reply` and the JSON of the API. An answer is a list of items. If it has more than
text and reasoning, they go back unchanged: a reasoning item and the call after it belong together, and the results of a
search are only in its item.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from prompty.errors import EmptyReply, ModelError, Refused, RequestError, ResponseFailed, StreamCut
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
from prompty.model.message import APPROVAL, INSTRUCTION_ROLES, Json, Message, Reply, ToolCall, Usage
from prompty.model.request import Function
from prompty.providers import Api, RequestBase
from prompty.providers.citations import (
    PROVIDER_ITEMS,
    TextPlaces,
    count_items,
    join_cited,
    parse_annotations,
    parse_item_call,
    parse_item_calls,
)
from prompty.providers.openai.provider_tools import write_openai_tool
from prompty.wire.json_bytes import PARAGRAPH, as_count, as_mapping, as_text
from prompty.wire.request import (
    get_inline_data,
    have_same_words,
    is_url,
    map_options,
    merge_tools,
    refuse_one_of,
    require_text,
    to_data_uri,
)
from prompty.wire.stream import CallAssembler, check_call_count, sort_by_index
from prompty.wire.structured import SCHEMA_NAME

Item = dict[str, Any]

OPTIONS = {
    "temperature": "temperature",
    "max_output_tokens": "max_output_tokens",
    "top_p": "top_p",
    "reasoning_effort": "reasoning.effort",
}
ITEMS = "responses_items"
_UNANSWERED = ("failed", "cancelled")
_PENDING = ("queued", "in_progress")
_PLAIN = ("message", "reasoning")
_CALLS = ("function_call", APPROVAL)
_COMMENTARY = "commentary"
# Items that ask the client to run something. Without an output of the provider beside them, they ask us.
_CLIENT_CALLS = (
    "apply_patch_call",
    "computer_call",
    "custom_tool_call",
    "local_shell_call",
    "shell_call",
    "tool_search_call",
)
# Errors worth a retry; all others are about the request or the account.
_TRANSIENT = (None, "server_error", "rate_limit_exceeded", "server_is_overloaded", "slow_down", "vector_store_timeout")


def request(base: RequestBase, messages: Sequence[Message], functions: Sequence[Function]) -> Json:
    """Return the body of a request (004)."""
    refuse_one_of(base.refusal)
    options = base.options
    body: Json = {**map_options(options, OPTIONS), "model": base.model}
    body |= _messages_to_wire(messages, stored=body.get("store") is not False)
    body.pop("tools", None)
    if tools := merge_tools(options, functions, _function_to_wire):
        body["tools"] = tools
        if options.allow_multiple_tool_calls is not None:
            body["parallel_tool_calls"] = options.allow_multiple_tool_calls
    if output := base.output:
        format_ = {"type": "json_schema", "name": SCHEMA_NAME, "strict": output.strict, "schema": output.schema}
        body["text"] = {**cast(Json, body.get("text") or {}), "format": format_}
    return body


def _messages_to_wire(messages: Sequence[Message], *, stored: bool) -> Json:
    """Return `input` and `instructions`. Instructions alone are an item of the input, which must not be empty.

    A server that stores nothing cannot find the reasoning that an item names, unless the item contains it.
    """
    texts = [require_text(message) for message in messages if message.role in INSTRUCTION_ROLES]
    instructions = PARAGRAPH.join(filter(None, texts))
    spoken = [message for message in messages if message.role not in INSTRUCTION_ROLES]
    last_user = max((at for at, message in enumerate(spoken) if message.role == "user"), default=0)
    items: list[Json] = []
    asked: set[object] = set()
    for at, message in enumerate(spoken):
        own = message_to_items(message, asked)
        asked.update(item.get("id") for item in own if item.get("type") == APPROVAL)
        items += map(_drop_image, own) if at < last_user else own
    items = _drop_compacted(items)
    if not stored:
        items = [item for item in items if item.get("type") != "reasoning" or item.get("encrypted_content")]
    if not instructions:
        return {"input": items}
    if not items:
        return {"input": [{"role": "system", "content": instructions}]}
    return {"input": items, "instructions": instructions}


def _drop_compacted(items: list[Json]) -> list[Json]:
    """Return the items from the last compaction on, which stands for all before it. A result stays with its call."""
    last = max((at for at, item in enumerate(items) if item.get("type") == "compaction"), default=0)
    called = {item.get("call_id") or item.get("id") for item in items[:last] if item.get("type") in _CALLS}
    answered = {item.get("call_id") or item.get("approval_request_id") for item in items[last:]}
    return items if called & answered else items[last:]


def _drop_image(item: Json) -> Json:
    """Return an item without the data of a generated image, which would make every later request larger."""
    return {**item, "result": None} if item.get("type") == "image_generation_call" else item


def _function_to_wire(function: Function) -> Json:
    """Return a flat function definition. Without `strict` the API assumes it, and requires optional parameters."""
    definition: Json = {"type": "function", "name": function.name}
    if function.description:
        definition["description"] = function.description
    return {**definition, "parameters": function.parameters, "strict": function.strict}


def message_to_items(message: Message, asked: Collection[object] = ()) -> list[Json]:
    """Convert one message to any number of items. `asked` are the ids of earlier requests for approval."""
    if message.role == "assistant":
        return _assistant_items(message)
    if message.role == "tool" and message.tool_call_id in asked:
        return [_approval_to_wire(message)]
    if message.role == "tool":
        output = {"call_id": message.tool_call_id or "", "output": _content_to_output(message.content)}
        return [{"type": "function_call_output", **output}]
    if len(message.content) == 1 and isinstance(part := message.content[0], TextPart) and part.extra is None:
        return [{"role": message.role, "content": part.value}]
    return [{"role": message.role, "content": [_part_to_item(part) for part in message.content]}]


def _approval_to_wire(message: Message) -> Json:
    """Return the answer to a request for approval. Anything but an approval is a denial."""
    response: Json = {"type": "mcp_approval_response", "approval_request_id": message.tool_call_id}
    if message.opaque.get(APPROVAL) is True:
        return {**response, "approve": True}
    return {**response, "approve": False, **({"reason": message.text} if message.text else {})}


def _assistant_items(message: Message) -> list[Json]:
    text, calls = require_text(message), message.tool_calls
    stored = message.opaque.get(ITEMS)
    if isinstance(stored, list) and (calls or _is_unchanged(stored, text)):
        return _update_stored_items(stored, calls)
    spoken: list[Json] = [{"role": "assistant", "content": text}] if text else []
    return spoken + [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments} for call in calls
    ]


def _is_unchanged(stored: list[Json], text: str) -> bool:
    """Return True if stored items still are the answer: neither its text nor its calls were changed or removed."""
    return not _list_calls(stored) and have_same_words(join_cited(_list_texts(stored))[0], text)


def _update_stored_items(stored: list[Json], calls: Sequence[ToolCall]) -> list[Json]:
    """Return the items unchanged, except for calls that `normalize_history` changed: repeated ids are made unique,
    and names and arguments valid."""
    if len(_list_calls(stored)) != len(calls):
        return stored
    current = iter(calls)
    return [_update_call(item, next(current)) if item.get("type") in _CALLS else item for item in stored]


def _list_calls(items: Iterable[Item]) -> list[Item]:
    return [item for item in items if item.get("type") in _CALLS]


def _update_call(item: Json, call: ToolCall) -> Json:
    if item.get("type") == APPROVAL:
        return {**item, "id": call.id}
    return {**item, "call_id": call.id, "name": call.name, "arguments": call.arguments}


def _content_to_output(content: Sequence[ContentPart]) -> str | list[Json]:
    texts = [part.value for part in content if isinstance(part, TextPart)]
    return "".join(texts) if len(texts) == len(content) else [_part_to_item(part) for part in content]


def _part_to_item(part: ContentPart) -> Json:
    """Convert one part of a user message or of a tool result."""
    return _part_to_wire(part) if part.extra is None else {**part.extra, **_part_to_wire(part)}


def _part_to_wire(part: ContentPart) -> Json:
    match part:
        case TextPart(value=text):
            return {"type": "input_text", "text": text}
        case ImagePart():
            inline = get_inline_data(part)
            url = to_data_uri(inline) if inline else part.value
            return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}
        case AudioPart():
            raise RequestError("the Responses API takes no audio", "Use `apiType: chat`.")
        case FilePart():
            return {"type": "input_file", **_file(part)}


def _file(part: FilePart) -> Json:
    if is_url(part.value):
        return {"file_url": part.value}
    if (inline := get_inline_data(part)) is None:
        return {"file_id": part.value}
    return {"filename": part.name or "file", "file_data": to_data_uri(inline)}


def reply(payload: Json) -> Reply:
    """Parse a whole answer (§8.4)."""
    data = cast(Item, payload)
    if data.get("error") or data.get("status") in _UNANSWERED:
        cause, retryable = _get_failure(data)
        raise ResponseFailed(cause, retryable=retryable)
    if (status := data.get("status")) in _PENDING:
        return _parse_pending(data, as_text(status))
    if "output" not in data and "output_text" not in data:
        raise EmptyReply("the provider answered without output", retryable=True)
    return _parse(data)


def _parse_pending(data: Item, status: str) -> Reply:
    """Return the reply of an answer in the background. Sending its request again would pay for it again."""
    identifier = as_text(data.get("id"))
    if not identifier:
        raise ResponseFailed(f"the provider answered with the status '{status}', and without an id to ask for the rest")
    return Reply(finish_reason=status, id=identifier, model=as_text(data.get("model")) or None)


def _get_failure(data: Item) -> tuple[str, bool]:
    """Return the cause of a failure, and True if a retry may help."""
    error = data.get("error")
    if isinstance(error, dict):
        cause = error.get("message") or error.get("code") or "no reason was given"
        return str(cause), error.get("code") in _TRANSIENT
    return str(error or f"the provider answered with the status '{data.get('status')}'"), True


def _parse(data: Item) -> Reply:
    output: list[Item] = data.get("output") or []
    complete = _drop_incomplete(output, incomplete=data.get("status") == "incomplete")
    items = _list_calls(complete)
    check_call_count(len(items))
    calls = tuple(map(_parse_call, items))
    _refuse_client_calls(output)
    said = [part for item in _filter_type(output, "message") for part in item.get("content") or []]
    text, citations = join_cited(_list_texts(output))
    usage = _parse_usage(data.get("usage"))
    has_provider_calls = any(item.get("type") in PROVIDER_ITEMS for item in output)
    return Reply(
        text=text if output else data.get("output_text") or "",
        tool_calls=calls,
        reasoning=PARAGRAPH.join(_list_thoughts(output)),
        refusal="".join(part.get("refusal") or "" for part in said) or None,
        finish_reason=_get_finish_reason(data, calls, truncated=len(complete) < len(output)),
        usage=replace(usage, requests=count_items(data, output)) if has_provider_calls else usage,
        id=as_text(data.get("id")) or None,
        model=as_text(data.get("model")) or None,
        opaque={ITEMS: complete} if calls or not all(map(_is_plain, complete)) else {},
        parts=tuple(_list_images(output)),
        citations=citations,
        provider_calls=parse_item_calls(output) if has_provider_calls else (),
    )


def _is_plain(item: Item) -> bool:
    """Return True for an item that goes back as text, or not at all."""
    return item.get("type") in _PLAIN and not item.get("phase")


def _list_texts(output: Iterable[Item]) -> Iterator[tuple[str, Sequence[Citation]]]:
    """Yield the texts of an answer with their citations. Commentary is not part of it, and texts around a search are
    paragraphs."""
    has_text = is_apart = False
    for item in output:
        if not _is_answer(item):
            is_apart = is_apart or item.get("type") not in ("reasoning", "function_call")
            continue
        for part in _filter_type(item.get("content") or [], "output_text"):
            if said := part.get("text"):
                if has_text and is_apart:
                    yield PARAGRAPH, ()
                has_text, is_apart = True, False
                yield said, parse_annotations(part.get("annotations"), len(said))


def _is_answer(item: Item) -> bool:
    return item.get("type") == "message" and item.get("phase") != _COMMENTARY


def _list_thoughts(output: Iterable[Item]) -> Iterator[str]:
    """Yield reasoning and commentary. OpenAI sends a summary of the reasoning; servers of open models send the
    reasoning itself."""
    for item in output:
        keys = ("content",) if item.get("type") == "message" else ("summary", "content")
        if item.get("type") in _PLAIN and not _is_answer(item):
            yield from (text for key in keys for part in item.get(key) or [] if (text := part.get("text")))


def _list_images(output: Iterable[Item]) -> Iterator[ImagePart]:
    """Yield the images that an answer generated."""
    for item in output:
        if item.get("type") == "image_generation_call" and (data := item.get("result")):
            kind = item.get("output_format") or "png"
            yield ImagePart(as_text(data), "image/svg+xml" if kind == "svg" else f"image/{kind}")


def _refuse_client_calls(output: Iterable[Item]) -> None:
    """Raise ModelError for an item that asks us to run something which we do not know."""
    done = {item.get("call_id") for item in output if as_text(item.get("type")).endswith("_output")}
    for item in output:
        kind = item.get("type")
        is_ours = kind in _CLIENT_CALLS and item.get("execution") != "server"
        if is_ours and (item.get("call_id") is None or item.get("call_id") not in done):
            raise ModelError(f"the model asks to run a `{kind}`, which prompty does not know how to run")


def _filter_type(items: list[Item], kind: str) -> list[Item]:
    return [item for item in items if item.get("type") == kind]


def _drop_incomplete(output: list[Item], *, incomplete: bool) -> list[Item]:
    """Return the items without truncated calls, and without reasoning that led only to one: the API refuses
    reasoning without the item after it."""
    statuses = ("completed",) if incomplete else ("completed", None)
    complete = [item for item in output if item.get("type") != "function_call" or item.get("status") in statuses]
    while len(complete) < len(output) and complete and complete[-1].get("type") == "reasoning":
        complete.pop()
    return complete


def _parse_call(item: Item) -> ToolCall:
    if item.get("type") == APPROVAL:
        server, name = as_text(item.get("server_label")), as_text(item.get("name"))
        arguments = item.get("arguments") or "{}"
        return ToolCall(
            id=as_text(item.get("id")), name=f"{server}/{name}", arguments=arguments, extra={APPROVAL: server}
        )
    identifier = as_text(item.get("call_id") or item.get("id"))
    return ToolCall(id=identifier, name=as_text(item.get("name")), arguments=item.get("arguments") or "{}")


def _get_finish_reason(data: Item, calls: Sequence[ToolCall], *, truncated: bool) -> str:
    reason: str | None = (data.get("incomplete_details") or {}).get("reason")
    if reason and reason != "max_output_tokens":
        return reason
    if reason or truncated or data.get("status") == "incomplete":
        return "length"
    return "tool_calls" if calls else "stop"


def _parse_usage(usage: object) -> Usage:
    if not usage:
        return Usage()
    counts = as_mapping(usage)
    input_details = as_mapping(counts.get("input_tokens_details"))
    return Usage(
        input_tokens=as_count(counts.get("input_tokens")),
        output_tokens=as_count(counts.get("output_tokens")),
        cache_read_tokens=as_count(input_details.get("cached_tokens")),
        cache_write_tokens=as_count(input_details.get("cache_write_tokens")),
        reasoning_tokens=as_count(as_mapping(counts.get("output_tokens_details")).get("reasoning_tokens")),
    )


class ResponsesDecoder:
    """Assembles a streamed answer (§8.6). The last event holds the whole answer. If a server omits the output there, or
    the stream is cut, the answer is assembled from the events before."""

    def __init__(self) -> None:
        self._done: list[Item] = []
        self._done_at: list[int | None] = []
        self._pieces: dict[str, list[str]] = {"message": [], "reasoning": [], _COMMENTARY: []}
        self._commentary: set[object] = set()  # the indexes of messages that are no answer
        self._has_text = self._is_apart = False
        self._reasoning_part: list[object] | None = None
        self._places = TextPlaces()
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
                failed = data.get("response") or (data if data.get("error") else {"error": data})
                cause, retryable = _get_failure(failed)
                raise self._cut(f"the provider broke the stream off: {cause}", retryable=retryable)
            case "response.refusal.delta":
                self._refusal.append(data.get("delta") or "")
            case "response.refusal.done":
                self._refusal = [data.get("refusal") or "".join(self._refusal)]  # the usage follows
            case kind:
                return list(self._feed_item(kind, data))
        return []

    def _feed_item(self, kind: str | None, data: Item) -> Iterator[Delta]:
        index, item, delta = data.get("output_index"), data.get("item") or {}, data.get("delta")
        is_provider_call = item.get("type") in PROVIDER_ITEMS
        if kind in ("response.output_item.added", "response.output_item.done") and not _is_answer(item):
            self._is_apart = self._is_apart or item.get("type") not in ("reasoning", "function_call")
            if item.get("phase") == _COMMENTARY:
                self._commentary.add(index)
        match kind:
            case "response.output_item.added" if is_provider_call:
                yield ProviderCallStarted(replace(parse_item_call(item), status="in_progress"))
            case "response.output_item.added" if item.get("type") == "function_call":
                yield self._calls.add(index, _parse_call(item).id, item.get("name"), item.get("arguments"))
            case "response.output_item.done":
                self._done.append(item)
                self._done_at.append(index)
                kind = _COMMENTARY if item.get("phase") == _COMMENTARY else item.get("type", "")
                self._pieces.get(kind, []).clear()
                if is_provider_call:
                    yield ProviderCallDone(parse_item_call(item))
            case "response.function_call_arguments.delta" if delta:
                yield self._calls.add(index, None, None, delta)
            case "response.output_text.delta" if delta and index in self._commentary:
                yield self._add_reasoning(data, delta, _COMMENTARY)
            case "response.output_text.delta" if delta:
                self._pieces["message"].append(delta)
                gap = ""
                if self._is_apart and self._has_text:
                    gap = PARAGRAPH
                    self._places.add(None, gap)
                self._has_text, self._is_apart = True, False
                self._places.add((index, data.get("content_index")), delta)
                yield TextDelta(gap + delta)
            case "response.output_text.annotation.added":
                for citation in self._places.cite((index, data.get("content_index")), data.get("annotation")):
                    yield CitationAdded(citation)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" if delta:
                yield self._add_reasoning(data, delta)

    def _add_reasoning(self, data: Item, text: str, kind: str = "reasoning") -> ReasoningDelta:
        """Add reasoning or commentary. Its parts are separated by a blank line, as in the whole reply."""
        part = [data.get(name) for name in ("type", "output_index", "summary_index", "content_index")]
        gap = PARAGRAPH if self._reasoning_part not in (None, part) else ""
        self._reasoning_part, pieces = part, self._pieces[kind]
        pieces.append(gap + text if pieces else text)
        return ReasoningDelta(gap + text)

    def _assemble(self) -> Item:
        done = sort_by_index(self._done, self._done_at)
        return {**self._response, "output": self._response.get("output") or [*done, *self._list_unfinished()]}

    def _list_unfinished(self) -> Iterator[Item]:
        """Yield items for what was being written. A call is only marked: it counts when its item is done."""
        if reasoning := "".join(self._pieces["reasoning"]):
            yield {"type": "reasoning", "summary": [{"type": "summary_text", "text": reasoning}]}
        for kind, phase in ((_COMMENTARY, {"phase": _COMMENTARY}), ("message", {})):
            if text := "".join(self._pieces[kind]):
                content = [{"type": "output_text", "text": text}]
                yield {"type": "message", "role": "assistant", "content": content, **phase}
        for _ in range(len(self._calls.calls()) - len(_filter_type(self._done, "function_call"))):
            yield {"type": "function_call", "status": "in_progress"}

    def _cut(self, cause: str, *, retryable: bool = True) -> StreamCut:
        return StreamCut(cause, replace(_parse(self._assemble()), finish_reason=None), retryable=retryable)

    def finish(self) -> Reply:
        if refusal := "".join(self._refusal):
            raise Refused(refusal, _parse(self._assemble()))
        if not self._ended:
            raise self._cut("the stream ended before the answer was complete")
        complete = reply(self._assemble())
        if complete.refusal:
            raise Refused(complete.refusal, complete)
        return complete


API = Api(
    path="/responses",
    name="responses",
    request=request,
    reply=reply,
    decoder=ResponsesDecoder,
    stream_body=lambda body: {**body, "stream": True},  # the last event has the usage
    options=OPTIONS,
    unfinished=_PENDING,
    call_ids=re.compile(r"[A-Za-z0-9_-]{1,64}"),
    provider_tool=write_openai_tool,
)
