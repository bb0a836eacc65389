"""Messages in the shape that OpenTelemetry's conventions give them: a role and parts."""

from typing import Any

from prompty.safety.json import read_json

Shown = dict[str, Any]


def system_instructions(messages: list[Shown]) -> list[Shown]:
    """The parts of what stands above the conversation."""
    return [part for message in messages if _is_instruction(message) for part in _parts(message)]


def input_messages(messages: list[Shown]) -> list[Shown]:
    """The conversation without its instructions."""
    return [{"role": one["role"], "parts": _parts(one)} for one in messages if not _is_instruction(one)]


def output_messages(message: object) -> list[Shown] | None:
    """What a model answered; None for what is no message (vectors, images)."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return None
    reason = message.get("finishReason") or "stop"
    return [{"role": "assistant", "parts": _parts(message), "finish_reason": reason}]


def tool_definitions(functions: list[Shown]) -> list[Shown]:
    return [{"type": "function", **function} for function in functions]


def _is_instruction(message: Shown) -> bool:
    return message["role"] in ("system", "developer")


def _parts(message: Shown) -> list[Shown]:
    content = message["content"]
    parts = [{"kind": "text", "value": content}] if isinstance(content, str) else content
    if message["role"] == "tool":
        text = "".join(str(part.get("value")) for part in parts)
        return [{"type": "tool_call_response", "id": message.get("tool_call_id"), "result": text}]
    reasoning = message.get("reasoning")
    thoughts = [{"type": "reasoning", "content": reasoning}] if reasoning else []
    return [*thoughts, *map(_part, parts), *map(_call, message.get("tool_calls") or [])]


def _part(part: Shown) -> Shown:
    if part["kind"] == "text":
        return {"type": "text", "content": part["value"]}
    about = {"modality": part["kind"], "mime_type": part.get("mediaType")}
    address = "uri" if str(part["value"]).startswith(("http:", "https:")) else "content"
    return {"type": "uri" if address == "uri" else "blob", address: part["value"], **about}


def _call(call: Shown) -> Shown:
    function = call.get("function", {})
    return {
        "type": "tool_call",
        "id": call.get("id"),
        "name": function.get("name"),
        "arguments": _read(function.get("arguments")),
    }


def _read(arguments: Any) -> Any:
    try:
        return read_json(arguments, strict=False)
    except (TypeError, ValueError):
        return arguments
