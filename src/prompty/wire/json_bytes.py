"""JSON to and from the bytes of a provider, and the reply in it."""

import json
from collections.abc import Callable, Mapping

from pydantic import BaseModel
from pydantic_core import from_json

from prompty.errors import NOT_JSON, ModelError, PromptyError, RequestError
from prompty.model.message import Json, Reply
from prompty.safety.json import check_size, read_json, repair_json, repair_text
from prompty.safety.redaction import mask_secrets

# The key for text that should have been a JSON object, in APIs that only accept objects.
INVALID_JSON = "INVALID_JSON"
PARAGRAPH = "\n\n"  # between texts with something else between them, such as a search
# Raised while parsing JSON that does not match its API.
MALFORMED = (AttributeError, LookupError, TypeError, ValueError)
_SHOWN_BYTES = 200
MAX_COUNT = 2**53  # tokens, which every reader of JSON represents exactly
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def write_bytes(value: object) -> bytes:
    """Return a request body as bytes."""
    try:
        text = _ENCODER.encode(value)
        try:
            return text.encode()
        except UnicodeEncodeError:  # from the host or an old session: replies are repaired when they are parsed
            return repair_text(text).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise RequestError(f"the request is not JSON: {error}", "Pass only text, numbers, lists and dicts.") from None


def read_bytes(data: bytes) -> object:
    """Parse a provider's JSON. Raise a retryable error if it is invalid."""
    try:
        check_size(data)
    except ValueError as error:
        raise ModelError(f"the provider's answer has {error}") from None
    try:
        return from_json(data)  # rejects lone surrogates, so there is nothing to repair
    except ValueError:
        pass
    try:
        return repair_json(read_json(data, strict=False))
    except (ValueError, RecursionError) as error:
        raise (find_page(data) or ModelError(f"{NOT_JSON}: {error}", retryable=True)) from None


def find_page(data: bytes) -> ModelError | None:
    """Return the error for a page of a proxy or a web server, which a retry would not change, or None."""
    start = data[:_SHOWN_BYTES].lstrip()
    if not start.startswith(b"<"):
        return None
    return ModelError(f"{NOT_JSON}: {mask_secrets(start.decode(errors='replace').rstrip())}")


def read_reply(parse: Callable[[Json], Reply], data: bytes) -> Reply:
    """Parse the bytes of a whole answer with the `reply` function of its API."""
    return parse_reply(parse, read_bytes(data))


def parse_reply(parse: Callable[[Json], Reply], payload: object) -> Reply:
    """Parse the JSON of a whole answer."""
    try:
        return parse(as_object(payload))
    except PromptyError:
        raise
    except MALFORMED as error:
        raise malformed(error) from error


def as_object(payload: object) -> Json:
    """Return an answer or a chunk as a JSON object. An SDK's object is converted back."""
    if isinstance(payload, dict):
        return payload
    if isinstance(payload, BaseModel):
        return payload.model_dump(mode="json", exclude_none=True, warnings=False)
    raise ModelError("the provider sent JSON that is not an object", retryable=True)


def as_text(value: object) -> str:
    """Return an id or a name as text. Some servers send numbers; anything else is an error."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    raise TypeError(f"expected text, got {type(value).__name__}")


def as_count(value: object) -> int | None:
    """Return a token count, or None if it is not one: the answer is still usable."""
    if type(value) is not int and not (isinstance(value, float) and value.is_integer()):
        return None
    return int(value) if 0 <= value < MAX_COUNT else None


def as_mapping(value: object) -> Mapping[str, object]:
    """Return the counts of a reply, or an empty mapping if they are not an object."""
    return value if isinstance(value, dict) else {}


def malformed(error: Exception) -> ModelError:
    return ModelError(f"the provider's answer does not match its API: {error}", retryable=True)
