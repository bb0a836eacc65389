"""Format a frame as plain text: figures, messages, arguments and results. The caller escapes it."""

import json
from collections.abc import Iterator

from prompty.model.message import Json
from prompty.viewer.trace import TOOL_CALL, Frame, object_or_empty


def format_transcript(frame: Frame) -> Iterator[str]:
    content = frame.content
    inputs = content.get("inputs")
    messages = inputs.get("messages") if isinstance(inputs, dict) else None
    if isinstance(messages, list) and messages and all(map(_is_message, messages)):
        for message in messages:
            yield from _format_message(message)
    elif "inputs" in content:
        yield from _format_value("arguments" if frame.name == TOOL_CALL else "inputs", inputs)
    if "result" in content:
        result = content["result"]
        yield from _format_message(result) if _is_message(result) else _format_value("result", result)


def _is_message(value: object) -> bool:
    role, content = object_or_empty(value).get("role"), object_or_empty(value).get("content")
    return isinstance(role, str) and isinstance(content, str | list)


def _format_message(value: object) -> Iterator[str]:
    message = object_or_empty(value)
    role, content, calls = str(message.get("role")), message.get("content"), message.get("tool_calls")
    if reasoning := message.get("reasoning"):
        yield from _format_value("reasoning", reasoning)
    for part in content if isinstance(content, list) else [{"kind": "text", "value": content}]:
        yield from _format_value(role, _format_part(object_or_empty(part)))
    for call in calls if isinstance(calls, list) else []:
        function = object_or_empty(object_or_empty(call).get("function"))
        yield f"{role} calls {function.get('name')}: {function.get('arguments')}"


def _format_part(part: Json) -> object:
    if part.get("kind") == "text":
        return part.get("value")
    size = len(str(part.get("value") or ""))
    return f"[{part.get('kind')} {part.get('name') or part.get('mediaType') or ''}, {size:,} characters]"


def _format_value(name: str, value: object) -> Iterator[str]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    first, *rest = text.split("\n")
    yield f"{name}: {first}"
    yield from (f"    {line}" for line in rest)


def format_duration(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "did not finish"
    if milliseconds < 1:
        return f"{milliseconds:.2f} ms"
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 59_950:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {seconds:02} s"


def format_tokens(usage: dict[str, int]) -> str:
    """Format input and output tokens like `1,204 → 56`. Return "" if none were counted."""
    if not usage:
        return ""
    return f"{usage.get('input_tokens', 0):,} → {usage.get('output_tokens', 0):,}"


def format_cost(frame: Frame) -> str:
    """Format dollars, with `≥` if a price is unknown. Return "" if all are unknown."""
    if frame.cost is None:
        return ""
    cost = frame.cost
    decimals = 2 if cost >= 1 or cost == 0 else max(2, 1 - cost.adjusted())  # two significant digits of a small sum
    return f"{'≥ ' if frame.cost_is_partial else ''}${cost:.{decimals}f}"
