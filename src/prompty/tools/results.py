"""Tool results as the messages that the model reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import get_args

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from prompty.errors import ModelError, PromptyError
from prompty.model.content import ContentPart, TextPart
from prompty.model.message import Message, ToolCall, Usage
from prompty.safety.redaction import mask_secrets
from prompty.safety.surrogates import repair_json, repair_text

# Longer results are truncated: they would fill any model's context, and cost accordingly.
MAX_RESULT_LENGTH = 500_000  # characters of text, in all parts together
MAX_MEDIA_LENGTH = 20_000_000  # characters of images, audio and files
MAX_RESULT_PARTS = 1_000
_PARTS = get_args(ContentPart)


class ReportedFailure(RuntimeError):
    """A service reported that a call failed. The model reads the text; the host's code did not fail."""


@dataclass(frozen=True, slots=True)
class Metered:
    """A result with the usage and cost of the model calls behind it, which count towards the calling turn."""

    value: object
    usage: Usage
    cost: Decimal | None


def result_message(call: ToolCall, value: object, *, is_error: bool = False) -> Message:
    """Return a result as a message: text and parts unchanged, everything else as JSON."""
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
    """Return the message for a call without a result. The model sees only this text."""
    return result_message(call, f"Error: {mask_secrets(text)}", is_error=True)


def failure_message(call: ToolCall, error: Exception) -> Message:
    """Return the message for a call that raised. It does not reveal which model failed where."""
    located = isinstance(error, ModelError) or (isinstance(error, PromptyError) and error.problem is not None)
    reason = str(getattr(error, "cause", error) if located else error).strip() or type(error).__name__
    return error_message(call, f"Tool '{call.name}' failed: {reason}")


def _to_parts(value: object) -> list[ContentPart]:
    """Return the parts of a result, within the limits."""
    if isinstance(value, str):
        return [_truncate(TextPart(repair_text(value)), MAX_RESULT_LENGTH)]
    if isinstance(value, _PARTS):
        return _limit([value])
    if isinstance(value, Sequence) and value and all(isinstance(part, _PARTS) for part in value):
        return _limit(value)
    return [_truncate(TextPart(to_text(value)), MAX_RESULT_LENGTH)]


def _limit(parts: Sequence[ContentPart]) -> list[ContentPart]:
    """Truncate the parts at the limits, and add a note on what was omitted."""
    kept: list[ContentPart] = []
    text = media = cut = left_out = 0
    for part in parts:
        length = len(part.value)
        room = len(kept) < MAX_RESULT_PARTS
        if not isinstance(part, TextPart):
            media += length
            if room and media <= MAX_MEDIA_LENGTH:
                kept.append(part)
            else:
                left_out += 1
            continue
        allowed = max(MAX_RESULT_LENGTH - text, 0) if room else 0
        text += length
        cut += max(length - allowed, 0)
        if length <= allowed or allowed:
            kept.append(TextPart(repair_text(part.value[:allowed])))
    notes = [f"{cut} more characters were omitted"] if cut else []
    notes += [f"{left_out} more images, recordings or files were omitted"] if left_out else []
    return [*kept, TextPart(f"[{'; '.join(notes)}]")] if notes else kept


def to_text(value: object) -> str:
    if value is None:
        return ""
    try:
        return to_json(value, fallback=str, inf_nan_mode="strings").decode()
    except PydanticSerializationError:  # perhaps a lone surrogate, for example in a file name
        plain = repair_json(to_jsonable_python(repair_json(value), fallback=str, inf_nan_mode="strings"))
        return to_json(plain, inf_nan_mode="strings").decode()


def _truncate(part: TextPart, limit: int) -> TextPart:
    cut = len(part.value) - limit
    return part if cut <= 0 else TextPart(f"{part.value[:limit]}\n[{cut} more characters were omitted]")
