"""Parts of a request that most APIs share: options under an API's names (§7.6; each format's module has its table),
the schema of the answer, and media as a data URI, as bare base64 with its type, or as a URL."""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prompty.errors import RequestError
from prompty.model.agent import ModelOptions, PromptAgent
from prompty.model.content import AudioPart, FilePart, ImagePart, TextPart
from prompty.model.message import Json, Message
from prompty.model.request import Function, OutputSchema
from prompty.model.trust import FieldPath
from prompty.wire.structured import StrictOneOf, output_schema

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


def refuse_one_of(found: StrictOneOf | None) -> None:
    """Raise RequestError for a `oneOf` in a strict schema, which the API would refuse."""
    if found:
        raise RequestError(found.cause, found.fix, keys=found.keys)


def have_same_words(text: str, other: str) -> bool:
    """Return True if two texts differ only in white space."""
    return text == other or "".join(text.split()) == "".join(other.split())


class RawToolProblem(NamedTuple):
    """Something wrong with a tool under `additionalProperties`: the keys that lead to it, and what to say about it."""

    keys: FieldPath
    cause: str
    fix: str


def find_raw_tool_problems(options: ModelOptions, names: Sequence[str]) -> Iterator[RawToolProblem]:
    """Yield what is wrong with the tools under `additionalProperties`, which are sent before functions of these
    names."""
    keys: FieldPath = ("model", "options", "additionalProperties", "tools")
    raw = (options.additional_properties or {}).get("tools")
    if raw is None:
        return
    if not isinstance(raw, list):
        yield RawToolProblem(keys, "`additionalProperties.tools` is not a list", "Write each tool as an entry: - {…}.")
        return
    taken: list[object] = list(names)
    for index, entry in enumerate(raw):
        if not isinstance(entry, dict):
            cause = f"entry {index + 1} of `additionalProperties.tools` is not a mapping"
            yield RawToolProblem((*keys, index), cause, "Write it as the API takes it, such as {type: web_search}.")
        elif name := _get_raw_name(entry):
            if name in taken:
                yield RawToolProblem((*keys, index), f"two tools are named '{name}'", "Give each tool a unique name.")
            taken.append(name)


def _get_raw_name(entry: Mapping[str, object]) -> object:
    function = entry.get("function")
    return entry.get("name") or (function.get("name") if isinstance(function, Mapping) else None)


def merge_tools(
    options: ModelOptions, functions: Sequence[Function], write: Callable[[Function], Json]
) -> Sequence[Json]:
    """Return the tools of a request: the file's own entries in their order, then its functions."""
    if (raw := (options.additional_properties or {}).get("tools")) is None:
        return [write(function) for function in functions]
    for found in find_raw_tool_problems(options, [function.name for function in functions]):
        raise RequestError(found.cause, found.fix, keys=found.keys)
    return [*raw, *(write(function) for function in functions)]


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
    """Return the text of a message. Raise RequestError if it contains media.

    An image that a model generated is no such part: the item that stands for it goes back, if anything does.
    """
    is_generated = message.role == "assistant" and message.opaque
    for part in message.content:
        if not isinstance(part, TextPart) and not is_generated:
            raise RequestError(
                f"the {message.role} message contains {part.kind} data, which no provider accepts there",
                "Move it to a user message.",
            )
    return message.text
