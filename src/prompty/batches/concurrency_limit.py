"""AIMD limit on concurrent calls: additive increase while they succeed, multiplicative decrease on overload.

Overload is a status of the provider (429, 503), or calls that take twice as long as usual.
Pure: each event returns a new limit. Times are seconds of any one clock.
"""

from dataclasses import dataclass, replace

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
