"""Replay recordings: requests get their recorded responses, without a key, a client or a network."""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from prompty.errors import RecordingMissing
from prompty.model.agent import PromptAgent
from prompty.model.request import WireRequest
from prompty.providers import AsyncTransport, Provider, Tap, Transport
from prompty.providers.listening import Answered
from prompty.safety.redaction import Redactor
from prompty.testing.exchange import RecordedRequest, create_mask, decode_exchange, hide_inputs, mask_request
from prompty.testing.provider import AsyncLocalTransport, Chunks, LocalTransport
from prompty.wire.json_bytes import write_bytes

MAX_VALUE_LENGTH = 80
ABSENT = "nothing"


class Recording(NamedTuple):
    """An exchange, and the number of its line."""

    line: int
    request: RecordedRequest
    answer: Answered


class Player(Tap):
    """Within `with Player(path):`, answer model calls from a file. Each recording is played once, in order."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
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
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                if line.strip():
                    yield Recording(number, *decode_exchange(line))
            except (ValueError, LookupError, TypeError, AttributeError) as error:
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
        if answer.left:
            raise self._missing(
                f"line {recording.line} of {self.path} ends after {len(chunks)} chunks, where its reader stopped"
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
        f"    The most similar one is in line {near.line}. It differs first in {name}:\n"
        f"      recorded: {_excerpt(recorded, actual)}\n"
        f"      actual:   {_excerpt(actual, recorded)}"
    )


def _list_fields(request: RecordedRequest) -> dict[str, str]:
    fields = dict(_leaves(request.body))
    return {"the path": request.path, "stream": _json(request.stream), **fields}


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
