"""Throttle the calls of this process, and adapt the limit on concurrent ones to their outcomes.

The limit is AIMD: additive increase while calls succeed, multiplicative decrease on overload, which is a status of the
provider (429, 503), or calls that take twice as long as usual. It is pure: each event returns a new limit. Times are
seconds of any one clock.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from prompty.drivers.aio import Outcome
from prompty.errors import ModelError
from prompty.model.event import Event, Retry

INITIAL_LIMIT = 4.0
DECREASE_FACTOR = 0.7
SLOW_FACTOR = 2.0  # calls that take this many times the baseline are slow
MIN_SAMPLE = 10  # calls that make a meaningful mean
BASELINE_GROWTH = 1.05  # how fast the baseline follows calls that have become slower for good
MAX_PAUSE_SECONDS = 60.0  # a server's Retry-After is honoured up to this
OVERLOAD_STATUSES = frozenset({429, 503})


@dataclass(frozen=True, kw_only=True, slots=True)
class ConcurrencyLimit:
    """`value` calls may run at once, at most `maximum`. No call starts before `paused_until`.

    Calls that started before `lowered_at` ran under a higher limit and are not held against this one. `baseline` is the
    duration of a call while the provider has capacity to spare; `seconds` and `calls` are the sample since it was last
    compared with that. `slow_start` lasts until the first overload, as in TCP.
    """

    maximum: int
    value: float
    paused_until: float = 0.0
    lowered_at: float = float("-inf")
    slow_start: bool = True
    baseline: float | None = None
    seconds: float = 0.0
    calls: int = 0

    def count_free_slots(self, running: int, now: float) -> int:
        return 0 if now < self.paused_until else max(int(self.value) - running, 0)

    def after_success(self, *, started: float, now: float, running: int) -> "ConcurrencyLimit":
        """Raise the limit by one per round of calls, or per call during slow start. An unused limit does not grow."""
        step = 1.0 if self.slow_start else 1.0 / self.value
        grown = self.value + step if running >= int(self.value) else self.value
        limit = replace(self, value=min(grown, float(self.maximum)))
        if started < self.lowered_at:
            return limit
        limit = replace(limit, seconds=self.seconds + now - started, calls=self.calls + 1)
        return limit._compare_with_baseline(now) if limit.calls >= max(limit.value / 2, MIN_SAMPLE) else limit

    def after_overload(self, *, started: float, now: float, retry_after: float | None) -> "ConcurrencyLimit":
        """Lower the limit once per overload, and pause all calls for as long as the provider asked."""
        until = max(self.paused_until, now + min(retry_after or 0.0, MAX_PAUSE_SECONDS))
        limit = replace(self, paused_until=until, slow_start=False)
        return limit if started < self.lowered_at else limit._lower(now)

    def _compare_with_baseline(self, now: float) -> "ConcurrencyLimit":
        mean = self.seconds / self.calls
        baseline = mean if self.baseline is None else min(mean, self.baseline * BASELINE_GROWTH)
        limit = replace(self, baseline=baseline, seconds=0.0, calls=0)
        if self.baseline is None or mean <= SLOW_FACTOR * self.baseline:
            return limit
        return replace(limit, slow_start=False)._lower(now)

    def _lower(self, now: float) -> "ConcurrencyLimit":
        return replace(self, value=max(self.value * DECREASE_FACTOR, 1.0), lowered_at=now, seconds=0.0, calls=0)


def create_limit(maximum: int) -> ConcurrencyLimit:
    return ConcurrencyLimit(maximum=maximum, value=min(INITIAL_LIMIT, maximum))


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
