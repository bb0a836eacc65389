"""Blocks: the text of a request's body in the order in which providers compare it with their caches.

All three chat APIs cache the longest beginning of a request that they have seen before: the schema of the answer, then
the tools, then the instructions, and then the messages. A block is one of those pieces, with its place in the body.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from prompty.model.message import Json

BlockPath = tuple[str | int, ...]
_SCHEMAS = ("response_format", "text", "output_config")
_INSTRUCTIONS = ("instructions", "system")
_MESSAGES = ("messages", "input")
_TEXT_TYPES = ("text", "input_text", "output_text")


class Block(NamedTuple):
    """A piece of a body.

    `path` leads to it: `("messages", 2, "content", 0)` is the first part of the third message, and without the last
    number its only text. `head` is all that precedes the text: the role, a name, and the keys of a part.
    """

    path: BlockPath
    head: str
    text: str


def list_blocks(body: Json) -> list[Block]:
    """Return the blocks of a body for chat, Responses or Messages, in the order of the cache."""
    blocks = [Block((key,), key, _write(body[key])) for key in _SCHEMAS if body.get(key)]
    for at, tool in enumerate(_list_entries(body.get("tools"))):
        blocks.append(Block(("tools", at), "tool", _write(tool)))
    for key in _INSTRUCTIONS:
        if body.get(key):
            blocks += _read_content((key,), key, body[key])
    for key in _MESSAGES:
        for at, message in enumerate(_list_entries(body.get(key))):
            blocks += _read_message((key, at), message)
    return blocks


def _read_message(path: BlockPath, message: object) -> Iterator[Block]:
    if not isinstance(message, Mapping):
        yield Block(path, "", _write(message))
        return
    head = _write({key: value for key, value in message.items() if key != "content"})
    yield from _read_content((*path, "content"), head, message.get("content"))


def _read_content(path: BlockPath, head: str, content: object) -> Iterator[Block]:
    """Yield the parts of a content. The head of a message belongs to its first part."""
    if not isinstance(content, list) or not content:
        yield Block(path, head, content if isinstance(content, str) else _write(content or ""))
        return
    for at, part in enumerate(content):
        text = part.get("text") if isinstance(part, Mapping) and part.get("type") in _TEXT_TYPES else None
        if isinstance(text, str):
            others = {key: value for key, value in part.items() if key not in ("type", "text")}
            yield Block((*path, at), head + (_write(others) if others else ""), text)
        else:
            yield Block((*path, at), head + _write(part), "")
        head = ""


def _list_entries(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else ()


def _write(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
