"""The active trace sinks of this process, by name."""

from collections.abc import Callable, Sequence
from importlib import import_module
from logging import Logger, getLogger
from os import environ
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from prompty.errors import PromptyError, RequestError, WrongArgument

if TYPE_CHECKING:
    from prompty.tracing.spans import Span

VARIABLE = "PROMPTY_TRACE"
logger: Logger = getLogger("prompty.tracing")


class Sink(Protocol):
    """Receives spans. Its errors go to the log, and do not affect the run.

    `content`: it needs inputs, results and messages, which are not recorded otherwise. `wire`: it needs the requests
    and replies of models as they were sent.
    """

    content: bool
    wire: bool

    def started(self, span: "Span", /) -> None: ...
    def ended(self, span: "Span", /) -> None: ...


class EnteringSink(Sink, Protocol):
    """A sink that is also told when code runs inside a span, because it keeps a context of its own."""

    def entered(self, span: "Span", /) -> Callable[[], object]:
        """Called before the code. The returned function is called after it, in the same context."""
        ...


_lock = Lock()
_sinks: dict[str, Sink] = {}
active: Sequence[Sink] | None = None  # None until the environment has been read; spans look at it on every call


def get_sinks() -> Sequence[Sink]:
    """Return the active sinks. The first call reads the environment."""
    return _read_environment() if active is None else active


def set_sink(name: str, sink: Sink | None) -> None:
    """Set the sink of a name, or remove it with None."""
    global active
    get_sinks()
    with _lock:
        _sinks.pop(name, None)
        if sink is not None:
            _sinks[name] = sink
        active = tuple(_sinks.values())


def clear_sinks() -> None:
    """Remove all sinks, also those named in the environment."""
    global active
    with _lock:
        _sinks.clear()
        active = ()


def trace_to(*sinks: str, capture: str = "") -> None:
    """Trace everything from now on: to the `console`, to files (`file:FOLDER`) or to OpenTelemetry (`otel`).

    With `capture="wire"` files also keep the exact request and reply of every model call. `PROMPTY_TRACE` in the
    environment does the same without code: `console,file:traces,otel,wire`.
    """
    for text in sinks:
        if not isinstance(text, str):
            raise WrongArgument("trace_to()", text, "names of sinks", "Write trace_to('console', 'file:traces').")
    words = [word.strip() for text in sinks for word in text.split(",") if word.strip()]
    wire = capture == "wire" or "wire" in words
    for word in words:
        if word != "wire":
            set_sink(word.partition(":")[0], _build_sink(word, wire))


def _build_sink(word: str, wire: bool) -> Sink:
    """Build the sink that a word names. Its module is imported only now."""
    kind, _, folder = word.partition(":")
    sink: Sink
    match kind:
        case "console":
            sink = import_module("prompty.tracing.console").ConsoleSink()
        case "file":
            sink = import_module("prompty.tracing.files").FileSink(folder or "traces", wire=wire)
        case "otel":
            sink = import_module("prompty.tracing.opentelemetry").connect()
        case _:
            raise RequestError(
                f"'{word}' is not a trace sink", "Write console, file:FOLDER, otel, or wire together with file."
            )
    return sink


def _read_environment() -> Sequence[Sink]:
    global active
    active = ()
    try:
        trace_to(environ.get(VARIABLE, ""))
    except PromptyError as error:  # a run must not fail because of tracing
        logger.warning("%s: %s", VARIABLE, error)
    return active
