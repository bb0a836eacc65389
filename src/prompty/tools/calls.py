"""Tool calls: parse and validate their arguments, and return their results as the messages that the model reads."""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import cast, get_args

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from prompty.errors import ArgumentsError, ModelError, PromptyError
from prompty.model.citation import ProviderCall
from prompty.model.content import ContentPart, TextPart
from prompty.model.message import Json, Message, ToolCall, Usage
from prompty.safety.json import (
    copy_json,
    is_deeper,
    is_larger,
    may_have_surrogates,
    read_json,
    repair_json,
    repair_text,
)
from prompty.safety.redaction import mask_secrets
from prompty.safety.schemas import Validator

logger: logging.Logger = logging.getLogger("prompty")
_FENCE = "```"
_MAX_DEPTH = 100  # deeper values could exceed Python's stack in the validator, in stored data or in the host
_MAX_PROBLEMS = 5
_MAX_COPIED = 300  # values; the validator copies the value for each problem it reports
_MAX_PROBLEM_LENGTH = 300
# Longer results are truncated: they would fill any model's context, and cost accordingly.
MAX_RESULT_LENGTH = 500_000  # characters of text, in all parts together
MAX_MEDIA_LENGTH = 20_000_000  # characters of images, audio and files
MAX_RESULT_PARTS = 1_000
_PARTS = get_args(ContentPart)


def resolve_arguments(text: str, bound: Iterable[str], validator: Validator, defaults: Json) -> Json:
    """Parse the arguments, drop those that the host binds, add defaults, and validate."""
    arguments = parse_arguments(text)
    for name in bound:
        arguments.pop(name, None)
    if defaults:
        return complete_arguments(arguments, validator, defaults)
    check_arguments(arguments, validator)
    return arguments


def complete_arguments(arguments: Json, validator: Validator, defaults: Json) -> Json:
    """Validate arguments and add a default for each that is missing. Raise `ArgumentsError` if they are invalid."""
    missing = {name: copy_json(value) for name, value in defaults.items() if name not in arguments}
    complete = {**arguments, **missing} if missing else arguments
    # A function may have a default that its own schema does not allow, such as None for a number.
    if not is_valid(complete, validator) and not is_valid(drop_defaults(complete, defaults), validator):
        check_arguments(complete, validator)
    return complete


def drop_defaults(arguments: Json, defaults: Json) -> Json:
    """Return the arguments that differ from their default."""
    return {name: value for name, value in arguments.items() if not _is_default(name, value, defaults)}


def _is_default(name: str, value: object, defaults: Json) -> bool:
    if name not in defaults or type(value) is not type(default := defaults[name]) or value != default:
        return False
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0, but they are written differently.
    return not isinstance(value, float | list | dict) or json.dumps(value) == json.dumps(default)


def parse_arguments(text: str) -> dict[str, object]:
    """Parse a JSON object, bare or inside one code fence. Raise `ArgumentsError` for anything else."""
    body = _strip_fence(repair_text(text).strip())
    if not body:
        return {}
    try:
        arguments = read_json(body)
    except ValueError as error:
        raise ArgumentsError(f"the arguments are not valid JSON: {error}") from None
    if body.count("{") + body.count("[") > _MAX_DEPTH and is_deeper(arguments, _MAX_DEPTH):
        raise ArgumentsError(f"the arguments are nested more than {_MAX_DEPTH} levels deep")
    if may_have_surrogates(body):
        arguments = repair_json(arguments)
    if not isinstance(arguments, dict):
        raise ArgumentsError('the arguments are not a JSON object; write them as {"name": value}')
    return cast(dict[str, object], arguments)


def _strip_fence(text: str) -> str:
    """Remove one surrounding code fence with its language tag, in linear time."""
    if not text.startswith(_FENCE) or not text.endswith(_FENCE) or len(text) < 2 * len(_FENCE):
        return text
    first_line, newline, rest = text[: -len(_FENCE)].partition("\n")
    tag = first_line.removeprefix(_FENCE).strip()
    return rest.strip() if newline and (not tag or tag.isalnum()) else text


def is_valid(value: object, validator: Validator) -> bool:
    """Return True if a value is valid. A value nested too deep for the validator is not."""
    try:
        return validator.is_valid(value)
    except ValueError:
        return False


def check_arguments(arguments: Json, validator: Validator) -> None:
    """Raise `ArgumentsError` if the arguments are invalid."""
    if not is_valid(arguments, validator):
        raise ArgumentsError("; ".join(_list_problems(arguments, validator)))


def _list_problems(value: object, validator: Validator) -> list[str]:
    """Return the first few problems, or one for a large value."""
    try:
        if not is_larger(value, _MAX_COPIED):
            return [_explain(error) for error in validator.iter_errors(value)][:_MAX_PROBLEMS]
        validator.validate(value)
    except ValueError as error:
        return [_explain(error)]
    return []


def _explain(error: ValueError) -> str:
    """Describe a `jsonschema_rs.ValidationError`, or the reason why a value cannot be read."""
    path = ".".join(map(str, getattr(error, "instance_path", ()))) or "value"
    message = str(getattr(error, "message", error))
    too_long = len(message) > _MAX_PROBLEM_LENGTH
    return f"{path}: {message[:_MAX_PROBLEM_LENGTH]}…" if too_long else f"{path}: {message}"


class ReportedFailure(RuntimeError):
    """A service reported that a call failed. The model reads the text; the host's code did not fail."""


@dataclass(frozen=True, slots=True)
class Metered:
    """A result with the usage and cost of the model calls behind it, which count towards the calling turn. A turn that
    has the key counted them while they were made."""

    value: object
    usage: Usage
    cost: Decimal | None
    provider_calls: tuple[ProviderCall, ...] = ()
    key: str = ""


def result_message(call: ToolCall, value: object, *, is_error: bool = False) -> Message:
    """Return a result as a message: text and parts unchanged, everything else as JSON."""
    meter = value if isinstance(value, Metered) else None
    return Message(
        "tool",
        _to_parts(meter.value if meter else value),
        tool_call_id=call.id,
        tool_name=call.name,
        is_error=is_error,
        usage=meter.usage if meter else None,
        cost=meter.cost if meter else None,
        provider_calls=meter.provider_calls if meter else (),
    )


def error_message(call: ToolCall, text: str) -> Message:
    """Return the message for a call without a result. The model sees only this text."""
    return result_message(call, f"Error: {mask_secrets(text)}", is_error=True)


def failure_message(call: ToolCall, error: Exception, mask: Callable[[str], str] = mask_secrets) -> Message:
    """Return the message for a call that raised. It does not reveal which model failed where."""
    located = isinstance(error, ModelError) or (isinstance(error, PromptyError) and error.problem is not None)
    reason = str(getattr(error, "cause", error) if located else error).strip() or type(error).__name__
    return error_message(call, f"Tool '{call.name}' failed: {mask(reason)}")


def _to_parts(value: object) -> list[ContentPart]:
    """Return the parts of a result, within the limits."""
    if isinstance(value, _PARTS):
        return _limit([value])
    if not isinstance(value, str):
        if isinstance(value, Sequence) and (parts := _join_parts(value)):
            return _limit(parts)
        value = to_text(value)
    text = repair_text(value)
    cut = len(text) - MAX_RESULT_LENGTH
    return [TextPart(text if cut <= 0 else f"{text[:MAX_RESULT_LENGTH]}\n[{cut} more characters were omitted]")]


def _join_parts(values: Sequence[object]) -> list[ContentPart]:
    """Return a list of parts, with its texts as parts. Return an empty list for any other data, such as plain texts."""
    parts = [TextPart(value) if isinstance(value, str) else value for value in values]
    is_content = any(isinstance(value, _PARTS) for value in values) and all(isinstance(part, _PARTS) for part in parts)
    return cast(list[ContentPart], parts) if is_content else []


def _limit(parts: Sequence[ContentPart]) -> list[ContentPart]:
    """Truncate the parts at the limits, and add a note on what was omitted."""
    kept: list[ContentPart] = []
    text = media = cut = left_out = 0
    for part in parts:
        length = len(part.value)
        room = len(kept) < MAX_RESULT_PARTS
        if not isinstance(part, TextPart):
            media += length
            if room and media <= MAX_MEDIA_LENGTH:
                kept.append(part)
            else:
                left_out += 1
            continue
        allowed = max(MAX_RESULT_LENGTH - text, 0) if room else 0
        text += length
        cut += max(length - allowed, 0)
        if length <= allowed or allowed:
            kept.append(TextPart(repair_text(part.value[:allowed])))
    notes = [f"{cut} more characters were omitted"] if cut else []
    notes += [f"{left_out} more images, recordings or files were omitted"] if left_out else []
    return [*kept, TextPart(f"[{'; '.join(notes)}]")] if notes else kept


def to_text(value: object) -> str:
    if value is None:
        return ""
    try:
        return to_json(value, fallback=_describe, inf_nan_mode="strings").decode()
    except PydanticSerializationError:  # perhaps a lone surrogate, for example in a file name
        plain = repair_json(to_jsonable_python(repair_json(value), fallback=_describe, inf_nan_mode="strings"))
        return to_json(plain, inf_nan_mode="strings").decode()


def _describe(value: object) -> str:
    """Return the text of an object that is not data, but not the default one, which has its address."""
    if type(value).__str__ is not object.__str__ or type(value).__repr__ is not object.__repr__:
        return str(value)
    name = type(value).__name__
    logger.warning("A tool returned an object of type %s. Return text, a dict, a dataclass or a pydantic model.", name)
    return f"[an object of type {name}]"
