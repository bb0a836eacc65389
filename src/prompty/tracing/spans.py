"""Spans: what is done, when, inside of what, and what came of it.

While no sink listens, `begin` gives one and the same span that does nothing. A live span is known to those that are
begun inside of it by a context variable, which is never set across a `yield`.
"""

import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextvars import ContextVar, Token
from functools import partial
from json import loads
from logging import getLogger
from random import getrandbits
from typing import Any, Literal, Self, TypeVar, cast

from prompty.safety.redaction import masked_traceback
from prompty.tracing.plain import Masking, Plain
from prompty.tracing.sinks import EnteringSink, Sink, sinks_now

logger = getLogger("prompty.tracing")
_current: ContextVar["Span | None"] = ContextVar("prompty_span", default=None)
Ends = Literal["always", "on failure", "never"]
T = TypeVar("T")
R = TypeVar("R")


class Trace:
    """What the spans of one run have in common."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.id = f"{getrandbits(128):032x}"
        self.sinks = sinks
        self.masking = Masking()
        self._failed: list[Sink] = []
        self.content = any(sink.content for sink in sinks)
        self.wire = any(sink.wire for sink in sinks)
        self.entering = [cast(EnteringSink, sink) for sink in sinks if hasattr(sink, "entered")]

    def tell(self, what: str, span: "Span") -> None:
        """Tell every sink; one that fails hurts neither the run nor the others, and is complained about once."""
        for sink in self.sinks:
            try:
                getattr(sink, what)(span)
            except Exception as error:
                self._complain(sink, error)

    def enter(self, span: "Span") -> list[Callable[[], object]]:
        """Tell those who have a context of their own; gives what leaves it."""
        leaving: list[Callable[[], object]] = []
        for sink in self.entering:
            try:
                leaving.append(partial(self._leave, sink, sink.entered(span)))
            except Exception as error:
                self._complain(sink, error)
        return leaving

    def _leave(self, sink: Sink, leave: Callable[[], object]) -> None:
        try:
            leave()
        except Exception as error:
            self._complain(sink, error)

    def _complain(self, sink: Sink, error: Exception) -> None:
        if sink not in self._failed:
            logger.warning("a trace sink failed: %s\n%s", type(sink).__name__, masked_traceback(error))
        self._failed.append(sink)


class Span:
    """Something that is being done. Calling it with a name and a value shows that value."""

    live = True

    def __init__(
        self, name: str, trace: Trace, parent: "Span | None", *, title: str, kind: str, attributes: dict[str, Any]
    ) -> None:
        self.name, self.title, self.kind = name, title or name, kind
        self.trace, self.parent = trace, parent
        self.id = f"{getrandbits(64):016x}"
        self.attributes: dict[str, Plain] = {}
        self.written: dict[str, bytes] = {}
        self.usage: dict[str, int] = {}
        self.error: tuple[str, str] | None = None
        self.start, self._clock = time.time_ns(), time.perf_counter_ns()
        self.duration: int | None = None
        self.handles: dict[Sink, Any] = {}
        self._entered: list[Within] = []
        self.note(attributes)

    def __call__(self, name: str, value: object) -> None:
        if self.trace.content:
            self.written[name] = self.trace.masking.json(value)

    @property
    def content(self) -> dict[str, Plain]:
        """What it shows, as plain values. They are kept as JSON: what happens to a value later does not change it."""
        return {name: loads(value) for name, value in self.written.items()}

    def note(self, attributes: dict[str, Any]) -> None:
        """Say something short about it, whether or not content is wanted."""
        masking = self.trace.masking
        for name, value in attributes.items():
            if value is not None:
                self.attributes[name] = masking.text(value) if type(value) is str else masking.plain(value)

    def hide(self, values: Iterable[object]) -> None:
        """Keep values out of this trace, wherever they stand."""
        self.trace.masking.hide(values)

    def count(self, usage: dict[str, int | None]) -> None:
        """Add tokens, here and in everything this is part of."""
        counted = {name: number for name, number in usage.items() if number is not None}
        span: Span | None = self
        while span is not None:
            for name, number in counted.items():
                span.usage[name] = span.usage.get(name, 0) + number
            span = span.parent

    def fail(self, error: BaseException) -> None:
        self.error = (type(error).__name__, self.trace.masking.text(str(error)))

    def elapsed(self) -> int:
        """Nanoseconds since it began."""
        return time.perf_counter_ns() - self._clock

    def begun(self) -> Self:
        self.trace.tell("started", self)
        return self

    def end(self, duration: int | None = None) -> None:
        """It is over; saying so again changes nothing."""
        if self.duration is None:
            self.duration = self.elapsed() if duration is None else duration
            self.trace.tell("ended", self)

    def within(self, ends: Ends = "never") -> "Within":
        """Spans that are begun in this `with` statement are inside of this one."""
        return Within(self, ends)

    def __enter__(self) -> Self:
        self._entered.append(Within(self, "always"))
        self._entered[-1].__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._entered.pop().__exit__(*failure)  # kept no longer: it knows this span, and circles take long to free


class Within:
    """The code inside a span."""

    __slots__ = ("_ends", "_leave", "_span", "_token")

    def __init__(self, span: Span, ends: Ends) -> None:
        self._span, self._ends = span, ends
        self._token: Token[Span | None] | None = None
        self._leave: Sequence[Callable[[], object]] = ()

    def __enter__(self) -> Span:
        self._token = _current.set(self._span)
        if self._span.trace.entering:
            self._leave = self._span.trace.enter(self._span)
        return self._span

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        for leave in reversed(self._leave):
            leave()
        if self._token is not None:
            _current.reset(self._token)
        if self._ends == "never":
            return
        if error is not None:
            self._span.fail(error)
        if error is not None or self._ends == "always":
            self._span.end()


class Silence(Span):
    """The span of everything while nobody listens."""

    live = False

    def __init__(self) -> None:
        pass

    def __call__(self, name: str, value: object) -> None:
        pass

    def note(self, attributes: dict[str, Any]) -> None:
        pass

    def hide(self, values: Iterable[object]) -> None:
        pass

    def count(self, usage: dict[str, int | None]) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        pass

    def end(self, duration: int | None = None) -> None:
        pass

    def within(self, ends: Ends = "never") -> Any:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        pass


SILENCE = Silence()


def begin(
    name: str,
    attributes: dict[str, Any] | None = None,
    *,
    title: str = "",
    kind: str = "internal",
    parent: Span | None = None,
    inputs: object = None,
) -> Span:
    """A span that has begun, inside `parent` or whatever is going on here. Whoever begins it ends it: with a `with`
    statement, or by `end`."""
    inside = parent or _current.get()
    if inside is not None and inside.live:
        trace = inside.trace
    elif sinks := sinks_now():
        trace, inside = Trace(sinks), None
    else:
        return SILENCE
    span = Span(name, trace, inside, title=title, kind=kind, attributes=attributes or {})
    if inputs is not None:
        span("inputs", inputs)
    return span.begun()


def listening() -> bool:
    """Whether a span that is begun here would be seen."""
    return current_span().live or bool(sinks_now())


def current_span() -> Span:
    """What is going on here."""
    return _current.get() or SILENCE


def followed(span: Span, items: Generator[T, Any, R]) -> Generator[T, Any, R]:
    """The items of a generator that runs inside a span, which is not set while it waits for its caller."""
    sent = None
    try:
        while True:
            with span.within():
                try:
                    item = items.send(sent)
                except StopIteration as end:
                    result: R = end.value
                    return result
            sent = yield item
    finally:
        items.close()


async def followed_async(span: Span, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The same for async code; whoever made the generator closes it."""
    while True:
        with span.within():
            try:
                item = await anext(items)
            except StopAsyncIteration:
                return
        yield item
