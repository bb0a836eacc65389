"""Messages and media from what people pass in: our own objects, our JSON, or a provider's wire form."""

from collections.abc import Mapping, Sequence
from typing import cast

from prompty.model.message import AudioPart, ContentPart, FilePart, ImagePart, Message, TextPart

MESSAGE_ROLES = ("system", "developer", "user", "assistant", "tool")
_CROSSING = ("tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning_details")
_PART_CLASSES: dict[str, type[ImagePart | AudioPart | FilePart]] = {
    "image": ImagePart,
    "audio": AudioPart,
    "file": FilePart,
}


class NotAMessage(ValueError):
    """What was given cannot be read as a message or as a part of one."""


def message_from(value: object) -> Message:
    """One message, from a `Message` or a dict."""
    if isinstance(value, Message):
        return value
    if not isinstance(value, Mapping):
        raise NotAMessage(f"expected a message, found {type(value).__name__}")
    role = value.get("role")
    if role not in MESSAGE_ROLES:
        raise NotAMessage(f"the role is {role!r}; it must be one of {', '.join(MESSAGE_ROLES)}")
    metadata = dict(cast(Mapping[str, object], value.get("metadata") or {}))
    metadata |= {name: value[name] for name in _CROSSING if value.get(name) is not None}
    local = dict(cast(Mapping[str, object], value.get("local") or {}))
    return Message(str(role), _content(value.get("content")), metadata, local)


def messages_from(value: object) -> list[Message]:
    """A conversation: a list of messages, or a dict that has one under `messages`."""
    if isinstance(value, Mapping):
        value = value.get("messages")
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise NotAMessage(f"expected a list of messages, found {type(value).__name__}")
    return [message_from(entry) for entry in value]


def _content(value: object) -> list[ContentPart]:
    if value is None:
        return []
    if isinstance(value, str):
        return [TextPart(value)]
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [part_from(entry) for entry in value]
    raise NotAMessage(f"expected text or a list of parts as content, found {type(value).__name__}")


def part_from(value: object) -> ContentPart:
    """One part, from a part, text, our JSON (`kind`) or the chat wire form (`type`)."""
    if isinstance(value, TextPart | ImagePart | AudioPart | FilePart):
        return value
    if isinstance(value, str):
        return TextPart(value)
    if not isinstance(value, Mapping):
        raise NotAMessage(f"expected a part, found {type(value).__name__}")
    if "kind" in value:
        return _from_json(str(value["kind"]), value)
    return _from_wire(value)


def _from_json(kind: str, value: Mapping[str, object]) -> ContentPart:
    if kind == "text":
        return TextPart(_text(value, "value"))
    return media_from(kind, value)


def _from_wire(value: Mapping[str, object]) -> ContentPart:
    match value:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "image_url", "image_url": {"url": str(url), **rest}}:
            return media_from("image", {"value": url, **rest})
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form)}}:
            return AudioPart(data, f"audio/{form}")
        case {"type": "file", "file": {"file_id": str(identifier)}}:
            return FilePart(identifier)
        case {"type": "file", "file": {"file_data": str(data), **rest}}:
            return media_from("file", {"value": data, "name": rest.get("filename")})
    raise NotAMessage(f"a part of type {value.get('type')!r} is not known here")


def media_from(kind: str, value: object) -> ImagePart | AudioPart | FilePart:
    """An image, audio or file, from a part, a dict, or text: a URL, a data URI, a provider's file id.

    Text is never read as a path: who controls the text would control which file is sent.
    """
    part_class = _PART_CLASSES.get(kind)
    if part_class is None:
        raise NotAMessage(f"a part of kind {kind!r} is not known here")
    if isinstance(value, part_class):
        return value
    if isinstance(value, str):
        value = {"value": value}
    if not isinstance(value, Mapping):
        raise NotAMessage(f"expected {kind} data, found {type(value).__name__}")
    text = _text(value, "value", "url", "data")
    media_type = value.get("mediaType") or value.get("media_type") or _media_type_of(text)
    if media_type is None and not _is_url(text) and kind != "file":
        raise NotAMessage("this is neither a URL nor a data URI, and base64 needs a media type beside it")
    extra = value.get("detail") if kind == "image" else value.get("name") if kind == "file" else None
    known = str(media_type) if media_type is not None else None
    return part_class(text, known, *([str(extra)] if extra is not None else []))


def _text(value: Mapping[str, object], *names: str) -> str:
    for name in names:
        found = value.get(name)
        if isinstance(found, str):
            return found
    raise NotAMessage(f"a part needs text under `{names[0]}`")


def _is_url(text: str) -> bool:
    return text[:8].lower().startswith(("http://", "https://", "data:"))


def _media_type_of(text: str) -> str | None:
    if text[:5].lower() != "data:":
        return None
    return text[5 : text.find(",") if "," in text[:300] else 5].partition(";")[0] or None
