"""Record the exchanges with models, and replay them without a key, a client or a network.

A line of a recording is a request without its secrets and the response to it. It works with every provider.
"""

import base64
import os
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from threading import Lock
from types import UnionType
from typing import Any, NamedTuple

from pydantic_core import from_json

from prompty.errors import EmptyReply, ModelError, RecordingMissing, ResponseFailed, check_path
from prompty.model.agent import PromptAgent, secrets_in
from prompty.model.message import Json
from prompty.model.request import WireRequest
from prompty.pipeline.files import read_bytes
from prompty.providers import AsyncTransport, Provider, Transport, TransportInterceptor
from prompty.providers.wiretap import AsyncWiretapTransport, Exchange, ExchangeResult, WiretapTransport
from prompty.safety.redaction import (
    MASK,
    SHORTEST_SECRET,
    Redactor,
    is_credential_name,
    leaves,
    mask_secrets,
)
from prompty.safety.write_files import append, check_target, create_folder, open_to_append
from prompty.testing.script import AsyncLocalTransport, Chunks, LocalTransport
from prompty.wire.json_bytes import MALFORMED, write_bytes

RECORDING_VERSION = 1
_NUMBER = re.compile(r"[-+.\de]+")
Mask = Callable[[str], str]
_ERRORS = {kind.__name__: kind for kind in (ModelError, EmptyReply, ResponseFailed)}
MAX_VALUE_LENGTH = 80
ABSENT = "nothing"


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
    """Mask sensitive inputs in a recording. Numbers stay, because masking them would break the JSON."""
    texts = (text for value in values for text in leaves(value) if not _NUMBER.fullmatch(text))
    hidden.hide(texts)


def create_mask(agent: PromptAgent, request: WireRequest, hidden: Redactor, transport: object = None) -> Mask:
    """Return a function that masks the credentials of a call and the `hidden` inputs of the recording in a text."""
    redactor = Redactor(_credentials(agent, request), shortest=SHORTEST_SECRET, parent=hidden)
    mask_key: Mask = getattr(transport, "masked", mask_secrets)  # a client may have renewed its key
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


def encode_exchange(request: RecordedRequest, answer: ExchangeResult, mask: Mask) -> bytes:
    """Encode an exchange as a line, newline included."""
    chunks = None if answer.chunks is None else [_encode_chunk(chunk) for chunk in _mask_chunks(answer.chunks, mask)]
    fields: Json = {"chunks": chunks, "error": _encode_error(answer.error, mask), "abandoned": answer.abandoned}
    return write_bytes({"version": RECORDING_VERSION, "request": asdict(request), "answer": fields}) + b"\n"


def _mask_chunks(chunks: Sequence[bytes], mask: Mask) -> Sequence[bytes]:
    """Return the chunks, joined into one if they contain a secret, which can span chunks."""
    text = b"".join(chunks).decode(errors="surrogateescape")
    masked = mask(text)
    return chunks if masked == text else [masked.encode(errors="surrogateescape")]


def _encode_chunk(chunk: bytes) -> object:
    try:
        return chunk.decode()
    except UnicodeDecodeError:  # for example, if a chunk ends inside a character
        return {"base64": base64.b64encode(chunk).decode()}


def _encode_error(error: ModelError | None, mask: Mask) -> Json | None:
    if error is None:
        return None
    details = {"status": error.status, "retryable": error.retryable, "retry_after": error.retry_after}
    return {"kind": type(error).__name__, "cause": mask(error.cause), **details}


def decode_exchange(line: bytes) -> tuple[RecordedRequest, ExchangeResult]:
    """Decode a line. Raise one of `MALFORMED` if it is malformed."""
    data = from_json(line)  # of a limited depth
    if data["version"] != RECORDING_VERSION:
        raise ValueError(f"it has version {data['version']}, but this release reads version {RECORDING_VERSION}")
    fields = data["answer"]
    chunks = None
    if fields["chunks"] is not None:
        texts = fields["chunks"]
        chunks = [text.encode() if isinstance(text, str) else base64.b64decode(text["base64"]) for text in texts]
    _check_kinds(data["request"], provider=str, path=str, stream=bool, body=dict)
    return RecordedRequest(**data["request"]), ExchangeResult(
        chunks=chunks, error=_decode_error(fields["error"]), abandoned=fields["abandoned"]
    )


def _decode_error(data: Any) -> ModelError | None:
    if data is None:
        return None
    _check_kinds(data, kind=str, cause=str, status=int | None, retryable=bool, retry_after=int | float | None)
    details = {name: data[name] for name in ("status", "retryable", "retry_after")}
    return _ERRORS.get(data["kind"], ModelError)(data["cause"], **details)


def _check_kinds(data: Json, **kinds: type | UnionType) -> None:
    """Raise TypeError if a value is of another kind: a recording may come from anyone who can propose a change."""
    for name, kind in kinds.items():
        if not isinstance(data[name], kind):
            raise TypeError(f"its `{name}` is a {type(data[name]).__name__}")


class Recorder(TransportInterceptor):
    """Within `with Recorder(path):`, write every exchange with a model to a file when it ends.

    The first exchange replaces the file. Secrets are masked before they are written.
    """

    def __init__(self, path: str | Path) -> None:
        check_path(path, "Recorder()", "the path of a file")
        self.path: Path = Path(path)
        self._started, self._lock = False, Lock()
        self._hidden = Redactor()

    def transport(self, provider: Provider, agent: PromptAgent, /) -> Transport:
        inner = provider.connect(agent)
        return WiretapTransport(inner, lambda request: self._listen(provider.key, agent, request, inner))

    def transport_async(self, provider: Provider, agent: PromptAgent, /) -> AsyncTransport:
        inner = provider.connect_async(agent)
        return AsyncWiretapTransport(inner, lambda request: self._listen(provider.key, agent, request, inner))

    def _listen(self, provider: str, agent: PromptAgent, request: WireRequest, inner: object) -> Exchange:
        mask = create_mask(agent, request, self._hidden, inner)
        recorded = mask_request(provider, request, mask)
        return Exchange(lambda answer: self.append_line(encode_exchange(recorded, answer, mask)))

    def hide(self, values: Sequence[object], /) -> None:
        hide_inputs(self._hidden, values)

    def append_line(self, line: bytes) -> None:
        """Append a line to the file, which only its owner can read."""
        with self._lock:
            if not self._started:
                create_folder(self.path.parent)
                check_target(self.path)
                self.path.unlink(missing_ok=True)
                self._started = True
            file = open_to_append(self.path)
            try:
                append(file, line)
            finally:
                os.close(file)


class Recording(NamedTuple):
    """An exchange, and the number of its line."""

    line: int
    request: RecordedRequest
    answer: ExchangeResult


class Player(TransportInterceptor):
    """Within `with Player(path):`, answer model calls from a file. Each recording is played once, in order.

    A recorded failure is retried without waiting.
    """

    is_live = False

    def __init__(self, path: str | Path) -> None:
        check_path(path, "Player()", "the path of a recording")
        self.path: Path = Path(path)
        self._recordings = list(self._read())
        self._lock, self._hidden = Lock(), Redactor()
        self._unplayed: dict[object, deque[Recording]] = defaultdict(deque)
        for recording in self._recordings:
            self._unplayed[recording.request.key].append(recording)

    def transport(self, provider: Provider, agent: PromptAgent, /) -> Transport:
        return LocalTransport(partial(self._respond, provider, agent))

    def transport_async(self, provider: Provider, agent: PromptAgent, /) -> AsyncTransport:
        return AsyncLocalTransport(partial(self._respond, provider, agent))

    def hide(self, values: Sequence[object], /) -> None:
        hide_inputs(self._hidden, values)

    def _read(self) -> Iterator[Recording]:
        try:
            lines = read_bytes(self.path).split(b"\n") if self.path.exists() else []
        except (OSError, ValueError) as error:
            raise self._missing(f"{self.path} cannot be read: {error}") from None
        for number, line in enumerate(lines, 1):
            try:
                if line.strip():
                    yield Recording(number, *decode_exchange(line))
            except MALFORMED as error:
                raise self._missing(f"line {number} of {self.path} cannot be read: {error}") from None

    def _respond(self, provider: Provider, agent: PromptAgent, request: WireRequest) -> Chunks:
        """Return the recorded chunks. An immediate failure is raised here, not on reading."""
        wanted = mask_request(provider.key, request, create_mask(agent, request, self._hidden))
        with self._lock:
            unplayed = self._unplayed.get(wanted.key)
            recording = unplayed.popleft() if unplayed else None
        if recording is None:
            raise self._missing(_describe_miss(self.path, wanted, self._recordings))
        if recording.answer.chunks is None and recording.answer.error:
            raise recording.answer.error
        return self._play(recording)

    def _play(self, recording: Recording) -> Chunks:
        answer = recording.answer
        chunks = answer.chunks or ()
        yield from chunks
        if answer.error:
            raise answer.error
        if answer.abandoned:
            raise self._missing(
                f"line {recording.line} of {self.path} ends after {len(chunks)} chunks: its stream was closed early"
            )

    def _missing(self, cause: str) -> RecordingMissing:
        again = f"run `pytest --prompty-live`, or make the call within `with Recorder({str(self.path)!r}):`."
        return RecordingMissing(cause, f"To record it again, {again}")


def _describe_miss(path: Path, wanted: RecordedRequest, recordings: list[Recording]) -> str:
    """Describe why no recording matches: the first difference to the most similar one."""
    if not recordings:
        return f"no recording matches this request: {path} " + ("is empty" if path.exists() else "does not exist")
    fields = _list_fields(wanted)
    near = max(recordings, key=lambda recording: len(fields.items() & _list_fields(recording.request).items()))
    if near.request.key == wanted.key:
        return f"no recording in {path} is left for this request: each is played once"
    there = _list_fields(near.request)
    name = next(name for name in {**fields, **there} if fields.get(name) != there.get(name))
    actual, recorded = fields.get(name, ABSENT), there.get(name, ABSENT)
    return (
        f"no recording in {path} matches this request\n"
        f"    The most similar recording is line {near.line}. The first difference is in {name}:\n"
        f"      recorded: {_excerpt(recorded, actual)}\n"
        f"      actual:   {_excerpt(actual, recorded)}"
    )


def _list_fields(request: RecordedRequest) -> dict[str, str]:
    return {"the path": request.path, "stream": _json(request.stream), **dict(_leaves(request.body))}


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield each scalar with its JSON path."""
    match value:
        case dict() if value:
            for key, item in value.items():
                yield from _leaves(item, f"{name}.{key}" if name else key)
        case list() if value:
            for index, item in enumerate(value):
                yield from _leaves(item, f"{name}[{index}]")
        case _:
            yield name, _json(value)


def _json(value: object) -> str:
    return write_bytes(value).decode()


def _excerpt(text: str, other: str) -> str:
    """Shorten a value to the part around the first difference."""
    same = next((index for index, pair in enumerate(zip(text, other, strict=False)) if pair[0] != pair[1]), 0)
    start = max(same - MAX_VALUE_LENGTH // 2, 0)
    excerpt = text[start : start + MAX_VALUE_LENGTH]
    return ("…" if start else "") + excerpt + ("…" if text[start + MAX_VALUE_LENGTH :] else "")
