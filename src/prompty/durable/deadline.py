"""The deadline of a durable run, by the clock of the database that all its workers share.

No effect begins after it, and one that is under way is abandoned. The error becomes the result of a step, so a worker
that takes the run over meets the same end. Used by `durable.performer`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from prompty.errors import DeadlineExceeded

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunDeadline:
    """Seconds since 1970, or None for no deadline, and the clock to compare it with."""

    at: float | None
    read_clock: Callable[[], float]

    def error(self) -> DeadlineExceeded:
        assert self.at is not None  # noqa: S101  it was exceeded
        return DeadlineExceeded(datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds"))

    def has_passed(self) -> bool:
        return self.at is not None and self.read_clock() >= self.at

    async def limit(self, begin: Callable[[], Awaitable[T]]) -> T:
        """Perform an effect, if there is time for it. Abandon it at the deadline, and raise DeadlineExceeded."""
        if self.at is None:
            return await begin()
        if self.has_passed():
            raise self.error()
        limit = asyncio.timeout(self.at - self.read_clock())
        try:
            async with limit:
                return await begin()
        except Exception:
            if limit.expired():  # whatever the effect made of its end
                raise self.error() from None
            raise


NO_DEADLINE: RunDeadline = RunDeadline(None, time.time)
