"""JSON to and from the bytes of a provider, and the reply in it."""

import json
from collections.abc import Callable, Mapping

from pydantic import BaseModel
from pydantic_core import from_json

from prompty.errors import ModelError, PromptyError, RequestError
from prompty.model.message import Json
from prompty.model.reply import Reply
from prompty.safety.json import read_json
from prompty.safety.surrogates import repair_json, repair_text

# The name under which text that should have been a JSON object is sent where only objects are taken.
INVALID_JSON = "INVALID_JSON"
# Raised while reading JSON that does not have the form of its API.
MALFORMED = (AttributeError, LookupError, TypeError, ValueError)
_NO_COUNTS: Mapping[str, object] = {}
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def write_bytes(value: object) -> bytes:
    """Return a request body as bytes."""
    try:
        text = _ENCODER.encode(value)
        try:
            return text.encode()
        except UnicodeEncodeError:  # from a host or an old session: what a provider sends is repaired when it is read
            return repair_text(text).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise RequestError(f"the request is not JSON: {error}", "Pass text, numbers, lists and dicts only.") from None


def read_bytes(data: bytes) -> object:
    """Parse what a provider sent. Raise a retryable error if it is not JSON."""
    try:
        return from_json(data)  # does not read lone surrogates, so there is nothing to repair
    except ValueError:
        pass
    try:
        return repair_json(read_json(data, strict=False))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the provider sent what is not JSON: {error}", retryable=True) from None


def read_reply(parse: Callable[[Json], Reply], data: bytes) -> Reply:
    """Return the reply in the bytes of a whole answer, by the `reply` function of its API."""
    return parse_reply(parse, read_bytes(data))


def parse_reply(parse: Callable[[Json], Reply], payload: object) -> Reply:
    """Return the reply in the JSON of a whole answer."""
    try:
        return parse(as_object(payload))
    except PromptyError:
        raise
    except MALFORMED as error:
        raise malformed(error) from error


def as_object(payload: object) -> Json:
    """Return an answer or a chunk as a JSON object. One that an SDK has parsed is converted back."""
    if isinstance(payload, dict):
        return payload
    if isinstance(payload, BaseModel):
        return payload.model_dump(mode="json", exclude_none=True, warnings=False)
    raise ModelError("the provider sent JSON that is not an object", retryable=True)


def as_text(value: object) -> str:
    """Return the text of an id or a name. Some servers number their calls; anything else is an error."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    raise TypeError(f"expected text, found {type(value).__name__}")


def as_count(value: object) -> int | None:
    """Return a token count of a reply. Anything but a whole number is unknown: the answer beside it is still good."""
    if type(value) is int and value >= 0:
        return value
    return int(value) if isinstance(value, float) and value.is_integer() and value >= 0 else None


def as_mapping(value: object) -> Mapping[str, object]:
    """Return the counts of a reply, or none if they are no object."""
    return value if isinstance(value, dict) else _NO_COUNTS


def malformed(error: Exception) -> ModelError:
    return ModelError(f"the provider's answer does not have the form of its API: {error}", retryable=True)
