"""What a model answered, whatever its provider."""

from dataclasses import asdict, dataclass, field
from typing import Any, cast

from prompty.model.message import Json, Message, TextPart, ToolCall


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens of one call; None where the provider did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    def to_json(self) -> dict[str, int | None]:
        """The counts by their names; the short way round `asdict`, which copies deeply."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """One answer. `metadata` holds what of this turn goes back to the same API verbatim (reasoning, items, blocks);
    `value` is the result of an API that answers with something else than a message (vectors, images)."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    refusal: str | None = None
    finish_reason: str | None = None
    usage: Usage = Usage()
    id: str | None = None
    model: str | None = None
    metadata: Json = field(default_factory=dict)
    value: object = None

    def message(self) -> Message:
        """The answer as an entry of the conversation."""
        metadata = dict(self.metadata)
        if self.tool_calls:
            metadata["tool_calls"] = [tool_call_to_wire(call) for call in self.tool_calls]
        if self.reasoning:
            metadata.setdefault("reasoning_content", self.reasoning)
        local: Json = {"finish_reason": self.finish_reason} if self.finish_reason else {}
        return Message("assistant", [TextPart(self.text)] if self.text else [], metadata, local)

    def to_json(self) -> Json:
        """The answer as plain JSON; `reply_from` reads it."""
        return asdict(self)


def reply_from(value: Json) -> Reply:
    """Read what `to_json` wrote."""
    data = cast(dict[str, Any], value)
    calls = tuple(ToolCall(**call) for call in data["tool_calls"])
    return Reply(**{**data, "tool_calls": calls, "usage": Usage(**data["usage"])})


def tool_call_to_wire(call: ToolCall) -> Json:
    """A call in the form of the chat API, which is also how messages keep it."""
    wire: Json = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    return {**wire, "extra_content": call.extra} if call.extra else wire
