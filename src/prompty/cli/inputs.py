"""Read `-i NAME=VALUE` as inputs of the kinds that a prompt declares, and `.env` files."""

from collections.abc import Sequence
from pathlib import Path

from dotenv import dotenv_values

from prompty.errors import InputError
from prompty.model.agent import PromptAgent
from prompty.model.content import AudioPart, FilePart, ImagePart, MediaPart
from prompty.registry import DEFAULT
from prompty.safety.json import read_json

_MEDIA: dict[str, type[MediaPart]] = {"image": ImagePart, "audio": AudioPart, "file": FilePart}
_USAGE = "Write -i name=value, -i name=@file to read a file, or -i name=@@text for text that begins with @."


def read_pairs(agent: PromptAgent, pairs: Sequence[str]) -> dict[str, object]:
    """Return the inputs of a command line."""
    kinds = {declared.name: declared.kind for declared in agent.inputs}
    values: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(name, f"`{pair}` is not an input", _USAGE)
        values[name] = _read_value(name, kinds.get(name, "string"), text)
    return values


def _read_value(name: str, kind: str, text: str) -> object:
    if text.startswith("@@"):
        return _parse_value(name, kind, text[1:])
    if not text.startswith("@"):
        return _parse_value(name, kind, text)
    path = Path(text[1:])
    try:
        media = _MEDIA.get(kind)
        return media.from_file(path) if media else _parse_value(name, kind, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(name, f"the file for input '{name}' cannot be read: {error}", _USAGE) from None


def _parse_value(name: str, kind: str, text: str) -> object:
    """Parse JSON for every kind that is not written as text."""
    if kind == "string" or kind in _MEDIA:
        return text
    try:
        return read_json(text)
    except ValueError as error:
        fix = "Write true or false." if kind == "boolean" else "Write its value as JSON."
        raise InputError(name, f"input '{name}' is declared as {kind}: {error}", fix) from None


def load_dotenv(prompt: Path) -> None:
    """Offer the variables of the nearest `.env`, beside the prompt or above it, to prompts that name them.

    They are not set in the environment: a `.env` may come with the prompt, so it must not configure transports (F14).
    """
    files = (folder / ".env" for folder in prompt.absolute().parents)
    found = next((file for file in files if file.is_file()), None)
    values = dotenv_values(found) if found else {}
    DEFAULT.dotenv = {name: value for name, value in values.items() if value is not None}
