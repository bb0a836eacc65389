"""Replace lone surrogates: half a character, which JSON can write and UTF-8 cannot hold.

Text that has one can be neither sent nor stored, so it is repaired where it is read.
"""

from typing import Any


def repair_text(text: str) -> str:
    """Return text in which every lone surrogate is the replacement character. The halves of a pair are joined."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def repair_json(value: Any) -> Any:
    """Return JSON whose texts and names have no lone surrogates."""
    if isinstance(value, str):
        return repair_text(value)
    if isinstance(value, list | tuple):
        return [repair_json(entry) for entry in value]
    if isinstance(value, dict):
        return {repair_json(name): repair_json(entry) for name, entry in value.items()}
    return value


def may_have_surrogates(source: str) -> bool:
    """Return True if the source of JSON has an escaped surrogate, be it alone or one of a pair."""
    return "\\" in source and ("\\ud" in source or "\\uD" in source)
