"""Threads, images, audio and files (§2.7, rich kinds): where the template writes one, it is put in.

A rich input is rendered as a placeholder with random digits of this one render; afterwards placeholders are looked
up in the table of this render only. Text that looks like a placeholder is text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from prompty.errors import InputError
from prompty.model.agent import PromptAgent
from prompty.model.message import AudioPart, ContentPart, FilePart, ImagePart, Message, TextPart
from prompty.model.property import RICH_KINDS
from prompty.pipeline.messages import NotAMessage, media_from, messages_from

Media = ImagePart | AudioPart | FilePart
Table = dict[str, Media | list[Message]]


def hide_rich(agent: PromptAgent, values: Mapping[str, object], digits: str) -> tuple[dict[str, object], Table]:
    """Put placeholders where the rich inputs were; the table says what each stands for."""
    shown, table = dict(values), Table()
    for index, declared in enumerate(agent.inputs):
        name, kind = declared.name, declared.kind
        if kind in RICH_KINDS and name in values:
            label = name if name.isidentifier() and "__" not in f"_{name}_" else str(index)
            placeholder = f"__PROMPTY_{kind.upper()}_{digits}_{label}__"
            table[placeholder] = _rich_value(name, kind, values[name])
            shown[name] = placeholder
    return shown, table


def _rich_value(name: str, kind: str, value: object) -> Media | list[Message]:
    try:
        return messages_from(value) if kind == "thread" else media_from(kind, value)
    except NotAMessage as error:
        raise InputError(name, f"Input '{name}' is not a usable {kind}: {error}", _FIXES[kind]) from None


_FIXES = {
    "thread": "Pass a list of messages, for example [{'role': 'user', 'content': 'Hi'}].",
    "image": "Pass a URL, a data URI, {'value': base64, 'mediaType': 'image/png'}, or Image.from_file(path).",
    "audio": "Pass a data URI, {'value': base64, 'mediaType': 'audio/wav'}, or Audio.from_file(path).",
    "file": "Pass a URL, a data URI, a file id, or File.from_file(path).",
}


def show_rich(messages: list[Message], table: Table) -> list[Message]:
    """Put the rich values in for their placeholders, in the order they were written."""
    return [made for message in messages for made in _expanded(message, table)]


def _expanded(message: Message, table: Table) -> Iterator[Message]:
    """A message whose text names a thread becomes: what stands before it, the thread, what stands after it."""
    pieces = _cut(message.text, table)
    if len(pieces) == 1 and isinstance(pieces[0], str):
        yield message
        return
    parts: list[ContentPart] = []
    for piece in [*pieces, list[Message]()]:
        if isinstance(piece, list):
            if worded := _worded(parts):
                yield replace(message, content=worded)
            yield from piece
            parts = []
        else:
            parts.append(TextPart(piece) if isinstance(piece, str) else piece)


def _cut(text: str, table: Table) -> list[str | Media | list[Message]]:
    pieces: list[str | Media | list[Message]] = [text]
    for placeholder, value in table.items():
        pieces = [cut for piece in pieces for cut in _cut_at(piece, placeholder, value)]
    return pieces


def _cut_at(
    piece: str | Media | list[Message], placeholder: str, value: Media | list[Message]
) -> Iterator[str | Media | list[Message]]:
    if not isinstance(piece, str):
        yield piece
        return
    for index, text in enumerate(piece.split(placeholder)):
        if index:
            yield value
        yield text


def _worded(parts: list[ContentPart]) -> list[ContentPart]:
    """Without newlines at the edges of the message, and without text that is only blanks between media."""
    for edge, strip in ((0, str.lstrip), (-1, str.rstrip)):
        if parts and isinstance(text := parts[edge], TextPart):
            parts[edge] = TextPart(strip(text.value, "\r\n"))
    return [part for part in parts if not isinstance(part, TextPart) or part.value.strip()]
