"""Compare the names of parameters as lenient servers do.

A server may ignore the case of a name, take `-`, `.` and spaces for `_`, or read `name[…]` and `name.…` as parts of
`name`. Names that any server could confuse are treated as the same.
"""

import re

_SEPARATORS = re.compile(r"[\s.-]")


def is_same_parameter(name: str, other: str) -> bool:
    """Return True if a server could confuse one name with the other, or with a part of it."""
    first, second = _fold(name), _fold(other)
    if _SEPARATORS.sub("_", first) == _SEPARATORS.sub("_", second):
        return True
    shorter, longer = sorted((first, second), key=len)
    return longer.startswith((f"{shorter}[", f"{shorter}."))


def _fold(name: str) -> str:
    return name.partition("\0")[0].strip().casefold()
