"""Message content: text, images, audio and files, and their JSON."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from mimetypes import guess_type
from pathlib import Path
from typing import ClassVar, Self

from prompty.errors import InvalidMessage


@dataclass(frozen=True, slots=True, repr=False)
class Part:
    """One part of a message. `extra` has further keys of the wire format, such as `cache_control` (001)."""

    kind: ClassVar[str]
    value: str
    extra: Mapping[str, object] | None = field(default=None, kw_only=True, hash=False)

    def __repr__(self) -> str:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        shown = [f"{name}={value!r}" for name, value in values.items() if name != "extra" or value]
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, slots=True, repr=False)
class TextPart(Part):
    """Text."""

    kind: ClassVar[str] = "text"


@dataclass(frozen=True, slots=True, repr=False)
class MediaPart(Part):
    """Media: `value` is a URL, a data URI, or base64 with a media type."""

    media_type: str | None = None

    @classmethod
    def from_file(cls, path: str | Path, media_type: str | None = None) -> Self:
        """Read a local file. Nothing else does: text in an input is never treated as a path."""
        file = Path(path)
        media_type = media_type or guess_type(file.name)[0] or "application/octet-stream"
        return cls(b64encode(file.read_bytes()).decode("ascii"), media_type)


@dataclass(frozen=True, slots=True, repr=False)
class ImagePart(MediaPart):
    """An image. `detail` is the resolution at which the model reads it."""

    kind: ClassVar[str] = "image"
    detail: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class AudioPart(MediaPart):
    """A recording."""

    kind: ClassVar[str] = "audio"


@dataclass(frozen=True, slots=True, repr=False)
class FilePart(MediaPart):
    """A document. `value` may also be the provider's id of an uploaded file."""

    kind: ClassVar[str] = "file"
    name: str | None = None

    @classmethod
    def from_file(cls, path: str | Path, media_type: str | None = None) -> Self:
        """Read a local file and keep its name."""
        part = super(FilePart, cls).from_file(path, media_type)
        return cls(part.value, part.media_type, Path(path).name)


Image = ImagePart
Audio = AudioPart
File = FilePart
ContentPart = TextPart | ImagePart | AudioPart | FilePart


_JSON_NAMES = {"value": "value", "media_type": "mediaType", "detail": "detail", "name": "name", "extra": "extra"}


def part_to_json(part: ContentPart) -> dict[str, object]:
    """Return a part in prompty's own JSON form."""
    if type(part) is TextPart and part.extra is None:
        return {"kind": "text", "value": part.value}
    fields = {key: getattr(part, name, None) for name, key in _JSON_NAMES.items()}
    return {"kind": part.kind, **without_nulls(fields)}


def parse_content(value: object) -> str | Sequence[ContentPart]:
    """Parse message content: text, or parts in any form."""
    if isinstance(value, str):
        return value
    if value is None:
        return ()
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_parse_part(entry) for entry in value]
    raise InvalidMessage(f"expected text or a list of parts as content, got {type(value).__name__}")


def _parse_part(value: object) -> ContentPart:
    """Parse a part: text, prompty's JSON (`kind`), or the chat API's form (`type`)."""
    if isinstance(value, TextPart | ImagePart | AudioPart | FilePart):
        return value
    if isinstance(value, str):
        return TextPart(value)
    if not isinstance(value, Mapping):
        raise InvalidMessage(f"expected a part, got {type(value).__name__}")
    if "kind" in value:
        part, extra = _parse_own_part(value), value.get("extra")
        return replace(part, extra=dict(extra)) if isinstance(extra, Mapping) and extra else part
    part = _parse_wire_part(value)
    if len(value) == 2:  # the type, and the key that it names
        return part
    return replace(part, extra={key: entry for key, entry in value.items() if key not in ("type", value["type"])})


def _parse_own_part(value: Mapping[str, object]) -> ContentPart:
    if value["kind"] != "text":
        return parse_media(str(value["kind"]), value)
    if isinstance(text := value.get("value"), str):
        return TextPart(text)
    raise InvalidMessage("a part needs text under `value`")


def _parse_wire_part(value: Mapping[str, object]) -> ContentPart:
    match value:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "image_url", "image_url": {"url": str(url), **rest}}:
            return parse_media("image", {"value": url, **rest})
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form)}}:
            return AudioPart(data, f"audio/{form}")
        case {"type": "file", "file": {"file_id": str(identifier)}}:
            return FilePart(identifier)
        case {"type": "file", "file": {"file_data": str(data), **rest}}:
            return parse_media("file", {"value": data, "name": rest.get("filename")})
        case {"type": "file", "file": {"url": str(url)}}:
            return parse_media("file", url)
    raise InvalidMessage(f"unknown part type {value.get('type')!r}")


_MEDIA_CLASSES: dict[str, type[ImagePart | AudioPart | FilePart]] = {
    "image": ImagePart,
    "audio": AudioPart,
    "file": FilePart,
}


_FILE_IDS = ("file-", "file_", "assistant-")  # OpenAI, Anthropic and Azure


def parse_media(kind: str, value: object) -> ImagePart | AudioPart | FilePart:
    """Parse an image, audio or file from a part, a mapping, or text: a URL, a data URI, a provider's file id.

    Text is never treated as a path, because its author could choose which file is sent.
    """
    part_class = _MEDIA_CLASSES.get(kind)
    if part_class is None:
        raise InvalidMessage(f"unknown part kind {kind!r}")
    if isinstance(value, part_class):
        return value
    if isinstance(value, str):
        value = {"value": value}
    if not isinstance(value, Mapping):
        raise InvalidMessage(f"expected {kind} data, got {type(value).__name__}")
    text = next((text for name in ("value", "source", "url", "data") if isinstance(text := value.get(name), str)), None)
    if text is None:
        raise InvalidMessage("a part needs text under `value` or `source`")
    media_type = value.get("mediaType") or value.get("media_type")
    if media_type is None and "kind" not in value:  # prompty's own form is complete
        media_type = _media_type(text)
    if media_type is None and not text[:8].lower().startswith(("http://", "https://", "data:")):
        if kind != "file":
            raise InvalidMessage("expected a URL, a data URI, or base64 with a media type")
        if "kind" not in value and not text.startswith(_FILE_IDS):
            raise InvalidMessage("expected a URL, a data URI, a file id, or base64 with a media type")
    extra = value.get("detail") if kind == "image" else value.get("name") if kind == "file" else None
    known = str(media_type) if media_type is not None else None
    return part_class(text, known, *([str(extra)] if extra is not None else []))


def _media_type(text: str) -> str | None:
    """Return the media type of a data URI."""
    if text[:5].lower() != "data:":
        return None
    return text[5 : text.find(",") if "," in text[:300] else 5].partition(";")[0] or None


def without_nulls(value: Mapping[str, object]) -> dict[str, object]:
    """Return the entries that have a value."""
    return {name: entry for name, entry in value.items() if entry is not None}
