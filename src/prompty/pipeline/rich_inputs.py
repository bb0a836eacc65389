"""Insert threads, images, audio and files (§2.7, rich kinds) where the template references them.

A rich input is rendered as a placeholder with random digits, new for each render. Only these placeholders are replaced;
text that looks like one stays text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from prompty.errors import InputError, InvalidMessage
from prompty.model.agent import PromptAgent
from prompty.model.content import AudioPart, ContentPart, FilePart, ImagePart, TextPart, parse_media
from prompty.model.message import Message, parse_messages
from prompty.model.property import RICH_KINDS

Media = ImagePart | AudioPart | FilePart
Placeholders = dict[str, Media | list[Message]]


def hide_rich_inputs(
    agent: PromptAgent, values: Mapping[str, object], digits: str
) -> tuple[dict[str, object], Placeholders]:
    """Return the values with placeholders for rich inputs, and the rich values by placeholder."""
    hidden, placeholders = dict(values), Placeholders()
    for index, declared in enumerate(agent.inputs):
        name, kind = declared.name, declared.kind
        if kind in RICH_KINDS and name in values:
            label = name if name.isidentifier() and "__" not in f"_{name}_" else str(index)
            hidden[name] = placeholder = f"__PROMPTY_{kind.upper()}_{digits}_{label}__"
            placeholders[placeholder] = _parse_rich_value(name, kind, values[name])
    return hidden, placeholders


def _parse_rich_value(name: str, kind: str, value: object) -> Media | list[Message]:
    try:
        return parse_messages(value) if kind == "thread" else parse_media(kind, value)
    except InvalidMessage as error:
        raise InputError(name, f"Input '{name}' is not a valid {kind}: {error}", _FIXES[kind]) from None


_FIXES = {
    "thread": "Pass a list of messages, for example [{'role': 'user', 'content': 'Hi'}].",
    "image": "Pass a URL, a data URI, {'value': base64, 'mediaType': 'image/png'}, or Image.from_file(path).",
    "audio": "Pass a data URI, {'value': base64, 'mediaType': 'audio/wav'}, or Audio.from_file(path).",
    "file": "Pass a URL, a data URI, {'value': base64, 'mediaType': 'application/pdf'}, File('id'), or "
    "File.from_file(path).",
}


def insert_rich_inputs(messages: list[Message], placeholders: Placeholders) -> list[Message]:
    """Replace placeholders with their values, in the template's order."""
    return [expanded for message in messages for expanded in _expand(message, placeholders)]


def _expand(message: Message, placeholders: Placeholders) -> Iterator[Message]:
    """Yield the message with its media. A thread splits it: the text before, the thread, the text after."""
    pieces = [message.text]
    for placeholder in placeholders:
        split = [[cut for text in piece.split(placeholder) for cut in (placeholder, text)][1:] for piece in pieces]
        pieces = [cut for cuts in split for cut in cuts]
    if len(pieces) == 1:
        yield message
        return
    parts: list[ContentPart] = []
    for piece in pieces:
        value = placeholders.get(piece, TextPart(piece))
        if isinstance(value, list):
            yield from _with_content(message, parts)
            yield from value
            parts = []
        else:
            parts.append(value)
    yield from _with_content(message, parts)


def _with_content(message: Message, parts: list[ContentPart]) -> Iterator[Message]:
    """Yield the message with these parts, unless they are blank. Newlines at its edges are stripped, and blank text
    between media is dropped."""
    for edge, strip in ((0, str.lstrip), (-1, str.rstrip)):
        if isinstance(text := parts[edge], TextPart):
            parts[edge] = TextPart(strip(text.value, "\r\n"))
    content = [part for part in parts if not isinstance(part, TextPart) or part.value.strip()]
    if content:
        yield replace(message, content=tuple(content))
