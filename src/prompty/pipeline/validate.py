"""Validate inputs against the prompt's declarations (§2.7): fill in defaults, require values, allow only plain data."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from prompty.errors import InputError
from prompty.model.agent import PromptAgent
from prompty.model.content import MediaPart
from prompty.model.property import RICH_KINDS

MAX_DEPTH = 64

_PLAIN = frozenset({str, int, float, bool, type(None)})
# Of a subclass too: a template must not reach the methods that it adds.
_CONVERSIONS: tuple[tuple[Any, Callable[[Any], object]], ...] = (
    *((kind, kind) for kind in (str, int, float)),
    ((date, datetime, time, Decimal, PurePath, UUID), str),
)


def validate_inputs(agent: PromptAgent, inputs: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return the values a prompt runs with. `example` is never a value; undeclared inputs pass through."""
    values = dict(inputs or {})
    for declared in agent.inputs:
        name = declared.name
        if values.get(name) is None:
            if declared.default is not None:
                values[name] = declared.default
            elif declared.required:
                about = f" ({declared.description})" if declared.description else ""
                fix = f"Pass inputs={{'{name}': …}}, or give it a `default:` in the file."
                raise InputError(name, f"Missing required input '{name}'{about}", fix)
            else:
                values.pop(name, None)
    return values


def to_plain_inputs(agent: PromptAgent, values: Mapping[str, object]) -> dict[str, object]:
    """Return inputs as plain data, so that a template cannot call the methods of an object of the host."""
    rich = {declared.name for declared in agent.inputs if declared.kind in RICH_KINDS}
    return {
        name: value if type(value) in _PLAIN or name in rich else _to_plain(value, name, 0)
        for name, value in values.items()
    }


def _to_plain(value: object, name: str, depth: int) -> object:
    if type(value) in _PLAIN:
        return value
    if depth > MAX_DEPTH:
        raise InputError(name, f"Input '{name}' is nested more than {MAX_DEPTH} levels deep", "Pass flatter data.")
    if isinstance(value, Mapping):
        return {str(key): _to_plain(entry, name, depth + 1) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_plain(entry, name, depth + 1) for entry in value]
    if isinstance(value, Enum):
        return _to_plain(value.value, name, depth + 1)
    for kinds, convert in _CONVERSIONS:
        if isinstance(value, kinds):
            return convert(value)
    if isinstance(value, BaseModel):
        return _to_plain(value.model_dump(), name, depth + 1)
    if is_dataclass(value) and not isinstance(value, type | MediaPart):
        return _to_plain(asdict(value), name, depth + 1)
    raise _unusable(value, name)


def _unusable(value: object, name: str) -> InputError:
    if isinstance(value, Secret | SecretStr | SecretBytes):
        cause = f"Input '{name}' is a secret and may not be rendered into a prompt"
        return InputError(name, cause, "Put it into a connection or a tool binding.")
    if isinstance(value, MediaPart):
        cause = f"Input '{name}' has {value.kind} data but is not declared with that kind"
        return InputError(name, cause, f"Declare it: `inputs: {{{name}: {{kind: {value.kind}}}}}`.")
    cause = f"Input '{name}' has a value of type {type(value).__name__}, which is not plain data"
    fix = "Pass text, numbers, true or false, lists, dicts, a dataclass or a pydantic model."
    return InputError(name, cause, fix)
