"""Throttle: apply the concurrency limit to the calls of this process, and adapt it to their outcomes."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TypeVar

from prompty.batches.concurrency_limit import OVERLOAD_STATUSES, ConcurrencyLimit, create_limit
from prompty.drivers.aio import Outcome
from prompty.errors import ModelError
from prompty.model.event import Event, Retry

T = TypeVar("T")


class CallTimer:
    """Start time of the current request of a call."""

    def __init__(self, started: float) -> None:
        self.started = started


class Throttle:
    """The current limit and its clock. Report the outcome of every call."""

    def __init__(self, maximum: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit: ConcurrencyLimit = create_limit(maximum)
        self.clock = clock

    def has_free_slot(self, running: int) -> bool:
        return self.limit.count_free_slots(running, self.clock()) > 0

    @property
    def pause_seconds(self) -> float:
        """Seconds until calls may start again."""
        return max(self.limit.paused_until - self.clock(), 0.0)

    def start_call(self) -> CallTimer:
        return CallTimer(self.clock())

    def on_retry(self, call: CallTimer, retry: Retry) -> None:
        """Record a failed request that is going to be retried."""
        if retry.status in OVERLOAD_STATUSES:
            self._on_overload(call, None if retry.retry_after is None else retry.seconds)
        call.started = self.clock() + retry.seconds

    def on_failure(self, call: CallTimer, error: Exception) -> None:
        """Record a call that failed and is not retried."""
        if isinstance(error, ModelError) and error.status in OVERLOAD_STATUSES:
            self._on_overload(call, error.retry_after)

    def on_success(self, call: CallTimer, running: int) -> None:
        self.limit = self.limit.after_success(started=call.started, now=self.clock(), running=running)

    def _on_overload(self, call: CallTimer, retry_after: float | None) -> None:
        self.limit = self.limit.after_overload(started=call.started, now=self.clock(), retry_after=retry_after)


class ThrottledCalls:
    """Model calls of a durable worker: each call, including a retry, waits for a free slot."""

    def __init__(self, throttle: Throttle) -> None:
        self.throttle = throttle
        self._running = self._waiting = 0
        self._slot_freed = asyncio.Event()

    async def __call__(
        self, events: AsyncGenerator[Event | Outcome[T], None], /
    ) -> AsyncGenerator[Event | Outcome[T], None]:
        """Wait for a free slot, then yield the call's events."""
        await self._wait_for_slot()
        self._running += 1
        call = self.throttle.start_call()
        try:
            async for event in events:
                yield event
            self.throttle.on_success(call, self._running + self._waiting)
        except ModelError as error:
            self.throttle.on_failure(call, error)
            raise
        finally:
            self._running -= 1
            self._slot_freed.set()  # wakes the calls waiting now; later ones wait for the next event
            self._slot_freed = asyncio.Event()

    async def _wait_for_slot(self) -> None:
        self._waiting += 1
        try:
            while not self.throttle.has_free_slot(self._running):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._slot_freed.wait(), self.throttle.pause_seconds or None)
        finally:
            self._waiting -= 1
