"""A call or a turn from its first to its last event, as one span, whoever reads the events and when."""

from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from prompty.drivers.decoding import Outcome
from prompty.model.event import Done, Event
from prompty.model.paused import Paused
from prompty.pipeline.telemetry import begin_call
from prompty.tracing import names
from prompty.tracing.spans import Span

E = TypeVar("E")
T = TypeVar("T")


class Once(Generic[T]):
    """Makes a result once, when the events are over, so that making it is part of the span."""

    def __init__(self, finish: Callable[[Any], T]) -> None:
        self._finish = finish
        self._made: T | None = None
        self._failure: Exception | None = None

    def __call__(self, _: object) -> T:
        if self._failure is not None:
            raise self._failure
        return self._made  # type: ignore[return-value]  # it was made, or it failed

    def make(self, end: object, span: Span) -> None:
        try:
            with span.within():
                self._made = self._finish(end)
            span("result", self._made)
        except Exception as error:  # whoever asks for the result gets it
            self._failure = error
            span.fail(error)


def spanned(
    span: Span, events: Generator[Event, None, E], finish: Callable[[Any], T]
) -> tuple[Generator[Event, None, E], Callable[[Any], T]]:
    """Events and what makes their result, within a span that ends with them."""
    if not span.live:
        return events, finish
    once = Once(finish)
    return _spanned(span, events, once), once


def spanned_async(
    span: Span, events: AsyncGenerator[Event | Outcome[E], None], finish: Callable[[Any], T]
) -> tuple[AsyncGenerator[Event | Outcome[E], None], Callable[[Any], T]]:
    """The same for async code."""
    if not span.live:
        return events, finish
    once = Once(finish)
    return _spanned_async(span, events, once), once


def _spanned(span: Span, events: Generator[Event, None, E], once: Once[T]) -> Generator[Event, None, E]:
    with _ending(span):
        end = yield from events
        once.make(end, span)
        return end


async def _spanned_async(
    span: Span, events: AsyncGenerator[Event | Outcome[E], None], once: Once[T]
) -> AsyncGenerator[Event | Outcome[E], None]:
    with _ending(span):
        try:
            async for event in events:
                if isinstance(event, Outcome):
                    once.make(event.value, span)
                yield event
        finally:
            await events.aclose()


@contextmanager
def turn_span(source: object) -> Iterator[Span]:
    """The span of a turn. It ends with the events of the turn, or here if there are to be none."""
    span = begin_call("turn", source, "invoke_agent")
    with span.within("on failure"):
        yield span


def turned(span: Span, events: Generator[Event, None, E]) -> Generator[Event, None, E]:
    """The events of a turn, with which its span ends."""
    return _spanned(span, events, Once(result_of_turn)) if span.live else events


def turned_async(
    span: Span, events: AsyncGenerator[Event | Outcome[E], None]
) -> AsyncGenerator[Event | Outcome[E], None]:
    """The same for async code."""
    return _spanned_async(span, events, Once(result_of_turn)) if span.live else events


def result_of_turn(end: Done | Paused) -> Any:
    """What a caller gets: the result, or the turn itself where it waits for a person."""
    return end.result if isinstance(end, Done) else end


@contextmanager
def _ending(span: Span) -> Iterator[None]:
    try:
        yield
    except GeneratorExit:  # whoever read the events has left
        span.note({names.ABANDONED: True})
        raise
    except BaseException as error:
        span.fail(error)
        raise
    finally:
        span.end()
