"""Replace lone surrogates, which JSON can express and UTF-8 cannot encode.

Such text can be neither sent nor stored, so it is repaired when it is read.
"""

from typing import Any


def repair_text(text: str) -> str:
    """Replace every lone surrogate with the replacement character. The halves of a pair are joined."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def repair_json(value: Any) -> Any:
    """Repair all texts and names in JSON."""
    if isinstance(value, str):
        return repair_text(value)
    if isinstance(value, list | tuple):
        return [repair_json(entry) for entry in value]
    if isinstance(value, dict):
        return {repair_json(name): repair_json(entry) for name, entry in value.items()}
    return value


def may_have_surrogates(source: str) -> bool:
    """Return True if JSON source has an escaped surrogate, alone or in a pair."""
    return "\\" in source and ("\\ud" in source or "\\uD" in source)
