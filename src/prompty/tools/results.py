"""What a tool returned, as the message that the model reads."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import get_args

from pydantic_core import to_json

from prompty.model.message import ContentPart, Message, TextPart, ToolCall, tool_result
from prompty.model.reply import Usage
from prompty.safety.redaction import mask_secrets

# Longer results are cut: they would fill any model's context, and cost accordingly.
LONGEST_RESULT = 500_000
_PARTS = get_args(ContentPart)


@dataclass(frozen=True, slots=True)
class Metered:
    """A result, and what the models took that made it: it counts for the turn that asked."""

    value: object
    usage: Usage
    cost: Decimal | None


def result_message(call: ToolCall, value: object) -> Message:
    """The message of a result: text as it is, parts as they are, everything else as JSON."""
    shown = value.value if isinstance(value, Metered) else value
    message = tool_result(call.id, *content_of(shown))
    message.local["tool_name"] = call.name
    if isinstance(value, Metered):
        message.local |= {"usage": asdict(value.usage), "cost": None if value.cost is None else str(value.cost)}
    return message


def error_message(call: ToolCall, text: str) -> Message:
    """The message of a call that has no result; the text is all the model learns."""
    message = result_message(call, f"Error: {mask_secrets(text)}")
    message.local["is_error"] = True
    return message


def failure_message(call: ToolCall, error: Exception) -> Message:
    """The message of a call that raised."""
    reason = str(error).strip() or type(error).__name__
    return error_message(call, f"Tool '{call.name}' failed: {reason}")


def content_of(value: object) -> list[ContentPart]:
    if isinstance(value, str):
        return [_shortened(TextPart(value))]
    parts = value if isinstance(value, Sequence) and value and all(isinstance(one, _PARTS) for one in value) else None
    if parts is not None:
        return [_shortened(part) for part in parts]
    if isinstance(value, _PARTS):
        return [_shortened(value)]
    return [_shortened(TextPart(text_of(value)))]


def text_of(value: object) -> str:
    return "" if value is None else to_json(value, fallback=str, inf_nan_mode="strings").decode()


def _shortened(part: ContentPart) -> ContentPart:
    if not isinstance(part, TextPart) or len(part.value) <= LONGEST_RESULT:
        return part
    cut = len(part.value) - LONGEST_RESULT
    return replace(part, value=f"{part.value[:LONGEST_RESULT]}\n[{cut} more characters were cut off]")
