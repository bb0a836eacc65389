"""Tracing for the host: its own sinks and spans."""

import inspect
from atexit import register, unregister
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractContextManager, aclosing, suppress
from functools import wraps
from logging import Logger, getLogger
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, Generic, ParamSpec, TypeVar, overload

from prompty.errors import WrongArgument
from prompty.safety.redaction import masked_traceback
from prompty.tracing.spans import (
    SINKS,
    Sink,
    Span,
    aiterate_inside,
    begin,
    iterate_inside,
)

MOST_WAITING = 10_000
P = ParamSpec("P")
R = TypeVar("R")
Factory = Callable[[str], AbstractContextManager[Callable[[str, object], object]]]
logger: Logger = getLogger("prompty.tracing")


class Tracer:
    """The sinks of this process, and spans around your own code."""

    @staticmethod
    def add(name: str, sink: Sink | Factory) -> None:
        """Add a sink: an object with `started` and `ended`, or a function from a span's name to a context manager,
        whose value is a function for keys and values. It runs on its own thread, so a slow sink does not slow the run.
        A sink with `immediate = True` is called directly."""
        adapted: Any = sink if hasattr(sink, "started") else FactorySink(sink)
        _close(SINKS.set(name, adapted if getattr(adapted, "immediate", False) else BackgroundSink(adapted)))

    @staticmethod
    def remove(name: str) -> None:
        """Remove a sink. Its thread ends when it has received everything so far."""
        _close(SINKS.set(name, None))

    @staticmethod
    def clear() -> None:
        """Remove all sinks."""
        _close(*SINKS.clear())

    @staticmethod
    def start(name: str) -> Span:
        """Start a span around your own code: `with Tracer.start("lookup") as span: span.record("key", value)`."""
        return begin(name)

    @staticmethod
    def flush(seconds: float = 2.0) -> None:
        """Wait until the sinks have received everything so far, at most this long."""
        for sink in SINKS.list():
            if isinstance(sink, BackgroundSink):
                sink.flush(seconds)


class FactorySink:
    """Adapts a factory function to a sink."""

    content = True
    wire = False

    def __init__(self, factory: Factory) -> None:
        self._factory = factory

    def started(self, span: Span, /) -> None:
        opened = self._factory(span.name)
        span.handles[self] = opened, opened.__enter__()

    def ended(self, span: Span, /) -> None:
        opened, add = span.handles.pop(self)
        try:
            for name, value in {**span.content, "attributes": span.attributes}.items():
                add(name, value)
            if span.error:
                add("error", {"type": span.error[0], "message": span.error[1]})
        finally:
            opened.__exit__(None, None, None)


def _close(*sinks: Sink | None) -> None:
    for sink in sinks:
        if isinstance(sink, BackgroundSink):
            sink.close()


class BackgroundSink:
    """Calls a sink on its own thread, until it is closed. Drops spans if the sink is too slow, which is logged."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.content: bool = sink.content
        self.wire: bool = getattr(sink, "wire", False)
        self.dropped: int = 0
        self._waiting: Queue[Callable[[], object] | None] = Queue(MOST_WAITING)
        self._is_closed = Event()
        Thread(target=self._work, name="prompty trace sink", daemon=True).start()
        register(self.flush, 2.0)

    def started(self, span: Span, /) -> None:
        self._put(lambda: self.sink.started(span))

    def ended(self, span: Span, /) -> None:
        self._put(lambda: self.sink.ended(span))

    def flush(self, seconds: float) -> None:
        """Wait until the sink has received everything so far."""
        reached: Queue[None] = Queue(1)
        try:
            self._waiting.put(lambda: reached.put(None), timeout=seconds)
            reached.get(timeout=seconds)
        except Exception as error:
            logger.warning("a trace sink is slow: %s (%s)", type(self.sink).__name__, type(error).__name__)

    def close(self) -> None:
        """End the thread when the sink has received everything so far."""
        self._is_closed.set()
        with suppress(Full):  # the thread looks when it has room again
            self._waiting.put_nowait(None)
        unregister(self.flush)

    def _put(self, work: Callable[[], object]) -> None:
        try:
            self._waiting.put_nowait(work)
        except Full:
            self.dropped += 1
            if self.dropped == 1:
                logger.warning("a trace sink is too slow: %s; spans are dropped", type(self.sink).__name__)

    def _work(self) -> None:
        while not (self._is_closed.is_set() and self._waiting.empty()):
            work = self._waiting.get()
            try:
                if work is not None:
                    work()
            except Exception as error:
                logger.warning("a trace sink failed: %s\n%s", type(self.sink).__name__, masked_traceback(error))


@overload
def trace(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def trace(*, name: str = ...) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def trace(function: Any = None, /, *, name: str = "") -> Any:
    """Trace a function: its arguments, its result, and the spans inside. It may be async, a generator, or both."""
    return (
        Traced(function, name).wrapped()
        if function is not None
        else lambda decorated: Traced(decorated, name).wrapped()
    )


class Traced(Generic[P, R]):
    """A traced function."""

    def __init__(self, function: Any, name: str) -> None:
        if not callable(function) or isinstance(function, type):
            raise WrongArgument("trace()", function, "a function", "Write @trace above a function.")
        self.function = function
        self.name: str = name or function.__name__
        self.signature: inspect.Signature = inspect.signature(function)
        self.place: str = f"{function.__module__}.{function.__qualname__}"

    def begun(self, given: tuple[Any, ...], named: dict[str, Any]) -> Span:
        span = begin(self.name)
        if span.live:
            span.record("signature", self.place)
            span.record("inputs", self._arguments(given, named))
        return span

    def _arguments(self, given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        try:
            bound = dict(self.signature.bind(*given, **named).arguments)
        except TypeError:  # the call itself will raise it
            return {}
        return {name: value for name, value in bound.items() if name not in ("self", "cls")}

    def wrapped(self) -> Callable[..., Any]:
        kinds = (
            (inspect.isasyncgenfunction, self._async_generator),
            (inspect.isgeneratorfunction, self._generator),
            (inspect.iscoroutinefunction, self._coroutine),
        )
        made = next((make for fits, make in kinds if fits(self.function)), self._function)
        return wraps(self.function)(made())

    def _function(self) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            with self.begun(given, named) as span:
                result = self.function(*given, **named)
                span.record("result", result)
                return result

        return call

    def _coroutine(self) -> Callable[..., Any]:
        async def call(*given: Any, **named: Any) -> Any:
            with self.begun(given, named) as span:
                result = await self.function(*given, **named)
                span.record("result", result)
                return result

        return call

    def _generator(self) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Generator[Any, Any, Any]:
            with self.begun(given, named).lifetime() as span:
                result = yield from iterate_inside(span, self.function(*given, **named))
                span.record("result", result)
                return result

        return call

    def _async_generator(self) -> Callable[..., Any]:
        async def call(*given: Any, **named: Any) -> AsyncIterator[Any]:
            with self.begun(given, named).lifetime() as span:
                async with aclosing(self.function(*given, **named)) as items:
                    async for item in aiterate_inside(span, items):
                        yield item

        return call
