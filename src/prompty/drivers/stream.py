"""A streamed answer, as a person uses it: text while it comes, the result at the end."""

from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from pydantic_core import from_json

from prompty.errors import StreamCut
from prompty.model.event import Done, Event, IterationStarted, TextDelta
from prompty.model.message import Message, ToolCall
from prompty.model.paused import Paused
from prompty.model.reply import Reply, Usage

T = TypeVar("T")


class StreamState(Generic[T]):
    """What has come of a stream so far, and what it comes to."""

    def __init__(self, finish: Callable[[Any], T]) -> None:
        self._finish = finish
        self._end: Reply | Done | Paused | None = None
        self._pieces: list[str] = []

    @property
    def usage(self) -> Usage:
        """The tokens of the answer, or of all answers of a turn; unknown until it is complete."""
        return self._end.usage if isinstance(self._end, Reply | Done) else Usage()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation after a turn; empty until it is over, and for a single call."""
        return self._end.messages if isinstance(self._end, Done) else ()

    def _final(self) -> T:
        if self._end is None:
            raise StreamCut("the stream was closed before the answer was complete")
        return self._finish(self._end)

    def _calls(self) -> tuple[ToolCall, ...]:
        return self._end.tool_calls if isinstance(self._end, Reply) else ()

    def _note(self, event: Event) -> None:
        """Keep the words of the answer that is being written."""
        if isinstance(event, TextDelta):
            self._pieces.append(event.text)
        elif isinstance(event, IterationStarted):
            self._pieces.clear()

    def _partial(self) -> object:
        """The structured value so far: what of the JSON has come, its last text still growing."""
        try:
            return from_json("".join(self._pieces), allow_partial="trailing-strings")
        except ValueError:
            return None


class PromptyStream(StreamState[T]):
    """Iterate it for text (and calls, at the end), `events()` for everything, `result` for the result.

    Use it in a `with` statement, or close it, to give up an answer early; one that is dropped closes itself.
    """

    def __init__(self, events: Generator[Event, None, Reply | Done | Paused], finish: Callable[[Any], T]) -> None:
        super().__init__(finish)
        self._events = events

    def events(self) -> Iterator[Event]:
        """Everything that happens, from where the stream stands."""
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
        yield from self._calls()

    def partials(self) -> Iterator[object]:
        """The structured value as it grows."""
        for event in self.events():
            if isinstance(event, TextDelta) and (value := self._partial()) is not None:
                yield value

    @property
    def result(self) -> T:
        """The result; waits for the rest of the answer."""
        for _ in self.events():
            pass
        return self._final()

    def close(self) -> None:
        """Give up the rest of the answer, and its connection."""
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
