"""A model's reply, independent of the provider."""

from dataclasses import dataclass, field
from typing import Any, Self, cast

from prompty.model.message import Json, Message, ToolCall, Usage

_NO_USAGE = Usage()


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """A reply. `opaque` holds the blocks of this turn that go back to the same API unchanged (reasoning, items).
    `value` is the result of an API that does not return a message (vectors, images)."""

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

    def __post_init__(self) -> None:
        # unchecked data from a provider
        texts: tuple[object, ...] = (self.text, self.reasoning, self.refusal, self.finish_reason, self.id, self.model)
        for value in texts:
            if value is not None and not isinstance(value, str):
                raise TypeError(f"a part of the reply must be text, not {type(value).__name__}")

    def message(self) -> Message:
        """Return the reply as a message of the conversation."""
        return Message(
            "assistant",
            self.text or (),
            tool_calls=self.tool_calls,
            reasoning=self.reasoning,
            opaque=self.opaque,
            finish_reason=self.finish_reason or None,
        )

    def to_json(self) -> Json:
        """Return the reply as plain JSON for `from_json`."""
        json: Json = {name: getattr(self, name) for name in self.__slots__}
        calls = [{name: getattr(call, name) for name in ToolCall.__slots__} for call in self.tool_calls]
        return {**json, "tool_calls": calls, "usage": self.usage.to_json()}

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Parse the result of `to_json`."""
        data = cast(dict[str, Any], dict(value))
        data |= {
            "tool_calls": tuple(ToolCall(**call) for call in data["tool_calls"]),
            "usage": Usage(**data["usage"]),
        }
        return cls(**data)
