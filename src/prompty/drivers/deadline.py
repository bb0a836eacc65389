"""The moments by which things must be over: values of `time.monotonic`, or None for what may take its time."""

import time
from dataclasses import dataclass, field, replace

from prompty.errors import BudgetSpent, ModelError
from prompty.model.request import WireRequest

Deadline = float | None


@dataclass(slots=True)
class Clock:
    """The time that a run has, and that its requests have: all tries of one request share its timeout."""

    seconds: float | None = None
    end: Deadline = None
    current: Deadline = None
    _request: WireRequest | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.end = self.current = _after(self.seconds)

    def deadline(self, request: WireRequest) -> Deadline:
        """When the answer to a request must be there."""
        if request is not self._request:
            self._request = request
            self.current = _earlier(self.end, _after(request.timeout))
        return self.current

    def left(self) -> float | None:
        """The seconds that the run has left."""
        return None if self.end is None else max(self.end - time.monotonic(), 0)

    def check(self) -> None:
        if self.end is not None and time.monotonic() > self.end:
            raise BudgetSpent(f"the turn has used its {self.seconds} seconds")


def _after(seconds: float | None) -> Deadline:
    return None if seconds is None else time.monotonic() + seconds


def _earlier(first: Deadline, second: Deadline) -> Deadline:
    return min((moment for moment in (first, second) if moment is not None), default=None)


def within(deadline: Deadline, seconds: float = 0) -> float:
    """These seconds, if there is time for them."""
    if deadline is not None and time.monotonic() + seconds > deadline:
        raise ModelError("the call did not end in time")
    return seconds


def timed(request: WireRequest, deadline: Deadline) -> WireRequest:
    """The request with the time that is left for it."""
    if deadline is None:
        return request
    within(deadline)
    return replace(request, timeout=max(deadline - time.monotonic(), 0.001))
