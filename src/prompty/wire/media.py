"""Media values in the forms the APIs take: a data URI, bare base64 with its type, or a URL."""

import re
from base64 import b64encode
from typing import NamedTuple

from prompty.errors import RequestError
from prompty.model.content import AudioPart, FilePart, ImagePart, TextPart
from prompty.model.message import Message

_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")


class Encoded(NamedTuple):
    """Base64 data and what it is."""

    media_type: str
    data: str


def is_url(value: str) -> bool:
    return value[:8].lower().startswith(("http://", "https://"))


def encoded(part: ImagePart | AudioPart | FilePart) -> Encoded | None:
    """The data of a part that carries its own; None when it is a URL or an id."""
    if part.value[:5].lower() == "data:":
        head, _, data = part.value[5:].partition(",")
        media_type = _bare(head) or _bare(part.media_type or "") or "application/octet-stream"
        return Encoded(media_type, data if head.lower().endswith(";base64") else _base64(data))
    if is_url(part.value) or part.media_type is None:
        return None
    return Encoded(_bare(part.media_type), part.value)


def _bare(media_type: str) -> str:
    """A media type without its parameters."""
    return media_type.partition(";")[0].strip()


def _base64(text: str) -> str:
    """What a data URI holds in percent signs instead of base64."""
    data = _PERCENT.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode())
    return b64encode(data).decode("ascii")


def data_uri(found: Encoded) -> str:
    return f"data:{found.media_type};base64,{found.data}"


def only_text(message: Message) -> str:
    """The text of a message that may hold nothing else."""
    for part in message.content:
        if not isinstance(part, TextPart):
            raise RequestError(
                f"{part.kind} data stands in the {message.role} message, where no provider takes any",
                "Move it into a user message.",
            )
    return message.text
