"""Messages, tool calls, token counts and replies: what the stages, the loop and the wire formats exchange.

All are frozen. A `Message` has typed fields, blocks that a provider wants back unchanged (`opaque`), the attributes of
its role marker, and fields that never leave the process. Providers convert these fields to their APIs' JSON;
`Message.to_json` returns the stored form (001). A `Reply` is a model's answer, independent of the provider.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Self, cast

from prompty.errors import InvalidMessage, WrongArgument
from prompty.model.citation import Citation, ProviderCall, list_sources, parse_citations, parse_provider_calls
from prompty.model.content import (
    ContentPart,
    MediaPart,
    Part,
    TextPart,
    parse_content,
    part_to_json,
)
from prompty.safety.html import Row, to_text, write_table

Json = dict[str, object]
# In `ToolCall.extra`: the server of a tool that the provider runs if it may. In `Message.opaque`: it may.
APPROVAL = "mcp_approval_request"


class Role(StrEnum):
    """The roles of messages. Plain strings are equivalent."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


MESSAGE_ROLES = tuple(role.value for role in Role)
INSTRUCTION_ROLES = ("system", "developer")


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Token counts of one or more calls. A count is None if the provider did not report it.

    `cache_write_1h_tokens` is the part of `cache_write_tokens` that is kept for an hour, which costs more. `requests`
    counts the calls of tools that the provider ran, such as `{"web_search": 2}`. They have their own price.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    requests: Mapping[str, int | None] = field(default_factory=dict, hash=False)

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum. A count that is unknown in both stays unknown."""
        return Usage(
            **{
                name: after if (before := getattr(self, name)) is None else before + (after or 0)
                for name in _TOKEN_COUNTS
                for after in [getattr(other, name)]
            },
            requests=_add_requests(self.requests, other.requests) if self.requests or other.requests else {},
        )

    @property
    def cached_share(self) -> float | None:
        """The share of the input that the provider read from its cache, from 0 to 1. None if it is unknown."""
        if not self.input_tokens or self.cache_read_tokens is None:
            return None
        return self.cache_read_tokens / self.input_tokens

    def to_json(self) -> Json:
        """Return the counts by name. One-hour cache writes and requests are rare, and omitted if there are none."""
        counts: Json = {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "reasoning_tokens": self.reasoning_tokens,
        }
        if self.cache_write_1h_tokens is not None:
            counts["cache_write_1h_tokens"] = self.cache_write_1h_tokens
        return {**counts, "requests": dict(self.requests)} if self.requests else counts


_TOKEN_COUNTS = tuple(name for name in Usage.__slots__ if name != "requests")


def _add_requests(first: Mapping[str, int | None], second: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return the sums by tool. A sum is unknown if one of its counts is."""
    counts = dict(first)
    for tool, count in second.items():
        before = counts.get(tool, 0)
        counts[tool] = None if before is None or count is None else before + count
    return counts


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A tool call of the model. `arguments` stays JSON text until it runs (§8.7).

    `extra` holds data that a provider wants back with the call, such as a reasoning signature.
    """

    id: str
    name: str
    arguments: str = "{}"
    extra: Json = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        texts: tuple[object, ...] = (self.id, self.name, self.arguments)  # unchecked data from a provider
        for value in texts:
            if not isinstance(value, str):
                raise TypeError(f"the id, name and arguments of a tool call must be text, not {type(value).__name__}")

    @property
    def asks_approval(self) -> bool:
        """True if the provider asks whether it may run this call itself, as for hosted MCP. Nothing runs here."""
        return APPROVAL in self.extra

    def to_json(self) -> Json:
        """Return the call as plain JSON, without `extra`."""
        return {"id": self.id, "name": self.name, "arguments": self.arguments}

    def to_wire(self) -> Json:
        """Return the call in the chat API's form, which is also the stored form (001)."""
        wire: Json = {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}
        return {**wire, "extra_content": self.extra} if self.extra else wire

    @classmethod
    def from_wire(cls, value: Mapping[str, object]) -> Self:
        """Parse the result of `to_wire`."""
        function = value.get("function")
        named = function if isinstance(function, Mapping) else {}
        arguments, extra = named.get("arguments"), value.get("extra_content")
        return cls(
            id=str(value.get("id") or ""),
            name=str(named.get("name") or ""),
            arguments=arguments if isinstance(arguments, str) else "{}",
            extra=extra if isinstance(extra, dict) else {},
        )


@dataclass(frozen=True, init=False, repr=False)
class Message:
    """One entry of a conversation. It is immutable: change a copy with `dataclasses.replace`.

    `content` is text or a sequence of parts. `opaque` holds blocks that go back to the same API unchanged
    (`reasoning_details`, Responses items, Anthropic blocks). `attributes` are from the template's role marker. The
    other fields stay in this process: the `citations` of an answer, `is_error` and `tool_name` of a tool result, the
    `usage` and `cost` of the model calls behind it, and the `provider_calls` of an answer or behind a result.
    """

    role: str
    content: tuple[ContentPart, ...]
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str = ""
    opaque: Mapping[str, object] = field(default_factory=dict, hash=False)
    attributes: Mapping[str, object] = field(default_factory=dict, hash=False)
    finish_reason: str | None = None
    tool_name: str | None = None
    is_error: bool = False
    usage: Usage | None = None
    cost: Decimal | None = None
    citations: tuple[Citation, ...] = ()
    provider_calls: tuple[ProviderCall, ...] = ()

    def __init__(
        self,
        role: str,
        content: str | Iterable[ContentPart] = (),
        *,
        tool_calls: Iterable[ToolCall] = (),
        opaque: Mapping[str, object] | None = None,
        attributes: Mapping[str, object] | None = None,
        name: str | None = None,
        tool_call_id: str | None = None,
        reasoning: str = "",
        finish_reason: str | None = None,
        tool_name: str | None = None,
        is_error: bool = False,
        usage: Usage | None = None,
        cost: Decimal | None = None,
        citations: Iterable[Citation] = (),
        provider_calls: Iterable[ProviderCall] = (),
    ) -> None:
        # Messages are built for every request. Writing only the given fields into the instance is three times as fast
        # as `object.__setattr__` for all; the others are class defaults.
        own = self.__dict__
        own["role"] = role
        own["content"] = (TextPart(content),) if isinstance(content, str) else _check_parts(content)
        if tool_calls != ():
            own["tool_calls"] = _check_calls(tool_calls)
        own["opaque"] = dict(opaque) if opaque else {}
        own["attributes"] = dict(attributes) if attributes else {}
        if name is not None:
            own["name"] = name
        if tool_call_id is not None:
            own["tool_call_id"] = tool_call_id
        if reasoning:
            own["reasoning"] = reasoning
        if finish_reason is not None:
            own["finish_reason"] = finish_reason
        if tool_name is not None:
            own["tool_name"] = tool_name
        if is_error:
            own["is_error"] = is_error
        if usage is not None:
            own["usage"] = usage
        if cost is not None:
            own["cost"] = cost
        if citations:
            own["citations"] = tuple(citations)
        if provider_calls:
            own["provider_calls"] = tuple(provider_calls)

    def __repr__(self) -> str:
        fields = [
            f"{name}={value!r}"
            for name in self.__dataclass_fields__
            if name not in ("role", "content") and (value := getattr(self, name))
        ]
        return f"Message({', '.join([repr(self.role), repr(self.content), *fields])})"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return write_table(list_rows(self))

    @property
    def text(self) -> str:
        """The joined text parts, without media."""
        return "".join([part.value for part in self.content if isinstance(part, TextPart)])

    @property
    def metadata(self) -> Mapping[str, object]:
        """A read-only view of all wire fields except role and content, by wire name."""
        reasoning: Json = {"reasoning_content": self.reasoning} if self.reasoning else {}
        return MappingProxyType({**self.attributes, **self.opaque, **self._wire_fields(), **reasoning})

    def _wire_fields(self) -> Json:
        wire: Json = {}
        if self.name is not None:
            wire["name"] = self.name
        if self.tool_calls:
            wire["tool_calls"] = [call.to_wire() for call in self.tool_calls]
        if self.tool_call_id is not None:
            wire["tool_call_id"] = self.tool_call_id
        return wire

    def to_json(self) -> Json:
        """Return the message as plain JSON in the form of document 001. Fields without a value are omitted."""
        json: Json = {"role": self.role, "content": self._content_to_json(), **self._wire_fields()}
        if self.reasoning:
            json["reasoning"] = self.reasoning
        if self.opaque:
            blocks = dict(self.opaque)
            if "reasoning_details" in blocks:
                json["reasoning_details"] = blocks.pop("reasoning_details")
            json |= {"opaque": blocks} if blocks else {}
        if self.attributes:
            json["attributes"] = self.attributes
        if self.finish_reason is not None:
            json["finishReason"] = self.finish_reason
        if self.tool_name is not None:
            json["toolName"] = self.tool_name
        if self.is_error:
            json["isError"] = True
        if self.usage is not None:
            json |= {"usage": self.usage.to_json(), "cost": None if self.cost is None else str(self.cost)}
        if self.citations:
            json["citations"] = [citation.to_json() for citation in self.citations]
        if self.provider_calls:
            json["providerCalls"] = [call.to_json() for call in self.provider_calls]
        return json

    def _content_to_json(self) -> str | list[Json]:
        if len(self.content) == 1 and type(part := self.content[0]) is TextPart and part.extra is None:
            return part.value
        return [part_to_json(part) for part in self.content]

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Self:
        """Read what `to_json` wrote, or a message in the form of the chat API or of the documents, which keep wire
        fields under `metadata` (§7.4.1) and may have `parts` instead of `content`. Raise InvalidMessage otherwise."""
        if not isinstance(value, Mapping):
            raise InvalidMessage(f"expected a message, got {type(value).__name__}")
        if "metadata" in value:
            value = _merge_metadata(value)
        role = value.get("role")
        if role not in MESSAGE_ROLES:
            raise InvalidMessage(f"the role is {role!r}; it must be one of {', '.join(MESSAGE_ROLES)}")
        fields: dict[str, Any] = {}
        for key, entry in value.items():
            if entry is not None and key in _FIELDS:
                name, parse = _FIELDS[key]
                if (parsed := parse(entry)) is not None:
                    fields[name] = parsed
        if (details := value.get("reasoning_details")) is not None:
            fields["opaque"] = {**fields.get("opaque", {}), "reasoning_details": details}
        return cls(str(role), parse_content(_get_content(value, fields)), **fields)


def list_rows(message: Message) -> Iterator[Row]:
    """Yield the rows of a message in a table: its reasoning, its parts, its calls and its sources."""
    name = f"{message.role} {message.tool_name or message.name or ''}".rstrip()
    yield f"{name}, reasoning", message.reasoning
    for part in message.content:
        if isinstance(part, MediaPart):
            yield name, f"{part.kind} {part.media_type or ''}, {len(part.value):,} characters"
        else:
            yield name, part.value
    yield from ((f"{name} calls {call.name}", call.arguments) for call in message.tool_calls)
    for ran in message.provider_calls:
        yield f"{ran.tool} at the provider", f"{ran.error or ran.status}\n{to_text(dict(ran.input))}"
    for cited in list_sources(message.citations):
        yield "source", "\n".join(filter(None, (cited.title, cited.url or cited.file_id, cited.quote)))


def _get_content(value: Mapping[str, object], fields: Mapping[str, Any]) -> object:
    """Return the content of a message's JSON, which may be under `parts`. Raise InvalidMessage if it has none."""
    content, parts = value.get("content"), value.get("parts")
    if content is not None and parts is not None:
        raise InvalidMessage("a message has `content` or `parts`, not both")
    found = parts if content is None else content
    has_null = "content" in value and value["role"] in ("assistant", "tool")  # as in the chat API
    if found is None and not has_null and not any(fields.get(name) for name in _CONTENT_FIELDS):
        known = ", ".join(f"`{key}`" for key in value if key not in ("role", "content", "parts"))
        others = f", and this one has {known}" if known else ""
        raise InvalidMessage(f"a message needs `content` or `parts`{others}")
    return found


def _merge_metadata(value: Mapping[str, object]) -> Json:
    """Return a message's JSON with the entries of `metadata` where they belong. Attributes are text, numbers and
    booleans; providers' blocks are not."""
    metadata = _mapping(value["metadata"] or {})
    fields = {key: entry for key, entry in metadata.items() if key in _WIRE_FIELDS}
    others = {key: entry for key, entry in metadata.items() if key not in fields}
    blocks = {key: entry for key, entry in others.items() if isinstance(entry, list | dict)}
    attributes = {key: entry for key, entry in others.items() if key not in blocks}
    return {**fields, "opaque": blocks or None, "attributes": attributes or None, **value}


def _mapping(value: object) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    raise InvalidMessage(f"expected an object, got {type(value).__name__}")


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _parse_calls(value: object) -> list[ToolCall]:
    calls = value if isinstance(value, list | tuple) else ()
    return [ToolCall.from_wire(call) for call in calls if isinstance(call, Mapping)]


def _parse_usage(value: object) -> Usage | None:
    if not isinstance(value, Mapping):
        return None
    counts: dict[str, Any] = {name: count for name in _TOKEN_COUNTS if isinstance(count := value.get(name), int)}
    requests = value.get("requests")
    if isinstance(requests, Mapping) and all(count is None or isinstance(count, int) for count in requests.values()):
        counts["requests"] = requests
    return Usage(**counts)


def _parse_cost(value: object) -> Decimal:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        raise InvalidMessage(f"expected a number as cost, got {value!r}") from None


# JSON key of a message → field and parser, except for role and content.
_WIRE_FIELDS = ("name", "tool_calls", "tool_call_id", "reasoning", "reasoning_content", "reasoning_details")
_CONTENT_FIELDS = ("tool_calls", "reasoning", "opaque")  # a message with one of these may have no content
_FIELDS: dict[str, tuple[str, Callable[[object], object]]] = {
    "name": ("name", str),
    "tool_calls": ("tool_calls", _parse_calls),
    "tool_call_id": ("tool_call_id", _string),
    "reasoning": ("reasoning", lambda value: _string(value) or None),
    "reasoning_content": ("reasoning", lambda value: _string(value) or None),
    "opaque": ("opaque", _mapping),
    "attributes": ("attributes", _mapping),
    "finishReason": ("finish_reason", _string),
    "toolName": ("tool_name", _string),
    "isError": ("is_error", bool),
    "usage": ("usage", _parse_usage),
    "cost": ("cost", _parse_cost),
    "citations": ("citations", lambda value: parse_citations(value) or None),
    "providerCalls": ("provider_calls", lambda value: parse_provider_calls(value) or None),
}


def parse_messages(value: object) -> list[Message]:
    """Parse a conversation: a list of messages or their JSON, or a mapping with such a list under `messages`."""
    if isinstance(value, Mapping):
        value = value.get("messages")
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidMessage(f"expected a list of messages, got {type(value).__name__}")
    return [entry if isinstance(entry, Message) else Message.from_json(entry) for entry in value]


def _check_parts(content: Any) -> tuple[ContentPart, ...]:
    """Return the parts as a tuple. Raise WrongArgument for anything that is not a part."""
    parts = tuple(content) if isinstance(content, Iterable) else (content,)
    for part in parts:
        if not isinstance(part, Part):
            raise WrongArgument("a message", part, "text or parts", "Pass text, TextPart, Image, Audio or File.")
    return parts


def _check_calls(calls: Any) -> tuple[ToolCall, ...]:
    """Return the calls as a tuple. Raise WrongArgument for anything that is not a `ToolCall`."""
    checked = tuple(calls) if isinstance(calls, Iterable) and not isinstance(calls, str) else (calls,)
    for call in checked:
        if not isinstance(call, ToolCall):
            fix = "Write ToolCall(id=…, name=…, arguments='{…}'), or parse a whole message with Message.from_json."
            raise WrongArgument("tool_calls", call, "a list of ToolCall", fix)
    return checked


def _parts(content: Iterable[str | ContentPart]) -> list[ContentPart]:
    return [TextPart(part) if isinstance(part, str) else part for part in content]


def system(*content: str | ContentPart) -> Message:
    """Return a system message."""
    return Message("system", _parts(content))


def user(*content: str | ContentPart) -> Message:
    """Return a user message."""
    return Message("user", _parts(content))


def assistant(
    *content: str | ContentPart,
    tool_calls: Iterable[ToolCall] = (),
    reasoning: str = "",
    opaque: Mapping[str, object] | None = None,
) -> Message:
    """Return an assistant message."""
    return Message("assistant", _parts(content), tool_calls=tool_calls, reasoning=reasoning, opaque=opaque)


def tool_result(tool_call_id: str, *content: str | ContentPart, is_error: bool = False) -> Message:
    """Return the result of a tool call."""
    return Message("tool", _parts(content), tool_call_id=tool_call_id, is_error=is_error)


_NO_USAGE = Usage()
_RARE = ("citations", "parts", "provider_calls")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """A reply. `opaque` holds the blocks of this turn that go back to the same API unchanged (reasoning, items).
    `parts` are the images that the answer generated. `value` is the result of an API that does not return a message
    (vectors, images). `citations` are the sources of the text, and `provider_calls` the tools that the provider ran for
    it."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    refusal: str | None = None
    finish_reason: str | None = None
    usage: Usage = _NO_USAGE
    id: str | None = None
    model: str | None = None
    opaque: Json = field(default_factory=dict)
    value: object = None
    parts: tuple[ContentPart, ...] = ()
    citations: tuple[Citation, ...] = ()
    provider_calls: tuple[ProviderCall, ...] = ()

    def __post_init__(self) -> None:
        # unchecked data from a provider
        texts: tuple[object, ...] = (self.text, self.reasoning, self.refusal, self.finish_reason, self.id, self.model)
        for value in texts:
            if value is not None and not isinstance(value, str):
                raise TypeError(f"a part of the reply must be text, not {type(value).__name__}")

    def message(self) -> Message:
        """Return the reply as a message of the conversation."""
        text = [TextPart(self.text)] if self.text and self.parts else []
        return Message(
            "assistant",
            [*text, *self.parts] if self.parts else self.text or (),
            tool_calls=self.tool_calls,
            reasoning=self.reasoning,
            opaque=self.opaque,
            finish_reason=self.finish_reason or None,
            citations=self.citations,
            provider_calls=self.provider_calls,
        )

    def to_json(self) -> Json:
        """Return plain JSON for `from_json`. Citations, images and provider calls are omitted if there are none."""
        json: Json = {name: getattr(self, name) for name in self.__slots__ if name not in _RARE}
        calls = [{name: getattr(call, name) for name in ToolCall.__slots__} for call in self.tool_calls]
        if self.citations:
            json["citations"] = [citation.to_json() for citation in self.citations]
        if self.provider_calls:
            json["provider_calls"] = [call.to_json() for call in self.provider_calls]
        if self.parts:
            json["parts"] = [part_to_json(part) for part in self.parts]
        return {**json, "tool_calls": calls, "usage": self.usage.to_json()}

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Parse the result of `to_json`."""
        data = cast(dict[str, Any], dict(value))
        data |= {
            "tool_calls": tuple(ToolCall(**call) for call in data["tool_calls"]),
            "usage": Usage(**data["usage"]),
            "parts": tuple(parse_content(data.get("parts"))),
        }
        if "citations" in data:
            data["citations"] = parse_citations(data["citations"])
        if "provider_calls" in data:
            data["provider_calls"] = parse_provider_calls(data["provider_calls"])
        return cls(**data)
