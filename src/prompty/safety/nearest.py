"""The known name that a misspelt one probably means."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

_MAX_CANDIDATES = 300  # comparing names takes 10 µs each


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like `name`, ignoring case and underscores. Of many, the first are tried."""
    plain = {candidate.lower().replace("_", ""): candidate for candidate in islice(known, _MAX_CANDIDATES)}
    matches = get_close_matches(name.lower().replace("_", ""), plain, 1)
    return plain[matches[0]] if matches else None
