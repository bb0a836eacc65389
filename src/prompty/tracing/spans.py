"""Spans: one per operation, with its start, duration, parent, attributes and outcome.

While no sink is active, `begin` returns a shared no-op span. The current span is a context variable, which is never
left set across a `yield`.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Sequence
from contextvars import ContextVar, Token
from functools import partial
from json import loads
from logging import Logger, getLogger
from random import getrandbits
from threading import Lock
from typing import Any, Protocol, Self, TypeVar, cast

from prompty.safety.redaction import Redactor, RedactorScope, masked_traceback
from prompty.tracing import names
from prompty.tracing.sanitize import Plain, Sanitizer

logger: Logger = getLogger("prompty.tracing")
_current: ContextVar["Span | None"] = ContextVar("prompty_span", default=None)
T = TypeVar("T")
R = TypeVar("R")


class Sink(Protocol):
    """Receives spans. Its errors are logged and do not affect the run.

    Set `content` if it needs inputs, results and messages, which are not recorded otherwise, and `wire` if it needs the
    exact requests and replies of models.
    """

    content: bool
    wire: bool

    def started(self, span: "Span", /) -> None: ...
    def ended(self, span: "Span", /) -> None: ...


class EnteringSink(Sink, Protocol):
    """A sink with its own context, which is notified when code runs inside a span."""

    def entered(self, span: "Span", /) -> Callable[[], object]:
        """Called before the code. The returned function is called after it, in the same context."""
        ...


class Sinks:
    """The sinks of this process by name. `read_environment` adds those that the environment names, at first use."""

    def __init__(self) -> None:
        self.read_environment: Callable[[], None] | None = None
        self._by_name: dict[str, Sink] = {}
        self._active: Sequence[Sink] = ()  # for `begin`, without a lock
        self._lock = Lock()

    def list(self) -> Sequence[Sink]:
        """Return the active sinks."""
        if self.read_environment is not None:
            read, self.read_environment = self.read_environment, None
            read()
        return self._active

    def set(self, name: str, sink: Sink | None) -> Sink | None:
        """Set the sink with this name, or remove it if `sink` is None. Return the one that had the name."""
        self.list()
        with self._lock:
            removed = self._by_name.pop(name, None)
            if sink is not None:
                self._by_name[name] = sink
            self._active = tuple(self._by_name.values())
        return removed

    def clear(self) -> Sequence[Sink]:
        """Remove and return all sinks, including those from the environment."""
        with self._lock:
            removed = tuple(self._by_name.values())
            self._by_name.clear()
            self._active, self.read_environment = (), None
        return removed


SINKS = Sinks()


class Trace:
    """State shared by all spans of one trace."""

    def __init__(self, active: Sequence[Sink]) -> None:
        self.id: str = f"{getrandbits(128):032x}"
        self.sinks = active
        self.sanitizer: Sanitizer = Sanitizer()
        self.redactor: Redactor = self.sanitizer.redactor
        self._failed: list[Sink] = []
        self.content: bool = any(sink.content for sink in active)
        self.wire: bool = any(sink.wire for sink in active)
        self.entering: list[EnteringSink] = [cast(EnteringSink, sink) for sink in active if hasattr(sink, "entered")]

    def notify(self, method: str, span: "Span") -> None:
        """Call a method of every sink. A failure affects neither the run nor other sinks. It is logged once."""
        for sink in self.sinks:
            try:
                getattr(sink, method)(span)
            except Exception as error:
                self._log_failure(sink, error)

    def enter(self, span: "Span") -> list[Callable[[], object]]:
        """Enter the sinks that have their own context. Return the functions that leave it."""
        leaving: list[Callable[[], object]] = []
        for sink in self.entering:
            try:
                leaving.append(partial(self._leave, sink, sink.entered(span)))
            except Exception as error:
                self._log_failure(sink, error)
        return leaving

    def _leave(self, sink: Sink, leave: Callable[[], object]) -> None:
        try:
            leave()
        except Exception as error:
            self._log_failure(sink, error)

    def _log_failure(self, sink: Sink, error: Exception) -> None:
        if sink not in self._failed:
            if isinstance(error, OSError):  # a folder that cannot be written to, or a full disk
                logger.warning("no trace is written: %s: %s", error.filename or type(sink).__name__, error.strerror)
            else:
                text = masked_traceback(error, self.redactor)
                logger.warning("a trace sink failed: %s\n%s", type(sink).__name__, text)
        self._failed.append(sink)


class Span:
    """An operation. In a `with` statement it is the current span, and ends with the block."""

    live = True

    def __init__(
        self, name: str, trace: Trace, parent: "Span | None", *, title: str, kind: str, attributes: dict[str, Any]
    ) -> None:
        self.name = name
        self.title: str = title or name
        self.kind = kind
        self.trace = trace
        self.parent = parent
        self.id: str = f"{getrandbits(64):016x}"
        self.attributes: dict[str, Plain] = {}
        self.written: dict[str, bytes] = {}
        self.usage: dict[str, int] = {}
        self.error: tuple[str, str] | None = None
        self.start: int = time.time_ns()
        self._clock = time.perf_counter_ns()
        self.duration: int | None = None
        self.handles: dict[Sink, Any] = {}
        self._entered: list[SpanScope] = []
        self.set_attributes(attributes)

    def record(self, name: str, value: object) -> None:
        """Record a value, if a sink wants content."""
        if self.trace.content:
            self.written[name] = self.trace.sanitizer.json(value)

    @property
    def content(self) -> dict[str, Plain]:
        """The recorded values. They are stored as JSON, so later changes to a value have no effect."""
        return {name: loads(value) for name, value in self.written.items()}

    def set_attributes(self, attributes: dict[str, Any]) -> None:
        """Set short attributes, which every sink gets. None is omitted."""
        sanitizer = self.trace.sanitizer
        for name, value in attributes.items():
            if value is not None:
                self.attributes[name] = sanitizer.text(value) if type(value) is str else sanitizer.plain(value)

    def hide(self, values: Iterable[object]) -> None:
        """Mask these values everywhere in this trace."""
        self.trace.redactor.hide(values)

    def add_usage(self, usage: dict[str, int | None]) -> None:
        """Add token counts to this span and all its ancestors."""
        counted = {name: number for name, number in usage.items() if number is not None}
        span: Span | None = self
        while span is not None:
            for name, number in counted.items():
                span.usage[name] = span.usage.get(name, 0) + number
            span = span.parent

    def record_error(self, error: BaseException) -> None:
        self.error = (type(error).__name__, self.trace.sanitizer.text(str(error)))

    def elapsed(self) -> int:
        """Return the nanoseconds since the start."""
        return time.perf_counter_ns() - self._clock

    def end(self, duration: int | None = None) -> None:
        """End the span. Ending it again has no effect."""
        if self.duration is None:
            self.duration = self.elapsed() if duration is None else duration
            self.trace.notify("ended", self)

    def inside(self) -> "SpanScope":
        """Make this the current span inside a `with` statement, without ending it."""
        return SpanScope(self)

    def lifetime(self) -> "SpanLifetime":
        """End the span with a `with` statement, without making it current. Use it in generators."""
        return SpanLifetime(self)

    def __enter__(self) -> Self:
        self._entered.append(SpanScope(self))
        self._entered[-1].__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._entered.pop().__exit__(kind, error, traceback)  # not kept: a reference cycle is slow to collect
        self.lifetime().__exit__(kind, error, traceback)


class SpanScope:
    """Makes a span current, and the values current that its trace hides."""

    __slots__ = ("_hiding", "_leave", "_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._hiding: RedactorScope = span.trace.redactor.inside()
        self._token: Token[Span | None] | None = None
        self._leave: Sequence[Callable[[], object]] = ()

    def __enter__(self) -> Span:
        self._token = _current.set(self._span)
        self._hiding.__enter__()
        if self._span.trace.entering:
            self._leave = self._span.trace.enter(self._span)
        return self._span

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        for leave in reversed(self._leave):
            leave()
        self._hiding.__exit__()
        if self._token is not None:
            _current.reset(self._token)


class SpanLifetime:
    """Ends a span, with the error that left the `with` statement."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> Span:
        return self._span

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, GeneratorExit):  # the stream was closed early
            self._span.set_attributes({names.ABANDONED: True})
        elif error is not None:
            self._span.record_error(error)
        self._span.end()


class NullSpan(Span):
    """The no-op span, used while no sink is active."""

    live = False

    def __init__(self) -> None:
        super().__init__("", Trace(()), None, title="", kind="internal", attributes={})

    def record(self, name: str, value: object) -> None:
        pass

    def set_attributes(self, attributes: dict[str, Any]) -> None:
        pass

    def hide(self, values: Iterable[object]) -> None:
        pass

    def add_usage(self, usage: dict[str, int | None]) -> None:
        pass

    def record_error(self, error: BaseException) -> None:
        pass

    def end(self, duration: int | None = None) -> None:
        pass

    def inside(self) -> Any:
        return self

    def lifetime(self) -> Any:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        pass


NULL_SPAN = NullSpan()


def begin(
    name: str,
    attributes: dict[str, Any] | None = None,
    *,
    title: str = "",
    kind: str = "internal",
    parent: Span | None = None,
    inputs: object = None,
) -> Span:
    """Start a span below `parent`, or below the current span. The caller must end it."""
    above = parent or _current.get()
    if above is not None and above.live:
        trace = above.trace
    elif active := SINKS.list():
        trace, above = Trace(active), None
    else:
        return NULL_SPAN
    span = Span(name, trace, above, title=title, kind=kind, attributes=attributes or {})
    if inputs is not None:
        span.record("inputs", inputs)
    trace.notify("started", span)
    return span


def is_tracing() -> bool:
    """Return True if a span that starts now would reach a sink."""
    return bool(SINKS.list() or _current.get())


def iterate_inside(span: Span, items: Generator[T, Any, R]) -> Generator[T, Any, R]:
    """Run each step of a generator inside a span, which is not current while the generator is suspended."""
    sent = None
    try:
        while True:
            with span.inside():
                try:
                    item = items.send(sent)
                except StopIteration as end:
                    result: R = end.value
                    return result
            sent = yield item
    finally:
        items.close()


async def aiterate_inside(span: Span, items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Run each step of an async iterator inside a span. The caller closes the iterator."""
    while True:
        with span.inside():
            try:
                item = await anext(items)
            except StopAsyncIteration:
                return
        yield item
