"""Inputs as the prompt declares them (§2.7): defaults filled, required ones present, values plain data."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from uuid import UUID

from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from prompty.errors import InputError
from prompty.model.agent import PromptAgent
from prompty.model.message import MediaPart
from prompty.model.property import RICH_KINDS

MAX_DEPTH = 64

_PLAIN = frozenset({str, int, float, bool, type(None)})
_TEXTUAL = (date, datetime, time, Decimal, PurePath, UUID)


def validate_inputs(agent: PromptAgent, inputs: Mapping[str, object] | None = None) -> dict[str, object]:
    """The values a prompt runs with. `example` is never a value; inputs nobody declared pass through."""
    values = dict(inputs or {})
    for declared in agent.inputs:
        if values.get(declared.name) is None:
            if declared.default is not None:
                values[declared.name] = declared.default
            elif declared.required:
                raise _missing(declared.name, declared.description)
            else:
                values.pop(declared.name, None)
    return values


def plain_inputs(agent: PromptAgent, values: Mapping[str, object]) -> dict[str, object]:
    """What a template may read: plain data only, so that no method of a host object can be called from it."""
    rich = {declared.name for declared in agent.inputs if declared.kind in RICH_KINDS}
    return {
        name: value if type(value) in _PLAIN or name in rich else _plain(value, name, 0)
        for name, value in values.items()
    }


def _plain(value: object, name: str, depth: int) -> object:
    if type(value) in _PLAIN:
        return value
    if depth > MAX_DEPTH:
        raise InputError(name, f"Input '{name}' is nested more than {MAX_DEPTH} levels deep", "Pass flatter data.")
    if isinstance(value, Mapping):
        return {str(key): _plain(entry, name, depth + 1) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(entry, name, depth + 1) for entry in value]
    return _converted(value, name, depth)


def _converted(value: object, name: str, depth: int) -> object:
    if isinstance(value, Secret | SecretStr | SecretBytes):
        raise InputError(
            name,
            f"Input '{name}' is a secret and may not be rendered into a prompt",
            "Put it into a connection or a tool binding.",
        )
    if isinstance(value, MediaPart):
        raise InputError(
            name,
            f"Input '{name}' is given {value.kind} data but is not declared as such",
            f"Declare it: `inputs: {{{name}: {{kind: {value.kind}}}}}`.",
        )
    if isinstance(value, Enum):
        return _plain(value.value, name, depth + 1)
    if isinstance(value, str | int | float):  # a subclass, whose own methods a template must not reach
        return _base_value(value)
    if isinstance(value, _TEXTUAL):
        return str(value)
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(), name, depth + 1)
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value), name, depth + 1)
    raise InputError(
        name,
        f"Input '{name}' holds a {type(value).__name__}, which is not plain data",
        "Pass text, numbers, true or false, lists, dicts, a dataclass or a pydantic model.",
    )


def _base_value(value: str | int | float) -> str | int | float:
    for base in (str, int, float):
        if isinstance(value, base):
            return base(value)
    raise TypeError(type(value))


def _missing(name: str, description: str | None) -> InputError:
    about = f" ({description})" if description else ""
    return InputError(
        name,
        f"Missing required input '{name}'{about}",
        f"Pass inputs={{'{name}': …}}, or give it a `default:` in the file.",
    )
