"""Delta stream: a model's words on their way to the readers of a turn."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Self, TypeVar

from prompty.drivers.aio import Outcome
from prompty.durable.envelope import seal
from prompty.model.citation import parse_citations, parse_provider_calls
from prompty.model.event import (
    CitationAdded,
    Delta,
    Event,
    ProviderCallDone,
    ProviderCallStarted,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from prompty.model.message import Json

T = TypeVar("T")
FLUSH_SECONDS = 0.1  # a write costs about half a step, so deltas are written in groups


class DeltaWriter:
    """Writes deltas in groups, with the attempt they belong to: a retried call writes its own."""

    def __init__(self, write: Callable[[Json], Awaitable[None]], step: str, attempt: str) -> None:
        self._write, self._step, self._attempt = write, step, attempt
        self._buffer: list[Json] = []
        self._flushed = time.monotonic()

    async def record(
        self, events: AsyncGenerator[Event | Outcome[T], None]
    ) -> AsyncGenerator[Event | Outcome[T], None]:
        """Yield the events of a call, and write their deltas."""
        async for event in events:
            if isinstance(event, Delta):
                self._buffer.append(delta_to_json(event))
                if time.monotonic() - self._flushed >= FLUSH_SECONDS:
                    await self._flush()
            yield event

    async def _flush(self) -> None:
        if self._buffer:
            await self._write(seal({"step": self._step, "attempt": self._attempt, "deltas": self._buffer}))
        self._buffer, self._flushed = [], time.monotonic()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._flush()


def delta_to_json(delta: Delta) -> Json:
    match delta:
        case TextDelta(text):
            return {"text": text}
        case ReasoningDelta(text):
            return {"reasoning": text}
        case ToolCallDelta(index, id, name, arguments):
            return {"call": [index, id, name, arguments]}
        case ProviderCallStarted(started):
            return {"started": started.to_json()}
        case ProviderCallDone(done):
            return {"done": done.to_json()}
        case CitationAdded(citation):
            return {"citation": citation.to_json()}


def delta_from(value: Any) -> Delta:
    """Decode the result of `delta_to_json`."""
    match value:
        case {"text": str(text)}:
            return TextDelta(text)
        case {"reasoning": str(text)}:
            return ReasoningDelta(text)
        case {"started": started}:
            return ProviderCallStarted(*parse_provider_calls([started]))
        case {"done": done}:
            return ProviderCallDone(*parse_provider_calls([done]))
        case {"citation": citation}:
            return CitationAdded(*parse_citations([citation]))
    return ToolCallDelta(*value["call"])
