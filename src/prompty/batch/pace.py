"""How fast the provider lets this process go: a control that hears what happens in the calls."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TypeVar

from prompty.batch.control import REFUSALS, new_control, refused, room, succeeded
from prompty.drivers.decoding import Outcome
from prompty.errors import ModelError
from prompty.model.event import Event, Retry

T = TypeVar("T")


class Timed:
    """When the request of a call that is under way was made."""

    def __init__(self, begun: float) -> None:
        self.begun = begun


class Pace:
    """The control, and the clock of what is under way."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.control, self.clock = new_control(most), clock

    def has_room(self, under_way: int) -> bool:
        return room(self.control, under_way, self.clock()) > 0

    @property
    def pause(self) -> float:
        """The seconds in which nothing may start."""
        return max(self.control.paused_until - self.clock(), 0.0)

    def begin(self) -> Timed:
        return Timed(self.clock())

    def retried(self, call: Timed, retry: Retry) -> None:
        """A request has failed and is made again later."""
        if retry.status in REFUSALS:
            self._refused(call, None if retry.retry_after is None else retry.seconds)
        call.begun = self.clock() + retry.seconds

    def failed(self, call: Timed, error: Exception) -> None:
        """A call has failed for good."""
        if isinstance(error, ModelError) and error.status in REFUSALS:
            self._refused(call, error.retry_after)

    def succeeded(self, call: Timed, under_way: int) -> None:
        self.control = succeeded(self.control, begun=call.begun, now=self.clock(), under_way=under_way)

    def _refused(self, call: Timed, retry_after: float | None) -> None:
        self.control = refused(self.control, begun=call.begun, now=self.clock(), retry_after=retry_after)


class PacedCalls:
    """The model calls of a worker: those that find no room wait for it. One that fails may be made again as another."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self._under_way = self._waiting = 0
        self._changed = asyncio.Event()

    async def __call__(
        self, events: AsyncGenerator[Event | Outcome[T], None], /
    ) -> AsyncGenerator[Event | Outcome[T], None]:
        """The events of a call, from when there is room for it."""
        await self._room()
        self._under_way += 1
        call = self.pace.begin()
        try:
            async for event in events:
                yield event
            self.pace.succeeded(call, self._under_way + self._waiting)
        except ModelError as error:
            self.pace.failed(call, error)
            raise
        finally:
            self._under_way -= 1
            self._changed.set()  # for those who wait now; who comes later waits for the next
            self._changed = asyncio.Event()

    async def _room(self) -> None:
        self._waiting += 1
        try:
            while not self.pace.has_room(self._under_way):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), self.pace.pause or None)
        finally:
            self._waiting -= 1
