"""A wire exchange as one line of a file: a request without its secrets, and what came back."""

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

VERSION = 1
_NUMBER = re.compile(r"[-+.\de]+")
Mask = Callable[[str], str]
_ERRORS = {kind.__name__: kind for kind in (ModelError, EmptyReply, ResponseFailed)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request as it is kept: without headers and without secrets, its keys sorted."""

    provider: str
    path: str
    stream: bool
    body: Json

    @property
    def key(self) -> tuple[str, bool, bytes]:
        """What two requests have in common that have the same answer."""
        return self.path, self.stream, write_bytes(self.body)


def hide_inputs(hidden: Redactor, values: Iterable[object]) -> None:
    """Keep the values of sensitive inputs out of a recording. Numbers stay: masked, they would not be JSON any more."""
    texts = (text for value in values for text in leaves(value) if not _NUMBER.fullmatch(text))
    hidden.hide(texts, shortest=SHORTEST_NAMED)


def masking(agent: PromptAgent, request: WireRequest, hidden: Redactor, transport: object = None) -> Mask:
    """Return a function that masks the credentials of a call and the `hidden` inputs of the recording in a text."""
    redactor = Redactor(_credentials(agent, request), shortest=SHORTEST_SECRET, parent=hidden)
    mask_key: Mask = getattr(transport, "masked", mask_secrets)  # a client may have renewed its key meanwhile
    return lambda text: mask_key(redactor.mask(text))


def _credentials(agent: PromptAgent, request: WireRequest) -> Iterator[str]:
    yield from secrets_in(agent)
    for value in (value for name, value in request.headers.items() if is_credential_name(name)):
        yield from value.split()


def asked(provider: str, request: WireRequest, mask: Mask) -> Asked:
    """A request as it is kept."""
    body = _masked(request.body, mask)
    return Asked(provider=provider, path=mask(request.path), stream=request.stream, body=body)


def _masked(value: Any, mask: Mask) -> Any:
    match value:
        case dict():
            items = sorted(value.items(), key=itemgetter(0))
            return {mask(name): MASK if is_credential_name(name) else _masked(item, mask) for name, item in items}
        case list() | tuple():
            return [_masked(item, mask) for item in value]
        case str():
            return mask(value)
    return value


def line_of(request: Asked, answer: Answered, mask: Mask) -> bytes:
    """A whole line, its end included."""
    chunks = None if answer.chunks is None else [_written(chunk) for chunk in _without_secrets(answer.chunks, mask)]
    told: Json = {"chunks": chunks, "error": _error_data(answer.error, mask), "left": answer.left}
    return write_bytes({"version": VERSION, "request": asdict(request), "answer": told}) + b"\n"


def _without_secrets(chunks: Sequence[bytes], mask: Mask) -> Sequence[bytes]:
    """Chunks as they came; if a secret stands in them they are one, for it may stand across several."""
    text = b"".join(chunks).decode(errors="surrogateescape")
    masked = mask(text)
    return chunks if masked == text else [masked.encode(errors="surrogateescape")]


def _written(chunk: bytes) -> object:
    try:
        return chunk.decode()
    except UnicodeDecodeError:  # also half a character, where a chunk ends in the middle of one
        return {"base64": base64.b64encode(chunk).decode()}


def _error_data(error: ModelError | None, mask: Mask) -> Json | None:
    if error is None:
        return None
    details = {"status": error.status, "retryable": error.retryable, "retry_after": error.retry_after}
    return {"kind": type(error).__name__, "cause": mask(str(error)), **details}


def read_line(line: bytes) -> tuple[Asked, Answered]:
    """The exchange of a line. What is none raises ValueError, LookupError or TypeError."""
    data = json.loads(line)
    if data["version"] != VERSION:
        raise ValueError(f"it is of version {data['version']}, where {VERSION} can be read")
    told = data["answer"]
    chunks = None if told["chunks"] is None else [_read(chunk) for chunk in told["chunks"]]
    return Asked(**data["request"]), Answered(chunks=chunks, error=_error(told["error"]), left=told["left"])


def _read(chunk: Any) -> bytes:
    return chunk.encode() if isinstance(chunk, str) else base64.b64decode(chunk["base64"])


def _error(data: Any) -> ModelError | None:
    if data is None:
        return None
    details = {name: data[name] for name in ("status", "retryable", "retry_after")}
    return _ERRORS.get(data["kind"], ModelError)(data["cause"], **details)
