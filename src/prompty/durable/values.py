"""What is stored: JSON text with a schema version and a check sum. Whatever else is found is refused with a sentence.

It is text inside the engine's own JSON, and ASCII: any string of Python comes back as it was, from every database.

The check sum finds what was damaged or edited. It does not protect against somebody who can write to the database and
knows this file.
"""

import json
from hashlib import sha256

from prompty.errors import RunBroken, RunRefused
from prompty.model.message import Json

SCHEMA = 1


def sealed(value: object) -> Json:
    """A value as it is stored."""
    try:
        text = json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise RunBroken(f"what a run keeps must be JSON: {error}") from None
    return {"prompty": SCHEMA, "sum": _sum(text), "value": text}


def opened(stored: object, place: str) -> object:
    """The value in what was stored; `place` is where, for people."""
    if not isinstance(stored, dict) or "prompty" not in stored:
        raise RunRefused(place, "it is not JSON that prompty wrote")
    if stored["prompty"] != SCHEMA:
        raise RunRefused(place, f"it has schema {stored['prompty']!r}, and this release reads schema {SCHEMA}")
    text = stored.get("value")
    if not isinstance(text, str) or stored.get("sum") != _sum(text):
        raise RunRefused(place, "it is not what was written: its check sum is another one")
    return json.loads(text)


def digest(value: object) -> str:
    """A hash of a value, the same in every process."""
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _sum(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
