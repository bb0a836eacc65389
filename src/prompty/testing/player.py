"""Plays recordings: requests are answered as they were when they were recorded, without key, client or network."""

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
from prompty.testing.exchange import Asked, asked, hide_inputs, masking, read_line
from prompty.testing.transport import AsyncLocalTransport, LocalTransport, Received
from prompty.wire.json_bytes import write_bytes

LONGEST_VALUE = 80
ABSENT = "nothing"


class Recorded(NamedTuple):
    """An exchange, and the line it is in."""

    line: int
    request: Asked
    answer: Answered


class Player(Tap):
    """Within `with Player(path):` every call to a model is answered from a file; equal ones in its order, each once."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._recordings = list(self._read())
        self._lock, self._hidden = Lock(), Redactor()
        self._waiting: dict[object, deque[Recorded]] = defaultdict(deque)
        for recorded in self._recordings:
            self._waiting[recorded.request.key].append(recorded)

    def transport(self, provider: Provider, agent: PromptAgent, /) -> Transport:
        return LocalTransport(partial(self._pieces, provider, agent))

    def transport_async(self, provider: Provider, agent: PromptAgent, /) -> AsyncTransport:
        return AsyncLocalTransport(partial(self._pieces, provider, agent))

    def hide(self, values: Sequence[object], /) -> None:
        hide_inputs(self._hidden, values)

    def _read(self) -> Iterator[Recorded]:
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                if line.strip():
                    yield Recorded(number, *read_line(line))
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise self._missing(f"line {number} of {self.path} cannot be read: {error}") from None

    def _pieces(self, provider: Provider, agent: PromptAgent, request: WireRequest) -> Received:
        """What fails at once fails here, not when it is read."""
        wanted = asked(provider.key, request, masking(agent, request, self._hidden))
        with self._lock:
            waiting = self._waiting.get(wanted.key)
            found = waiting.popleft() if waiting else None
        if found is None:
            raise self._missing(_told(self.path, wanted, self._recordings))
        if found.answer.chunks is None and found.answer.error:
            raise found.answer.error
        return self._played(found)

    def _played(self, found: Recorded) -> Received:
        answer = found.answer
        chunks = answer.chunks or ()
        yield from chunks
        if answer.error:
            raise answer.error
        if answer.left:
            raise self._missing(
                f"line {found.line} of {self.path} ends after {len(chunks)} chunks: whoever recorded it left"
            )

    def _missing(self, cause: str) -> RecordingMissing:
        again = f"run `pytest --prompty-live`, or make the call within `with Recorder({str(self.path)!r}):`."
        return RecordingMissing(cause, f"To record it again, {again}")


def _told(path: Path, wanted: Asked, recordings: list[Recorded]) -> str:
    """What was asked for, and what of it the nearest recording has otherwise."""
    if not recordings:
        return f"no recording answers this request: {path} " + ("is empty" if path.exists() else "does not exist")
    fields = _leaves_of(wanted)
    near = max(recordings, key=lambda recorded: len(fields.items() & _leaves_of(recorded.request).items()))
    if near.request.key == wanted.key:
        return f"no recording in {path} is left to answer this request: each is played once"
    there = _leaves_of(near.request)
    name = next(name for name in {**fields, **there} if fields.get(name) != there.get(name))
    asked_for, recorded = fields.get(name, ABSENT), there.get(name, ABSENT)
    return (
        f"no recording in {path} answers this request\n"
        f"    The nearest one is in line {near.line}. It differs first in {name}:\n"
        f"      recorded: {_shown(recorded, asked_for)}\n"
        f"      asked:    {_shown(asked_for, recorded)}"
    )


def _leaves_of(request: Asked) -> dict[str, str]:
    fields = dict(_leaves(request.body))
    return {"the path": request.path, "stream": _json(request.stream), **fields}


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Each value that holds no others, with its JSON path."""
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


def _shown(text: str, other: str) -> str:
    """A value, shortened to where it begins to be another one."""
    same = next((index for index, pair in enumerate(zip(text, other, strict=False)) if pair[0] != pair[1]), 0)
    start = max(same - LONGEST_VALUE // 2, 0)
    shown = text[start : start + LONGEST_VALUE]
    return ("…" if start else "") + shown + ("…" if text[start + LONGEST_VALUE :] else "")
