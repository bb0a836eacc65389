"""Delta stream: a model's words on their way to the readers of a turn."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Self, TypeVar, get_args

from pydantic import TypeAdapter

from prompty.drivers.driver import Outcome
from prompty.durable.envelope import seal
from prompty.model.event import Delta, Event
from prompty.model.message import Json

T = TypeVar("T")
_DELTAS: dict[str, TypeAdapter[Delta]] = {one.__name__: TypeAdapter(one) for one in get_args(Delta)}
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
    kind = type(delta).__name__
    return {"kind": kind, "delta": _DELTAS[kind].dump_python(delta, mode="json")}


def delta_from(value: Any) -> Delta:
    """Decode the result of `delta_to_json`."""
    return _DELTAS[value["kind"]].validate_python(value["delta"])
