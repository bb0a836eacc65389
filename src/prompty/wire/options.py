"""Model options by their names on the wire (§7.6). What an API does not have is left out, and can be asked for."""

from collections.abc import Mapping

from prompty.model.message import Json
from prompty.model.options import ModelOptions

CHAT = {
    "temperature": "temperature",
    "max_output_tokens": "max_completion_tokens",
    "top_p": "top_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "stop_sequences": "stop",
}
RESPONSES = {"temperature": "temperature", "max_output_tokens": "max_output_tokens", "top_p": "top_p"}
MESSAGES = {
    "temperature": "temperature",
    "max_output_tokens": "max_tokens",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop_sequences": "stop_sequences",
}
NONE: Mapping[str, str] = {}

# These two are not looked up by name: one depends on the tools, the other is passed on as it is.
_APART = {"allow_multiple_tool_calls", "additional_properties"}


def wire_options(options: ModelOptions, table: Mapping[str, str]) -> Json:
    """The options an API has, under its names; `additionalProperties` never override one of them."""
    mapped: Json = {}
    for name, wire_name in table.items():
        value = getattr(options, name)
        if value not in (None, ()):
            mapped[wire_name] = list(value) if isinstance(value, tuple) else value
    return {**(options.additional_properties or {}), **mapped}


def dropped_options(options: ModelOptions, table: Mapping[str, str]) -> list[str]:
    """The options that are set but that an API does not have, by their names in the file."""
    return [
        field.alias or name
        for name, field in ModelOptions.model_fields.items()
        if name not in table and name not in _APART and getattr(options, name) is not None
    ]
