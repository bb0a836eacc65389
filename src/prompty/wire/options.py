"""The parts of an agent in every request: its options under an API's names (§7.6; each format's module has its table),
and the schema of the answer."""

from collections.abc import Mapping

from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.model.options import ModelOptions
from prompty.model.request import OutputSchema
from prompty.wire.structured import output_schema

# These two are in no table: one depends on the tools, the other is passed through.
_UNMAPPED = {"allow_multiple_tool_calls", "additional_properties"}


def map_options(options: ModelOptions, table: Mapping[str, str]) -> Json:
    """Return the options that an API supports, under its names. `additionalProperties` never override them."""
    mapped: Json = {}
    for name, wire_name in table.items():
        value = getattr(options, name)
        if value not in (None, ()):
            mapped[wire_name] = list(value) if isinstance(value, tuple) else value
    return {**(options.additional_properties or {}), **mapped}


def get_output_schema(agent: PromptAgent) -> OutputSchema | None:
    """Return the schema of an agent's answer: from its `outputs`, or from the caller's `output_type`."""
    if agent.outputs:
        return OutputSchema(output_schema(agent) or {}, strict=True)
    return agent.result_schema


def list_dropped_options(options: ModelOptions, table: Mapping[str, str]) -> list[str]:
    """Return the options that an API does not support, by their names in the file."""
    return [
        field.alias or name
        for name, field in ModelOptions.model_fields.items()
        if name not in table and name not in _UNMAPPED and getattr(options, name) is not None
    ]
