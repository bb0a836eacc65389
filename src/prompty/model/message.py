"""Messages and what they hold: what flows between the stages, the loop and the wire.

What may cross the wire beside role and content lives in `metadata` under its wire name; what never does
(`finish_reason`, `is_error`, timing) lives in `local`.
"""

from base64 import b64encode
from dataclasses import dataclass, field
from mimetypes import guess_type
from pathlib import Path
from typing import ClassVar, Self

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class TextPart:
    """Words."""

    kind: ClassVar[str] = "text"
    value: str


@dataclass(frozen=True, slots=True)
class MediaPart:
    """What is not words: `value` is a URL, a data URI, or base64 with a media type beside it."""

    kind: ClassVar[str]
    value: str
    media_type: str | None = None

    @classmethod
    def from_file(cls, path: str | Path, media_type: str | None = None) -> Self:
        """Read a local file. Only this reads one: text given as an input is never taken for a path."""
        file = Path(path)
        media_type = media_type or guess_type(file.name)[0] or "application/octet-stream"
        return cls(b64encode(file.read_bytes()).decode("ascii"), media_type)


@dataclass(frozen=True, slots=True)
class ImagePart(MediaPart):
    kind: ClassVar[str] = "image"
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class AudioPart(MediaPart):
    kind: ClassVar[str] = "audio"


@dataclass(frozen=True, slots=True)
class FilePart(MediaPart):
    """A document; `value` may also be the id the provider gave an uploaded one."""

    kind: ClassVar[str] = "file"
    name: str | None = None

    @classmethod
    def from_file(cls, path: str | Path, media_type: str | None = None) -> Self:
        part = super(FilePart, cls).from_file(path, media_type)
        return cls(part.value, part.media_type, Path(path).name)


Image, Audio, File = ImagePart, AudioPart, FilePart
ContentPart = TextPart | ImagePart | AudioPart | FilePart


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """One call the model asked for; `arguments` stays JSON text until it runs (§8.7). `extra` is what a provider put
    beside it and wants back with it, like the signature of the thoughts that led to it."""

    id: str
    name: str
    arguments: str = "{}"
    extra: Json = field(default_factory=dict, hash=False, repr=False)

    def to_json(self) -> Json:
        """The call as plain JSON, in our own shape."""
        return {"id": self.id, "name": self.name, "arguments": self.arguments}


@dataclass(slots=True)
class Message:
    """One entry of a conversation."""

    role: str
    content: list[ContentPart]
    metadata: dict[str, object] = field(default_factory=dict)
    local: dict[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The words of the message, without what is between them."""
        return "".join(part.value for part in self.content if isinstance(part, TextPart))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls of an assistant's turn, read from `metadata`."""
        return [_tool_call_from(entry) for entry in _entries(self.metadata.get("tool_calls"))]

    @property
    def tool_call_id(self) -> str | None:
        """The call a tool's result answers."""
        found = self.metadata.get("tool_call_id")
        return found if isinstance(found, str) else None

    @property
    def reasoning(self) -> str:
        """What the model thought before this turn, where it said so."""
        found = self.metadata.get("reasoning_content") or self.metadata.get("reasoning")
        return found if isinstance(found, str) else ""

    def to_json(self) -> Json:
        """The message as plain JSON, in our own shape (not a provider's)."""
        json: Json = {"role": self.role, "content": [part_to_json(part) for part in self.content]}
        json |= {"metadata": self.metadata} if self.metadata else {}
        return {**json, "local": self.local} if self.local else json


def _entries(value: object) -> list[Json]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list | tuple) else []


def _tool_call_from(entry: Json) -> ToolCall:
    function = entry.get("function")
    named = function if isinstance(function, dict) else {}
    arguments, extra = named.get("arguments"), entry.get("extra_content")
    return ToolCall(
        id=str(entry.get("id") or ""),
        name=str(named.get("name") or ""),
        arguments=arguments if isinstance(arguments, str) else "{}",
        extra=extra if isinstance(extra, dict) else {},
    )


_JSON_NAMES = {"value": "value", "media_type": "mediaType", "detail": "detail", "name": "name"}


def part_to_json(part: ContentPart) -> Json:
    """A part as plain JSON, in our own shape."""
    if type(part) is TextPart:
        return {"kind": "text", "value": part.value}
    given = {shown: getattr(part, name, None) for name, shown in _JSON_NAMES.items()}
    return {"kind": part.kind, **{name: value for name, value in given.items() if value is not None}}


def message(role: str, *content: str | ContentPart, **metadata: object) -> Message:
    """A message of any role; text becomes a text part."""
    return Message(role, [TextPart(part) if isinstance(part, str) else part for part in content], metadata)


def system(*content: str | ContentPart) -> Message:
    return message("system", *content)


def user(*content: str | ContentPart) -> Message:
    return message("user", *content)


def assistant(*content: str | ContentPart, **metadata: object) -> Message:
    return message("assistant", *content, **metadata)


def tool_result(tool_call_id: str, *content: str | ContentPart) -> Message:
    return message("tool", *content, tool_call_id=tool_call_id)
