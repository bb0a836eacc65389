"""What a worker may put around its model calls, to make them wait their turn and to hear how they go."""

from collections.abc import AsyncGenerator
from typing import Protocol, TypeVar

from prompty.drivers.aio import Outcome
from prompty.model.event import Event

T = TypeVar("T")


class Pace(Protocol):
    """Called with the events of each model call, none of which has happened yet; gives them on as they happen."""

    def __call__(
        self, events: AsyncGenerator[Event | Outcome[T], None], /
    ) -> AsyncGenerator[Event | Outcome[T], None]: ...
