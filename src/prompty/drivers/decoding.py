"""What both drivers make of bytes and of failures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from prompty.errors import ModelError, PromptyError, Refused, StreamCut
from prompty.model.message import Json
from prompty.model.reply import Reply
from prompty.providers import Api
from prompty.safety.redaction import mask_secrets
from prompty.wire.json_bytes import read_bytes
from prompty.wire.stream import Decoder

T = TypeVar("T", covariant=True)

# What reading raises when JSON is not of the form that its API has.
MALFORMED = (AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What something came to. An async generator cannot return a value, so it yields this last."""

    value: T


def as_object(payload: object) -> Json:
    """The JSON of a whole answer, which is an object."""
    if not isinstance(payload, dict):
        raise ModelError("the provider sent JSON that is not an object", retryable=True)
    return payload


def read_reply(api: Api, content: bytes) -> Reply:
    """The reply in the bytes of a whole answer."""
    return reply_of(api, read_bytes(content))


def reply_of(api: Api, payload: object) -> Reply:
    """The reply in the JSON of a whole answer."""
    try:
        return api.reply(as_object(payload))
    except PromptyError:
        raise
    except MALFORMED as error:
        raise malformed(error) from error


def malformed(error: Exception) -> ModelError:
    return ModelError(f"the provider's answer does not have the form of its API: {error}", retryable=True)


def cut(error: Exception, decoder: Decoder, said: bool) -> ModelError:
    """A failure inside a stream, with what had come by then. Once words went out, the call is not made again: whoever
    listens would hear them twice."""
    failure = error if isinstance(error, ModelError) else malformed(error)
    if isinstance(failure, Refused):
        return failure
    retryable = failure.retryable and not said
    partial = failure.partial if isinstance(failure, StreamCut) else _partial(decoder)
    return StreamCut(str(failure), partial, retryable=retryable)


def _partial(decoder: Decoder) -> object:
    try:
        return decoder.finish()
    except StreamCut as error:
        return error.partial
    except (ModelError, *MALFORMED):
        return None


def without_secrets(error: PromptyError, models: Sequence[object]) -> PromptyError:
    """An error whose message may hold what a server said; a server knows the key of its caller."""
    if isinstance(error, ModelError):
        for model in models:
            masked = getattr(getattr(model, "transport", None), "masked", mask_secrets)
            error.args = tuple(masked(part) if isinstance(part, str) else part for part in error.args)
    return error
