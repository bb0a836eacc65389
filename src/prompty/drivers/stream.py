"""Streams: iterate over the text as it arrives, and get the result at the end."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from decimal import Decimal
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

from pydantic_core import from_json

from prompty.drivers.driver import Outcome
from prompty.errors import StreamCut
from prompty.model.citation import Citation, ProviderCall
from prompty.model.event import Done, Event, IterationStarted, TextDelta
from prompty.model.message import Message, ToolCall, Usage
from prompty.model.paused import Paused
from prompty.safety.redaction import Redactor, mask_secrets

T = TypeVar("T")
_SHOWN = 60  # characters of the text in a repr


class StreamState(Generic[T]):
    """The events and result that a stream has received so far."""

    def __init__(self, redactor: Redactor | None) -> None:
        self._end: Done | Paused | None = None
        self._mask = redactor.mask if redactor else mask_secrets
        self._pieces: list[str] = []

    @property
    def usage(self) -> Usage:
        """The token usage of the run. Unknown until it is complete."""
        return self._end.usage if isinstance(self._end, Done) else Usage()

    @property
    def cost(self) -> Decimal | None:
        """The cost of the run in dollars. None if it is unknown, or the run is not complete."""
        return self._end.cost if isinstance(self._end, Done) else None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation after the run. Empty until it is complete."""
        return self._end.messages if isinstance(self._end, Done) else ()

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The sources of the answer. Empty until the run is complete."""
        return self._end.citations if isinstance(self._end, Done) else ()

    @property
    def provider_calls(self) -> tuple[ProviderCall, ...]:
        """The tools that providers ran. Empty until the run is complete."""
        return self._end.provider_calls if isinstance(self._end, Done) else ()

    @property
    def text(self) -> str:
        """The text of the current answer so far."""
        return "".join(self._pieces)

    def __repr__(self) -> str:
        state = "running"
        if self._end is not None:
            state = "complete" if isinstance(self._end, Done) else "paused"
        shown = self._mask(self.text)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        return f"<{type(self).__name__} {state}, text so far: {shown!r}>"

    def _result(self) -> T:
        if self._end is None:
            raise StreamCut("the stream was closed before the answer was complete")
        result: Any = self._end.result if isinstance(self._end, Done) else self._end
        return cast(T, result)

    def _unanswered_calls(self) -> tuple[ToolCall, ...]:
        """Return the tool calls that are left to the caller."""
        return tuple(self.messages[-1].tool_calls) if self.messages else ()

    def _note(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._pieces.append(event.text)
        elif isinstance(event, IterationStarted):
            self._pieces.clear()

    def _partial(self) -> object:
        """Return the structured value so far. Its last string may be incomplete."""
        try:
            return from_json(self.text, allow_partial="trailing-strings")
        except ValueError:
            return None


class PromptyStream(StreamState[T]):
    """A running answer. Iterate over it for text (then tool calls), `events()` for everything, `result` for the result.

    Close it, or use it in a `with` statement, to abandon an answer early. A stream that is garbage collected closes
    itself.
    """

    def __init__(self, events: Generator[Event, None, Done | Paused], redactor: Redactor | None = None) -> None:
        super().__init__(redactor)
        self._events = events
        self._first: Event | None = None
        try:  # start the run now, so that errors in the file and its inputs are raised here, and closing ends its span
            self._first = next(events)
        except StopIteration as end:
            self._end = end.value

    def events(self) -> Iterator[Event]:
        """Yield all events from here on."""
        if self._first is not None:
            event, self._first = self._first, None
            self._note(event)
            yield event
        while self._end is None:
            try:
                event = next(self._events)
            except StopIteration as end:
                self._end = end.value
                return
            self._note(event)
            yield event

    def __iter__(self) -> Iterator[str | ToolCall]:
        for event in self.events():
            if isinstance(event, TextDelta):
                yield event.text
        yield from self._unanswered_calls()

    def partials(self) -> Iterator[object]:
        """Yield the structured value as it grows."""
        for event in self.events():
            if isinstance(event, TextDelta) and (value := self._partial()) is not None:
                yield value

    @property
    def result(self) -> T:
        """Wait for the rest of the answer, and return the result."""
        for _ in self.events():
            pass
        return self._result()

    def close(self) -> None:
        """Abandon the rest of the answer, close its connection, and cancel async tools that are running."""
        self._first = None
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncPromptyStream(StreamState[T]):
    """A running answer in async code. Iterate over it for text (then tool calls), `events()` for everything, `await
    result()` for the result.

    Close it, or use it in an `async with` statement: after a `break` it would keep its connection.
    """

    def __init__(
        self, events: AsyncGenerator[Event | Outcome[Done | Paused], None], redactor: Redactor | None = None
    ) -> None:
        super().__init__(redactor)
        self._events = events
        self._first: Event | None = None

    @classmethod
    async def start(
        cls, events: AsyncGenerator[Event | Outcome[Done | Paused], None], redactor: Redactor | None = None
    ) -> Self:
        """Start the run and return its stream. Errors in the file and its inputs are raised here."""
        stream = cls(events, redactor)
        first = await anext(events)
        if isinstance(first, Outcome):
            stream._end = first.value
        else:
            stream._first = first
        return stream

    async def events(self) -> AsyncIterator[Event]:
        """Yield all events from here on."""
        if self._first is not None:
            first, self._first = self._first, None
            self._note(first)
            yield first
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
        for call in self._unanswered_calls():
            yield call

    async def partials(self) -> AsyncIterator[object]:
        """Yield the structured value as it grows."""
        async for event in self.events():
            if isinstance(event, TextDelta) and (value := self._partial()) is not None:
                yield value

    async def result(self) -> T:
        """Wait for the rest of the answer, and return the result."""
        async for _ in self.events():
            pass
        return self._result()

    async def aclose(self) -> None:
        """Abandon the rest of the answer, close its connection, and cancel async tools that are running."""
        self._first = None
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
