"""Any value of the package as JSON, so that two versions of it can be compared.

It reads attributes and imports nothing of the package: stored expectations and both sides of the differential tests are
written by the same lines, whatever the classes are called and wherever they live.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

# Fields that were renamed since, by the name they had in the first version.
_FIRST_NAMES = {"opaque": "metadata"}
_FIRST_LOCAL = {"finishReason": "finish_reason", "toolName": "tool_name", "isError": "is_error"} | {
    name: name for name in ("usage", "cost")
}
_NEW_IN_USAGE = ("cache_write_1h_tokens",)  # part of its JSON only if it is set
_NEW_IN_PAUSED = ("calls", "policy", "stored", "signature", "checksum")
_NEW_IN_CALLS = ("bound", "definition")
_ERROR_FIELDS = ("status", "retryable", "retry_after", "limit", "reason", "refusal", "name")


def plain(value: Any) -> Any:
    """Return `value` as JSON: dataclasses with the names of their types, messages by their meaning."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, BaseException):
        return _error(value)
    return _object(value)


def _object(value: Any) -> Any:
    if isinstance(value, Enum | Decimal):
        return str(value)
    if isinstance(value, Path):
        return value.name
    if hasattr(value, "role") and hasattr(value, "tool_calls"):
        return _message(value)
    if hasattr(value, "pending") and hasattr(value, "to_json"):
        return {"type": type(value).__name__, **_paused(plain(value.to_json()))}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return {
            "type": type(value).__name__,
            **{
                _FIRST_NAMES.get(field.name, field.name): plain(getattr(value, field.name))
                for field in fields(value)
                if field.name not in _NEW_IN_USAGE or getattr(value, field.name) is not None
            },
        }
    raise TypeError(f"{type(value).__name__} has no plain form")


def _paused(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the stored form of a Paused value as the first version wrote it."""
    messages = {name: [_first_form(entry) for entry in stored[name]] for name in ("messages", "results")}
    if "calls" in stored:
        pending = [call for call in stored["calls"] if call["key"] not in stored["decided"]]
        stored = {name: entry for name, entry in stored.items() if name not in _NEW_IN_PAUSED}
        stored |= {"pending": [{name: call[name] for name in call if name not in _NEW_IN_CALLS} for call in pending]}
        stored["version"] = 1
    return {**stored, **messages}


def _first_form(message: Any) -> Any:
    if message is None:
        return None
    given = dict(message)
    role, content = given.pop("role"), given.pop("content")
    parts = [{"kind": "text", "value": content}] if isinstance(content, str) else content
    local = {old: given.pop(new) for new, old in _FIRST_LOCAL.items() if new in given} | given.pop("local", {})
    metadata = {**given.pop("metadata", {}), **given.pop("opaque", {}), **given.pop("attributes", {})}
    metadata |= {"reasoning_content" if name == "reasoning" else name: entry for name, entry in given.items()}
    kept = {"metadata": metadata, "local": local}
    return {"role": role, "content": parts, **{name: entry for name, entry in kept.items() if entry}}


def _message(message: Any) -> dict[str, Any]:
    """Return what a message means: its metadata may be written in another way, as long as this stays the same."""
    made: dict[str, Any] = {
        "role": message.role,
        "content": [_part(part) for part in message.content],
        "tool_calls": [plain(call) for call in message.tool_calls],
        "tool_call_id": message.tool_call_id,
        "reasoning": message.reasoning,
        "is_error": _local(message, "is_error"),
        "finish_reason": _local(message, "finish_reason"),
    }
    return {name: entry for name, entry in made.items() if entry or name in ("role", "content")}


def _part(part: Any) -> dict[str, Any]:
    shown = {name: getattr(part, name, None) for name in ("kind", "value", "media_type", "detail", "name")}
    return {name: entry for name, entry in shown.items() if entry is not None}


def _local(message: Any, name: str) -> Any:
    return getattr(message, name, None) or getattr(message, "local", {}).get(name)


def _error(error: BaseException) -> dict[str, Any]:
    made: dict[str, Any] = {"type": type(error).__name__, "text": str(error)}
    made |= {name: plain(getattr(error, name)) for name in _ERROR_FIELDS if getattr(error, name, None) is not None}
    if getattr(error, "messages", ()):
        made["messages"] = plain(error.messages)  # type: ignore[attr-defined]  # those of a PromptyError
    return made
