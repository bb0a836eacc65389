"""Envelope of stored values: JSON text with a schema version and a checksum. Anything else is refused.

The text is ASCII inside the engine's own JSON, so every Python string survives every database. The checksum detects
damage and edits. It does not protect against an attacker who can write to the database.
"""

import json
from hashlib import sha256

from prompty.errors import RunBroken, RunRefused
from prompty.model.message import Json

SCHEMA = 1


def seal(value: object) -> Json:
    """Wrap a value for storage."""
    try:
        text = json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise RunBroken(f"a run can store only JSON values: {error}") from None
    return {"prompty": SCHEMA, "checksum": _compute_checksum(text), "value": text}


def unseal(stored: object, place: str) -> object:
    """Return the value in a stored envelope. `place` names it in errors."""
    if not isinstance(stored, dict) or "prompty" not in stored:
        raise RunRefused(place, "it is not JSON that prompty wrote")
    if stored["prompty"] != SCHEMA:
        raise RunRefused(place, f"it has schema {stored['prompty']!r}, but this release reads schema {SCHEMA}")
    text = stored.get("value")
    if not isinstance(text, str) or stored.get("checksum") != _compute_checksum(text):
        raise RunRefused(place, "its checksum is wrong: it was changed after prompty wrote it")
    return json.loads(text)


def digest(value: object) -> str:
    """Return a hash that is the same in every process."""
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _compute_checksum(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
