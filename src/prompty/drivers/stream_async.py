"""A streamed answer in async code."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from prompty.drivers.decoding import Outcome
from prompty.drivers.stream import StreamState
from prompty.model.event import Done, Event, TextDelta
from prompty.model.message import ToolCall
from prompty.model.paused import Paused
from prompty.model.reply import Reply

T = TypeVar("T")


class AsyncPromptyStream(StreamState[T]):
    """Iterate it for text (and calls, at the end), `events()` for everything, `await result()` for the result.

    Use it in an `async with` statement, or close it: a stream that is left by `break` and kept holds its connection.
    """

    def __init__(
        self, events: AsyncGenerator[Event | Outcome[Reply | Done | Paused], None], finish: Callable[[Any], T]
    ) -> None:
        super().__init__(finish)
        self._events = events

    async def events(self) -> AsyncIterator[Event]:
        """Everything that happens, from where the stream stands."""
        async for event in self._events:
            if isinstance(event, Outcome):
                self._end = event.value
                continue
            self._note(event)
            yield event

    async def __aiter__(self) -> AsyncIterator[str | ToolCall]:
        async for event in self.events():
            if isinstance(event, TextDelta):
                yield event.text
        for call in self._calls():
            yield call

    async def partials(self) -> AsyncIterator[object]:
        """The structured value as it grows."""
        async for event in self.events():
            if isinstance(event, TextDelta) and (value := self._partial()) is not None:
                yield value

    async def result(self) -> T:
        """The result; waits for the rest of the answer."""
        async for _ in self.events():
            pass
        return self._final()

    async def aclose(self) -> None:
        """Give up the rest of the answer, and its connection."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
