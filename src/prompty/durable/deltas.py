"""Words of a model on their way to whoever reads the events of a run."""

import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any, Self, TypeVar

from prompty.drivers.aio import Outcome
from prompty.durable.values import opened, sealed
from prompty.model.event import Delta, Event, ReasoningDelta, Retry, TextDelta, ToolCallDelta
from prompty.model.message import Json

T = TypeVar("T")
# A write costs about as much as half a step, so words are told a few times a second and not one by one.
INTERVAL = 0.1


class Deltas:
    """Gathers words and tells them together, with the attempt they belong to: a call made again tells them again."""

    def __init__(self, write: Callable[[Json], Awaitable[None]], step: str, attempt: str) -> None:
        self._write, self._step, self._attempt = write, step, attempt
        self._waiting: list[Json] = []
        self._told = time.monotonic()

    async def heard(self, events: AsyncGenerator[Event | Outcome[T], None]) -> AsyncGenerator[Event | Outcome[T], None]:
        async for event in events:
            if isinstance(event, TextDelta | ReasoningDelta | ToolCallDelta):
                self._waiting.append(delta_to_json(event))
                if time.monotonic() - self._told >= INTERVAL:
                    await self._tell()
            yield event

    async def _tell(self) -> None:
        if self._waiting:
            await self._write(sealed({"step": self._step, "attempt": self._attempt, "deltas": self._waiting}))
        self._waiting, self._told = [], time.monotonic()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tell()


def delta_to_json(delta: Delta) -> Json:
    match delta:
        case TextDelta(text):
            return {"text": text}
        case ReasoningDelta(text):
            return {"reasoning": text}
        case ToolCallDelta(index, id, name, arguments):
            return {"call": [index, id, name, arguments]}


def delta_from(value: Any) -> Delta:
    """Read what `delta_to_json` wrote."""
    match value:
        case {"text": str(text)}:
            return TextDelta(text)
        case {"reasoning": str(text)}:
            return ReasoningDelta(text)
    return ToolCallDelta(*value["call"])


class Told:
    """What was told of a run, for its readers: of each step the words of one attempt, each once."""

    def __init__(self) -> None:
        self.count = 0
        self._deltas: dict[str, dict[str, list[Json]]] = defaultdict(lambda: defaultdict(list))
        self._shown: dict[str, tuple[str, int]] = {}

    def add(self, written: list[object], run_id: str) -> None:
        for value in written:
            self.count += 1
            told: Any = opened(value, f"what was told of the run '{run_id}'")
            self._deltas[told["step"]][told["attempt"]] += told["deltas"]

    def new_of(self, step: str, attempt: str | None) -> Iterator[Event]:
        """What was not shown yet of the attempt that counts: the one that has ended, else the last that began. Who has
        seen words of another one is told that the call is made again."""
        attempts = self._deltas[step]
        attempt = attempt or next(reversed(attempts), None)
        if attempt is None:
            return
        before, count = self._shown.get(step, (attempt, 0))
        if before != attempt:
            count = 0
            yield Retry(len(attempts) - 1, 0.0, "the worker was lost while the model answered")
        deltas = attempts[attempt]
        self._shown[step] = (attempt, len(deltas))
        yield from map(delta_from, deltas[count:])
