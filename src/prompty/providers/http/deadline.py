"""The time that an exchange has. It is looked at before every read and every write, so that nothing can stretch it."""

import time

MAX_SILENCE = 600.0  # seconds without a byte
MAX_CONNECT = 10.0
MAX_ERROR_BODY = 10.0  # for the body of an answer that has failed already


class Deadline:
    """The moment at which an exchange ends, or no moment. It goes where an HTTP library expects a number of seconds."""

    __slots__ = ("_end",)

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self, most: float = MAX_SILENCE) -> float:
        """Return the seconds that the next step may take. Raise TimeoutError if none are left."""
        if self._end is None:
            return most
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return min(left, most)

    def shorten(self, seconds: float) -> None:
        """End in so many seconds at the latest."""
        end = time.monotonic() + seconds
        self._end = end if self._end is None else min(self._end, end)
