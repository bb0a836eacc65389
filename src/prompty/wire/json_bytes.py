"""JSON to and from the bytes of a provider."""

import json

from prompty.errors import ModelError, RequestError
from prompty.safety.json import read_json

# The name under which text that should have been a JSON object is sent where only objects are taken.
INVALID_JSON = "INVALID_JSON"
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def write_bytes(value: object) -> bytes:
    """Return a request body as bytes."""
    try:
        return _ENCODER.encode(value).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise RequestError(f"the request is not JSON: {error}", "Pass text, numbers, lists and dicts only.") from None


def read_bytes(data: bytes) -> object:
    """Parse what a provider sent. Raise a retryable error if it is not JSON."""
    try:
        return read_json(data, strict=False)
    except ValueError as error:
        raise ModelError(f"the provider sent what is not JSON: {error}", retryable=True) from None
