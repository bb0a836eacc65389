"""References to variables that were not set when their file was loaded (F15).

A field of the model or of a connection then holds the text of its reference. A call resolves it again, and fails if the
variable is still not set: whatever needs no request needs no key.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, SecretStr
from pydantic.alias_generators import to_camel

FieldPath = tuple[str | int, ...]
MODEL, TOOL, FALLBACK = "model", "tool", "fallback"


class Unset(NamedTuple):
    """A reference whose variable was not set.

    `part` is the part of the file that needs it: the model, or the tool or fallback model at `position`. `path` leads
    from there to the field, and `keys` from the start of the frontmatter. `reads_files` is False inside an included
    file. `place` is its position in the file, where its name is `key`.
    """

    keys: FieldPath
    text: str
    variable: str
    part: str
    path: FieldPath
    position: str | int = 0
    reads_files: bool = True
    place: str = ""
    key: str = ""

    @classmethod
    def create(cls, keys: FieldPath, text: str, variable: str, *, reads_files: bool) -> "Unset | None":
        """Return the reference at `keys`, or None if its file cannot be loaded without it.

        The kind of a connection decides how the rest is read.
        """
        if keys[-1:] == ("kind",):
            return None
        part, index, path = _find_part(keys)
        return cls(keys, text, variable, part, path, index, reads_files) if part else None

    def describe(self, name: str = "") -> str:
        """Return the field for an error. `name` is the name of its tool."""
        path = ".".join(map(str, self.path))
        if self.keys[0] == "model":
            return f"`{self.key or f'model.{path}'}`"
        if self.keys[0] == "tools":
            return f"`{path}` of the tool '{name}'"
        number = next(key for key in self.keys if isinstance(key, int)) + 1
        return f"`{path or 'id'}` of fallback {number}"


def _find_part(keys: FieldPath) -> tuple[str, str | int, FieldPath]:
    match keys:
        case ("model", *path):
            return MODEL, 0, tuple(path) or ("id",)
        case ("tools", index, "connection", *path) if path:
            return TOOL, index, ("connection", *path)
        case ("metadata", "fallbacks", int(index), *path) | ("fallbacks", int(index), *path):
            return FALLBACK, index, tuple(path)
    return "", 0, ()


def list_unset(unset: Iterable[Unset], part: str, value: object, index: str | int = 0) -> list[Unset]:
    """Return the references of a part that its definition or data, `value`, still holds.

    A tool may have another index now, so any of the same text fits, by preference the one with its own.
    """
    found: dict[FieldPath, Unset] = {}
    for entry in sorted(unset, key=lambda entry: entry.position != index):
        if entry.part == part and entry.path not in found and get_text(value, entry.path) == entry.text:
            found[entry.path] = entry
    return list(found.values())


def get_text(value: Any, path: FieldPath) -> object:
    """Return what a definition or its data holds at a path, or None."""
    for key in path:
        if isinstance(value, BaseModel):
            fields = type(value).model_fields
            name = next((name for name, field in fields.items() if key in (name, field.alias)), None)
            value = getattr(value, name) if name else None
        elif isinstance(value, Mapping):
            value = value.get(_spell(value, key))
        elif isinstance(value, Sequence) and not isinstance(value, str) and isinstance(key, int):
            value = value[key] if key < len(value) else None
        else:
            return None
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def replace_text(data: Any, path: FieldPath, value: object) -> None:
    """Replace the text of a reference in the data of a definition, whose keys may be written in another case."""
    for key in path[:-1]:
        key = _spell(data, key)
        if isinstance(data[key], tuple):
            data[key] = list(data[key])
        data = data[key]
    data[_spell(data, path[-1])] = value


def _spell(data: Any, key: str | int) -> Any:
    if isinstance(data, Mapping) and key not in data and isinstance(key, str):
        return to_camel(key)
    return key


def explain_unset(unset: Sequence[Unset], name: str = "") -> tuple[str, str, str]:
    """Return the cause of an error for variables that a request needs, its fix in Python, and on a command line.

    `name` is the name of the tool that needs them.
    """
    causes = [
        f"{f'{entry.place}: ' if entry.place else ''}Environment variable '{entry.variable}' not set, "
        f"which {entry.describe(name)} names"
        for entry in unset
    ]
    *others, last = dict.fromkeys(entry.variable for entry in unset)
    names = f"{', '.join(others)} and {last}" if others else last
    if unset[0].part == TOOL:
        return "\n".join(causes), f"Set {names}, in load(env=…) if you pass one.", f"Set {names}, or add a .env file."
    fix = f"Set {names}, in load(env=…) if you pass one, or use another model: model='provider:id'."
    return "\n".join(causes), fix, f"Set {names}, or add a .env file, or add --model provider:id."
