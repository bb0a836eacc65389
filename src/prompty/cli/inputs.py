"""`-i name=value` into inputs, read as the prompt declares them."""

import os
from collections.abc import Sequence
from pathlib import Path

from dotenv import dotenv_values

from prompty.errors import InputError
from prompty.model.agent import PromptAgent
from prompty.model.message import AudioPart, FilePart, ImagePart, MediaPart
from prompty.wire.strict_json import read_json

_MEDIA: dict[str, type[MediaPart]] = {"image": ImagePart, "audio": AudioPart, "file": FilePart}
_HOW = "Write -i name=value, -i name=@file to read a file, or -i name=@@text for text that begins with @."


def read_pairs(agent: PromptAgent, pairs: Sequence[str]) -> dict[str, object]:
    """The inputs a command line gives."""
    kinds = {declared.name: declared.kind for declared in agent.inputs}
    values: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(name, f"`{pair}` is not an input", _HOW)
        values[name] = _value(name, kinds.get(name, "string"), text)
    return values


def _value(name: str, kind: str, text: str) -> object:
    if text.startswith("@@"):
        return _typed(name, kind, text[1:])
    if not text.startswith("@"):
        return _typed(name, kind, text)
    path = Path(text[1:])
    try:
        media = _MEDIA.get(kind)
        return media.from_file(path) if media else _typed(name, kind, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(name, f"the file for input '{name}' cannot be read: {error}", _HOW) from None


def _typed(name: str, kind: str, text: str) -> object:
    """JSON for every kind that is not written as text."""
    if kind == "string" or kind in _MEDIA:
        return text
    try:
        return read_json(text)
    except ValueError as error:
        raise InputError(name, f"input '{name}' is declared as {kind}: {error}", "Write its value as JSON.") from None


def load_dotenv(prompt: Path) -> None:
    """Take variables from the nearest `.env` above the prompt; what is set already stays."""
    for folder in prompt.absolute().parents:
        if (folder / ".env").is_file():
            for name, value in dotenv_values(folder / ".env").items():
                if value is not None:
                    os.environ.setdefault(name, value)
            return
