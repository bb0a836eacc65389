"""The moment by which a call must be over: a value of `time.monotonic`, or None for one that may take its time."""

import time
from dataclasses import replace

from prompty.errors import ModelError
from prompty.providers import WireRequest

Deadline = float | None


def deadline_after(timeout: float | None) -> Deadline:
    return None if timeout is None else time.monotonic() + timeout


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
