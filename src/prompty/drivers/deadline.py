"""Deadlines: values of `time.monotonic`, or None for no limit."""

import time
from dataclasses import dataclass, field, replace

from prompty.errors import BudgetSpent, ModelError
from prompty.model.request import WireRequest

Deadline = float | None


@dataclass(slots=True)
class Clock:
    """The time budget of a run, and the deadline of its current model call."""

    seconds: float | None = None
    end: Deadline = field(init=False)
    current: Deadline = field(init=False)
    _call: int = 0

    def __post_init__(self) -> None:
        self.end = self.current = _after(self.seconds)

    def deadline(self, call: int, timeout: float | None) -> Deadline:
        """Return the deadline of a model call. All attempts of one call share it."""
        if timeout is None and self.end is None:
            return None
        if call != self._call:
            self._call = call
            ends = [moment for moment in (self.end, _after(timeout)) if moment is not None]
            self.current = min(ends, default=None)
        return self.current

    def left(self) -> float | None:
        """Return the seconds left in the run's budget."""
        return None if self.end is None else max(self.end - time.monotonic(), 0)

    def check(self) -> None:
        """Raise BudgetSpent if the run has used its time."""
        if self.end is not None and time.monotonic() > self.end:
            raise BudgetSpent(f"the turn has used its budget of {self.seconds} seconds")


def _after(seconds: float | None) -> Deadline:
    return None if seconds is None else time.monotonic() + seconds


def check_deadline(deadline: Deadline, seconds: float = 0) -> float:
    """Return `seconds` if the deadline is later than that, else raise ModelError."""
    if deadline is not None and time.monotonic() + seconds > deadline:
        raise ModelError("the call did not end before its timeout")
    return seconds


def limit_timeout(request: WireRequest, deadline: Deadline) -> WireRequest:
    """Return the request with the remaining time as its timeout."""
    if deadline is None:
        return request
    check_deadline(deadline)
    return replace(request, timeout=max(deadline - time.monotonic(), 0.001))


NO_LIMIT = Clock()  # shared: without limits it never changes
