"""Tool results as the messages that the model reads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import get_args

from pydantic_core import to_json

from prompty.model.content import ContentPart, TextPart
from prompty.model.message import Message, ToolCall, Usage
from prompty.safety.redaction import mask_secrets

# Longer results are cut: they would fill any model's context, and cost accordingly.
MAX_RESULT_LENGTH = 500_000
_PARTS = get_args(ContentPart)


@dataclass(frozen=True, slots=True)
class Metered:
    """A result with the usage and cost of the model calls that made it; they count for the turn that called."""

    value: object
    usage: Usage
    cost: Decimal | None


def result_message(call: ToolCall, value: object, *, is_error: bool = False) -> Message:
    """Return the message of a result: text and parts as they are, everything else as JSON."""
    meter = value if isinstance(value, Metered) else None
    return Message(
        "tool",
        _to_parts(meter.value if meter else value),
        tool_call_id=call.id,
        tool_name=call.name,
        is_error=is_error,
        usage=meter.usage if meter else None,
        cost=meter.cost if meter else None,
    )


def error_message(call: ToolCall, text: str) -> Message:
    """Return the message of a call without a result; the model learns nothing but this text."""
    return result_message(call, f"Error: {mask_secrets(text)}", is_error=True)


def failure_message(call: ToolCall, error: Exception) -> Message:
    """Return the message of a call that raised."""
    reason = str(error).strip() or type(error).__name__
    return error_message(call, f"Tool '{call.name}' failed: {reason}")


def _to_parts(value: object) -> list[ContentPart]:
    """Return the parts of a result; text that is too long is cut."""
    if isinstance(value, str):
        return [_truncate(TextPart(value))]
    if isinstance(value, _PARTS):
        return [_truncate(value)]
    if isinstance(value, Sequence) and value and all(isinstance(part, _PARTS) for part in value):
        return [_truncate(part) for part in value]
    return [_truncate(TextPart(to_text(value)))]


def to_text(value: object) -> str:
    return "" if value is None else to_json(value, fallback=str, inf_nan_mode="strings").decode()


def _truncate(part: ContentPart) -> ContentPart:
    if not isinstance(part, TextPart) or len(part.value) <= MAX_RESULT_LENGTH:
        return part
    cut = len(part.value) - MAX_RESULT_LENGTH
    return replace(part, value=f"{part.value[:MAX_RESULT_LENGTH]}\n[{cut} more characters were cut off]")
