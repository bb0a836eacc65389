"""What was said in a frame, as lines of plain text. Nothing is escaped here: where it is shown decides that."""

import json
from collections.abc import Iterator

from prompty.model.message import Json
from prompty.viewer.trace import TOOL_CALL, Frame


def transcript(frame: Frame) -> Iterator[str]:
    """The messages, arguments and results of a frame."""
    inputs = frame.content.get("inputs")
    messages = inputs.get("messages") if isinstance(inputs, dict) else None
    if _is_conversation(messages):
        yield from _told(messages)
    elif "inputs" in frame.content:
        yield from _named("arguments" if frame.name == TOOL_CALL else "inputs", inputs)
    if "result" in frame.content:
        result = frame.content["result"]
        yield from _message(result) if _is_message(result) else _named("result", result)


def _told(value: object) -> Iterator[str]:
    for one in value if isinstance(value, list) else []:
        yield from _message(one)


def _is_conversation(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_message(one) for one in value)


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), list)


def _message(value: object) -> Iterator[str]:
    message = _object(value)
    metadata, content = _object(message.get("metadata")), message.get("content")
    if thought := metadata.get("reasoning_content"):
        yield from _named("reasoning", thought)
    for part in content if isinstance(content, list) else []:
        yield from _named(str(message.get("role")), _part(_object(part)))
    calls = metadata.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = _object(_object(call).get("function"))
        yield f"{message.get('role')} calls {function.get('name')}: {function.get('arguments')}"


def _part(part: Json) -> object:
    if part.get("kind") == "text":
        return part.get("value")
    size = len(str(part.get("value") or ""))
    return f"[{part.get('kind')} {part.get('name') or part.get('mediaType') or ''}, {size:,} characters]"


def _named(name: str, value: object) -> Iterator[str]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    first, *rest = text.split("\n")
    yield f"{name}: {first}"
    yield from (f"    {line}" for line in rest)


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}
