"""Parts of a request that most APIs share: options under an API's names (§7.6; each format's module has its table),
the schema of the answer, and media as a data URI, as bare base64 with its type, or as a URL."""

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple

from prompty.errors import RequestError
from prompty.model.agent import ModelOptions, PromptAgent
from prompty.model.content import AudioPart, FilePart, ImagePart, TextPart
from prompty.model.message import Json, Message
from prompty.model.request import OutputSchema
from prompty.wire.structured import find_strict_one_of, output_schema

# These two are in no table: one depends on the tools, the other is passed through.
_UNMAPPED = {"allow_multiple_tool_calls", "additional_properties"}
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")


def map_options(options: ModelOptions, table: Mapping[str, str]) -> Json:
    """Return the options that an API supports, under its names. `additionalProperties` never override them.

    A name such as `reasoning.effort` is a key of a group, which `additionalProperties` may have begun.
    """
    given = options.model_fields_set
    if not given:
        return {}
    extra = options.additional_properties or {}
    mapped: Json = {}
    for name, wire_name in table.items():
        if name in given and (value := getattr(options, name)) not in (None, ()):
            group, dot, key = wire_name.partition(".")
            if dot:
                begun = extra.get(group) or {}
                value = {**begun, key: value} if isinstance(begun, dict) else begun
            mapped[group] = list(value) if isinstance(value, tuple) else value
    return {**extra, **mapped}


def list_dropped_options(options: ModelOptions, table: Mapping[str, str]) -> list[str]:
    """Return the options that an API does not support, by their names in the file."""
    return [
        field.alias or name
        for name, field in ModelOptions.model_fields.items()
        if name not in table and name not in _UNMAPPED and getattr(options, name) is not None
    ]


def get_output_schema(agent: PromptAgent) -> OutputSchema | None:
    """Return the schema of an agent's answer: from its `outputs`, or from the caller's `output_type`."""
    if agent.outputs:
        return OutputSchema(output_schema(agent) or {}, strict=True)
    return agent.result_schema


def refuse_one_of(agent: PromptAgent) -> None:
    """Raise RequestError for a `oneOf` in a strict schema, which the API would refuse (F17)."""
    for found in find_strict_one_of(agent):
        raise RequestError(found.cause, found.fix)


class InlineData(NamedTuple):
    """Base64 data and its media type."""

    media_type: str
    data: str


def is_url(value: str) -> bool:
    return value[:8].lower().startswith(("http://", "https://"))


def get_inline_data(part: ImagePart | AudioPart | FilePart) -> InlineData | None:
    """Return the data in a part, or None if its value is a URL or an id."""
    if part.value[:5].lower() == "data:":
        head, _, data = part.value[5:].partition(",")
        media_type = _strip_parameters(head) or _strip_parameters(part.media_type or "") or "application/octet-stream"
        return InlineData(media_type, data if head.lower().endswith(";base64") else _encode_percent(data))
    if is_url(part.value) or part.media_type is None:
        return None
    return InlineData(_strip_parameters(part.media_type), part.value)


def _strip_parameters(media_type: str) -> str:
    return media_type.partition(";")[0].strip()


def _encode_percent(text: str) -> str:
    """Encode the percent-encoded data of a data URI as base64."""
    data = _PERCENT.sub(lambda match: bytes.fromhex(match[1].decode()), text.encode())
    return b64encode(data).decode("ascii")


def to_data_uri(data: InlineData) -> str:
    return f"data:{data.media_type};base64,{data.data}"


def require_text(message: Message) -> str:
    """Return the text of a message. Raise RequestError if it contains media (W15)."""
    for part in message.content:
        if not isinstance(part, TextPart):
            raise RequestError(
                f"the {message.role} message contains {part.kind} data, which no provider accepts there",
                "Move it to a user message.",
            )
    return message.text
