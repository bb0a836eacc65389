"""Recorded exchange: a request without its secrets and the response to it, as one line of a file."""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

from prompty.errors import EmptyReply, ModelError, ResponseFailed
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.model.request import WireRequest
from prompty.model.secrets import secrets_in
from prompty.providers.listening import Answered
from prompty.safety.redaction import (
    MASK,
    SHORTEST_NAMED,
    SHORTEST_SECRET,
    Redactor,
    is_credential_name,
    leaves,
    mask_secrets,
)
from prompty.wire.json_bytes import write_bytes

RECORDING_VERSION = 1
_NUMBER = re.compile(r"[-+.\de]+")
Mask = Callable[[str], str]
_ERRORS = {kind.__name__: kind for kind in (ModelError, EmptyReply, ResponseFailed)}


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedRequest:
    """A request without headers and secrets, with sorted keys."""

    provider: str
    path: str
    stream: bool
    body: Json

    @property
    def key(self) -> tuple[str, bool, bytes]:
        """Return the part that equal requests share."""
        return self.path, self.stream, write_bytes(self.body)


def hide_inputs(hidden: Redactor, values: Iterable[object]) -> None:
    """Keep the values of sensitive inputs out of a recording. Numbers stay: masked, they would not be JSON any more."""
    texts = (text for value in values for text in leaves(value) if not _NUMBER.fullmatch(text))
    hidden.hide(texts, shortest=SHORTEST_NAMED)


def create_mask(agent: PromptAgent, request: WireRequest, hidden: Redactor, transport: object = None) -> Mask:
    """Return a function that masks the credentials of a call and the `hidden` inputs of the recording in a text."""
    redactor = Redactor(_credentials(agent, request), shortest=SHORTEST_SECRET, parent=hidden)
    mask_key: Mask = getattr(transport, "masked", mask_secrets)  # a client may have renewed its key meanwhile
    return lambda text: mask_key(redactor.mask(text))


def _credentials(agent: PromptAgent, request: WireRequest) -> Iterator[str]:
    yield from secrets_in(agent)
    for value in (value for name, value in request.headers.items() if is_credential_name(name)):
        yield from value.split()


def mask_request(provider: str, request: WireRequest, mask: Mask) -> RecordedRequest:
    body = _mask_json(request.body, mask)
    return RecordedRequest(provider=provider, path=mask(request.path), stream=request.stream, body=body)


def _mask_json(value: Any, mask: Mask) -> Any:
    match value:
        case dict():
            items = sorted(value.items(), key=itemgetter(0))
            return {mask(name): MASK if is_credential_name(name) else _mask_json(item, mask) for name, item in items}
        case list() | tuple():
            return [_mask_json(item, mask) for item in value]
        case str():
            return mask(value)
    return value


def encode_exchange(request: RecordedRequest, answer: Answered, mask: Mask) -> bytes:
    """Encode an exchange as a line, newline included."""
    chunks = None if answer.chunks is None else [_encode_chunk(chunk) for chunk in _mask_chunks(answer.chunks, mask)]
    fields: Json = {"chunks": chunks, "error": _encode_error(answer.error, mask), "left": answer.left}
    return write_bytes({"version": RECORDING_VERSION, "request": asdict(request), "answer": fields}) + b"\n"


def _mask_chunks(chunks: Sequence[bytes], mask: Mask) -> Sequence[bytes]:
    """Return the chunks, joined into one if they contain a secret: it can extend over several."""
    text = b"".join(chunks).decode(errors="surrogateescape")
    masked = mask(text)
    return chunks if masked == text else [masked.encode(errors="surrogateescape")]


def _encode_chunk(chunk: bytes) -> object:
    try:
        return chunk.decode()
    except UnicodeDecodeError:  # also when a chunk ends in the middle of a character
        return {"base64": base64.b64encode(chunk).decode()}


def _encode_error(error: ModelError | None, mask: Mask) -> Json | None:
    if error is None:
        return None
    details = {"status": error.status, "retryable": error.retryable, "retry_after": error.retry_after}
    return {"kind": type(error).__name__, "cause": mask(str(error)), **details}


def decode_exchange(line: bytes) -> tuple[RecordedRequest, Answered]:
    """Decode a line. Raise ValueError, LookupError or TypeError if it is malformed."""
    data = json.loads(line)
    if data["version"] != RECORDING_VERSION:
        raise ValueError(f"it has version {data['version']}, but this release reads version {RECORDING_VERSION}")
    fields = data["answer"]
    chunks = None if fields["chunks"] is None else [_decode_chunk(chunk) for chunk in fields["chunks"]]
    return RecordedRequest(**data["request"]), Answered(
        chunks=chunks, error=_decode_error(fields["error"]), left=fields["left"]
    )


def _decode_chunk(chunk: Any) -> bytes:
    return chunk.encode() if isinstance(chunk, str) else base64.b64decode(chunk["base64"])


def _decode_error(data: Any) -> ModelError | None:
    if data is None:
        return None
    details = {name: data[name] for name in ("status", "retryable", "retry_after")}
    return _ERRORS.get(data["kind"], ModelError)(data["cause"], **details)
