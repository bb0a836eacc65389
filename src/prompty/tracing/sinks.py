"""Who listens: the sinks of this process, by their names."""

from collections.abc import Callable, Sequence
from logging import getLogger
from os import environ
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from prompty.errors import PromptyError, RequestError
from prompty.extras import require

if TYPE_CHECKING:
    from prompty.tracing.spans import Span

VARIABLE = "PROMPTY_TRACE"
logger = getLogger("prompty.tracing")


class Sink(Protocol):
    """Is told of spans. What it raises is logged and changes nothing.

    `content` says whether it wants inputs, results and messages, which are not even made otherwise; `wire` whether it
    wants the requests and answers of models as they went over the wire.
    """

    content: bool
    wire: bool

    def started(self, span: "Span", /) -> None: ...
    def ended(self, span: "Span", /) -> None: ...


class EnteringSink(Sink, Protocol):
    """A sink that also wants to know which code runs inside a span, because it has a context of its own."""

    def entered(self, span: "Span", /) -> Callable[[], object]:
        """Called before the code; what it returns is called after it, in the same context."""
        ...


_lock = Lock()
_sinks: dict[str, Sink] = {}
_now: Sequence[Sink] | None = None  # None until the environment has been asked


def sinks_now() -> Sequence[Sink]:
    """Those who listen; the environment is asked when first somebody wants to know."""
    return _from_environment() if _now is None else _now


def set_sink(name: str, sink: Sink | None) -> None:
    """Put a sink under a name, in the place of what was there; None takes it away."""
    global _now
    sinks_now()
    with _lock:
        _sinks.pop(name, None)
        if sink is not None:
            _sinks[name] = sink
        _now = tuple(_sinks.values())


def clear_sinks() -> None:
    """Nobody listens any more, not even those that the environment names."""
    global _now
    with _lock:
        _sinks.clear()
        _now = ()


def trace_to(*sinks: str, capture: str = "") -> None:
    """Trace everything from now on: to the `console`, to files (`file:FOLDER`) or to OpenTelemetry (`otel`).

    With `capture="wire"` files also keep the exact request and answer of every model call. `PROMPTY_TRACE` in the
    environment does the same without code: `console,file:traces,otel,wire`.
    """
    words = [word.strip() for text in sinks for word in text.split(",") if word.strip()]
    wire = capture == "wire" or "wire" in words
    for word in words:
        if word != "wire":
            set_sink(word.partition(":")[0], _made(word, wire))


def _made(word: str, wire: bool) -> Sink:
    """The sink of a word. Each is imported when it is asked for."""
    kind, _, rest = word.partition(":")
    sink: Sink
    if kind == "console":
        sink = require("prompty.tracing.console", extra="").ConsoleSink()
    elif kind == "file":
        sink = require("prompty.tracing.files", extra="").FileSink(rest or "traces", wire=wire)
    elif kind == "otel":
        sink = require("prompty.tracing.opentelemetry", extra="otel").connected()
    else:
        raise RequestError(f"nothing traces to '{word}'", "Write console, file:FOLDER, otel, or wire beside file.")
    return sink


def _from_environment() -> Sequence[Sink]:
    global _now
    _now = ()
    try:
        trace_to(environ.get(VARIABLE, ""))
    except PromptyError as error:  # a run does not fail for the sake of being watched
        logger.warning("%s: %s", VARIABLE, error)
    return _now
