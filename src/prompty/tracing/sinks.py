"""Trace sinks by the words that name them in `trace_to` and in the environment."""

import sys
from logging import Logger, getLogger
from os import environ

from prompty.errors import PromptyError, RequestError, WrongArgument
from prompty.safety.visible import visible
from prompty.tracing.names import AGENT_NAME, REQUEST_MODEL, TOOL_NAME
from prompty.tracing.spans import SINKS, Sink, Span

VARIABLE = "PROMPTY_TRACE"
logger: Logger = getLogger("prompty.tracing")


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
            SINKS.set(word.partition(":")[0], _build_sink(word, wire))


def _build_sink(word: str, wire: bool) -> Sink:
    """Build the sink that a word names."""
    kind, _, folder = word.partition(":")
    match kind:
        case "console":
            return ConsoleSink()
        case "file":
            from prompty.tracing.files import FileSink  # most programs write no files

            try:
                return FileSink(folder or "traces", wire=wire)
            except OSError as error:
                cause = f"traces cannot be written to '{error.filename}': {error.strerror}"
                raise RequestError(cause, "Name the folder that it leads to, or another one.") from None
        case "otel":
            from prompty.tracing.opentelemetry import create_sink  # needs an extra

            return create_sink()
    raise RequestError(f"'{word}' is not a trace sink", "Write console, file:FOLDER, otel, or wire together with file.")


def _read_environment() -> None:
    try:
        trace_to(environ.get(VARIABLE, ""))
    except PromptyError as error:  # a run must not fail because of tracing
        logger.warning("%s: %s", VARIABLE, error)


SINKS.read_environment = _read_environment


class ConsoleSink:
    """Writes `[prompty] ▶ name` and `[prompty] ◀ name (12.3 ms)`, without inputs and results."""

    content = wire = False
    immediate = True

    def started(self, span: Span, /) -> None:
        known = filter(None, map(span.attributes.get, (TOOL_NAME, REQUEST_MODEL, AGENT_NAME)))
        _write(span, f"▶ {span.name} {next(known, '')}".rstrip())

    def ended(self, span: Span, /) -> None:
        usage = span.usage
        tokens = f" {usage.get('input_tokens', 0):,} → {usage.get('output_tokens', 0):,} tokens" if usage else ""
        failure = f" {span.error[0]}: {span.error[1]}" if span.error else ""
        _write(span, f"◀ {span.name} ({(span.duration or 0) / 1e6:.1f} ms){tokens}{failure}")


def _write(span: Span, line: str) -> None:
    depth, parent = 0, span.parent
    while parent is not None:
        depth, parent = depth + 1, parent.parent
    escaped = visible(line).replace("\n", " ")
    sys.stderr.write(f"[prompty] {'  ' * depth}{escaped}\n")  # one write, so that threads do not split lines
    sys.stderr.flush()
