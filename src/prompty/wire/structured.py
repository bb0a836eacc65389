"""Structured results (§7.7): JSON text into a dict that remembers it, and into a type of the caller's."""

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from prompty.errors import ResultError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.wire.schema import schema_of
from prompty.wire.strict_json import read_json

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
    """A result as a dataclass, TypedDict, pydantic model or any other type pydantic knows."""
    adapter = TypeAdapter(output_type)
    try:
        if isinstance(result, StructuredResult):
            return adapter.validate_json(result.raw)
        if isinstance(result, str) and output_type is not str:
            return adapter.validate_json(result)
        return adapter.validate_python(result)
    except ValidationError as error:
        raise ResultError(output_type, error) from None
