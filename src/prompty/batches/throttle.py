"""Throttle the calls of this process, and adapt the limit on concurrent ones to their outcomes.

The limit is AIMD: additive increase while calls succeed, multiplicative decrease when the provider says that it is
overloaded: by the status 429, 503 or 529, or by a Retry-After. How long calls take says nothing about that, because
answers have different lengths. It is pure: each event returns a new limit. Times are seconds of any one clock.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from prompty.errors import ModelError
from prompty.model.event import Retry

INITIAL_LIMIT = 4.0  # or a sixteenth of the maximum, which slow start reaches after four rounds
DECREASE_FACTOR = 0.85  # a smaller one leaves more than a tenth of the provider unused
MAX_PAUSE_SECONDS = 60.0  # a server's Retry-After is honoured up to this
OVERLOAD_STATUSES = frozenset({429, 503, 529})  # the last one is Anthropic's
CONCURRENCY = 64  # the default of the command and of the functions


@dataclass(frozen=True, kw_only=True, slots=True)
class ConcurrencyLimit:
    """`value` calls may run at once, at most `maximum`. No call starts before `paused_until`.

    Calls that started before `lowered_at` ran under a higher limit, so their failures do not lower this one.
    `slow_start` lasts until the first overload, as in TCP.
    """

    maximum: int
    value: float
    paused_until: float = 0.0
    lowered_at: float = float("-inf")
    slow_start: bool = True

    def count_free_slots(self, running: int, now: float) -> int:
        return 0 if now < self.paused_until else max(int(self.value) - running, 0)

    def after_success(self, *, running: int) -> "ConcurrencyLimit":
        """Raise the limit by one per round of calls, or per call during slow start. An unused limit does not grow."""
        if running < int(self.value):
            return self
        step = 1.0 if self.slow_start else 1.0 / self.value
        return replace(self, value=min(self.value + step, float(self.maximum)))

    def after_overload(self, *, started: float, now: float, retry_after: float | None) -> "ConcurrencyLimit":
        """Lower the limit once per overload, and pause all calls for as long as the provider asked."""
        until = max(self.paused_until, now + min(retry_after or 0.0, MAX_PAUSE_SECONDS))
        limit = replace(self, paused_until=until, slow_start=False)
        if started < self.lowered_at:
            return limit
        return replace(limit, value=max(self.value * DECREASE_FACTOR, 1.0), lowered_at=now)


def create_limit(maximum: int) -> ConcurrencyLimit:
    return ConcurrencyLimit(maximum=maximum, value=min(max(INITIAL_LIMIT, maximum / 16), maximum))


T = TypeVar("T")


class CallTimer:
    """Start time of the current request of a call."""

    def __init__(self, started: float) -> None:
        self.started = started


class Throttle:
    """The current limit and its clock. Report the outcome of every call.

    `on_lowered` is told each limit that is lower than all before, and the provider's words for why.
    """

    def __init__(
        self,
        maximum: int,
        clock: Callable[[], float] = time.monotonic,
        on_lowered: Callable[[int, str], object] = lambda limit, reason: None,
    ) -> None:
        self.limit: ConcurrencyLimit = create_limit(maximum)
        self.clock = clock
        self._on_lowered, self._lowest = on_lowered, maximum

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
        self._on_failure(call, retry.status, retry.retry_after and retry.seconds, retry.reason)
        call.started = self.clock() + retry.seconds

    def on_failure(self, call: CallTimer, error: Exception) -> None:
        """Record a call that failed and is not retried."""
        if isinstance(error, ModelError):
            self._on_failure(call, error.status, error.retry_after, error.cause)

    def on_success(self, running: int) -> None:
        self.limit = self.limit.after_success(running=running)

    def _on_failure(self, call: CallTimer, status: int | None, retry_after: float | None, reason: str) -> None:
        if status not in OVERLOAD_STATUSES and retry_after is None:
            return
        self.limit = self.limit.after_overload(started=call.started, now=self.clock(), retry_after=retry_after)
        if (value := int(self.limit.value)) < self._lowest:
            self._lowest = value
            self._on_lowered(value, reason)
