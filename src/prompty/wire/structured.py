"""Structured results (§7.7): JSON text into a dict that remembers it, and into a type of the caller's."""

from typing import Any, TypeVar, cast as cast_type, get_type_hints, is_typeddict

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from prompty.errors import ResultError
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.safety.json import read_json
from prompty.wire.schema import schema_of

T = TypeVar("T")
SCHEMA_NAME = "structured_output"


class StructuredResult(dict[str, Any]):
    """A dict that remembers the text it was read from, so that `cast` decodes once."""

    raw: str

    def __init__(self, values: dict[str, Any], raw: str) -> None:
        super().__init__(values)
        self.raw = raw


def output_schema(agent: PromptAgent) -> Json | None:
    """The schema of a prompt's `outputs`, which every provider gets closed and with all of it required."""
    return schema_of(agent.outputs, strict=True) if agent.outputs else None


def structured(text: str) -> object:
    """Text as the value it holds: an object remembers its text; what is not JSON stays text."""
    try:
        value = read_json(text)
    except ValueError:
        return text
    return StructuredResult(value, text) if isinstance(value, dict) else value


def cast(result: object, output_type: type[T]) -> T:
    """A result as a dataclass, TypedDict, pydantic model, msgspec struct or any other type pydantic knows."""
    if hasattr(output_type, "__struct_fields__"):
        return _as_struct(result, output_type)
    adapter = TypeAdapter(_readable(output_type))
    try:
        if isinstance(result, StructuredResult):
            return adapter.validate_json(result.raw)
        if isinstance(result, str) and output_type is not str:
            return adapter.validate_json(result)
        return adapter.validate_python(result)
    except ValidationError as error:
        raise ResultError(output_type, error) from None


def _readable(output_type: type[T]) -> type[T]:
    """The type as pydantic reads it: before Python 3.12 it knows the TypedDict of typing_extensions only."""
    if not is_typeddict(output_type):
        return output_type
    fields = get_type_hints(output_type, include_extras=True)
    total = getattr(output_type, "__total__", True)
    return cast_type("type[T]", TypedDict(output_type.__name__, fields, total=total))  # type: ignore[operator]  # mypy wants a literal


def _as_struct(result: object, output_type: type[T]) -> T:
    msgspec = require("msgspec", extra="openai")
    text = result.raw if isinstance(result, StructuredResult) else result
    try:
        decoded: T = (
            msgspec.json.decode(text, type=output_type)
            if isinstance(text, str)
            else msgspec.convert(text, type=output_type)
        )
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ResultError(output_type, error) from None
    return decoded
