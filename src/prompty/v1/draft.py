"""The v2 data under construction: its values, their origins, and notes on parts without a counterpart."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

V1Keys = tuple[str | int, ...]
V1Data = dict[str, Any]


class V1Note(NamedTuple):
    """A part of a v1 file that cannot be translated, or that is ambiguous.

    Its location is a key path of the frontmatter, or a range of the body.
    """

    keys: V1Keys
    message: str
    fix: str
    start: int = -1
    end: int = -1


@dataclass
class Draft:
    """A v2 frontmatter. `moves` maps its key paths to those of the v1 file."""

    data: V1Data = field(default_factory=dict)
    notes: list[V1Note] = field(default_factory=list)
    moves: dict[V1Keys, V1Keys] = field(default_factory=dict)

    def put(self, keys: V1Keys, value: Any, origin: V1Keys) -> bool:
        """Set a value, unless the file already has one: its own v2 keys take precedence."""
        target: Any = self.data
        for key in keys[:-1]:
            if not isinstance(target, dict):
                return False
            target = target.setdefault(key, {})
        if not isinstance(target, dict) or keys[-1] in target:
            return False
        target[keys[-1]] = value
        self.moves[keys] = origin
        return True

    def note(self, keys: V1Keys, message: str, fix: str) -> None:
        self.notes.append(V1Note(keys, message, fix))

    def drop(self, keys: V1Keys, reason: str, fix: str) -> None:
        """Note that a key is dropped."""
        self.note(keys, f"`{keys[-1]}` is dropped: {reason}", fix)


def mapping_or_empty(value: Any) -> Mapping[str, Any]:
    """Return a mapping, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def is_reference(value: Any) -> bool:
    """Return True if a text refers to a variable or a file."""
    return isinstance(value, str) and "${" in value


def is_file_reference(value: Any) -> bool:
    """Return True if a text is a single file reference, whose content may be of any type."""
    return isinstance(value, str) and value.startswith("${file:") and value.find("}") == len(value) - 1
