"""A sink for OpenTelemetry: spans, metrics and, where content is switched on, what was said.

It needs the API alone; what an application has set up of the SDK is used. `connected` sets one up where there is none.
"""

from collections.abc import Callable
from json import dumps
from os import environ
from typing import Any

from prompty.extras import require
from prompty.tracing import names
from prompty.tracing.conversation import input_messages, output_messages, system_instructions, tool_definitions
from prompty.tracing.spans import Span
from prompty.version import __version__

SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
ON_SPAN = frozenset({"SPAN_ONLY", "SPAN_AND_EVENT", "TRUE"})
ON_EVENT = frozenset({"EVENT_ONLY", "SPAN_AND_EVENT"})
SECONDS = [0.01 * 2**power for power in range(14)]
FIRST_SECONDS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0]
TOKENS = [float(4**power) for power in range(14)]
_MEASURED_BY = (
    names.OPERATION_NAME,
    names.PROVIDER_NAME,
    names.REQUEST_MODEL,
    names.RESPONSE_MODEL,
    names.SERVER_ADDRESS,
    names.SERVER_PORT,
)


class OpenTelemetrySink:
    """Hands spans to OpenTelemetry in the names of its conventions. It is told on the spot: what runs inside a span
    finds it as its own parent, and exporting has a thread of its own there."""

    wire, immediate = False, True

    def __init__(self) -> None:
        self._trace: Any = require("opentelemetry.trace", extra="otel")
        self._context: Any = require("opentelemetry.context", extra="otel")
        self._tracer = self._trace.get_tracer("prompty", __version__, schema_url=names.SCHEMA_URL)
        self._metrics = Metrics()
        switch = environ.get(SWITCH, "").upper()
        self._on_span, self._on_event = switch in ON_SPAN, switch in ON_EVENT
        self.content = self._on_span or self._on_event

    def started(self, span: Span, /) -> None:
        parent = self._inside(span.parent) if span.parent else None
        kind = self._trace.SpanKind.CLIENT if span.kind == "client" else self._trace.SpanKind.INTERNAL
        span.handles[self] = self._tracer.start_span(span.title, parent, kind, span.attributes, start_time=span.start)

    def ended(self, span: Span, /) -> None:
        told = span.handles[self]
        told.update_name(span.title)  # the prompt may have been loaded after the span began
        told.set_attributes(span.attributes | _usage(span))
        content = _content(span) if self.content else {}
        if self._on_span:
            told.set_attributes(content)
        if span.error:
            told.set_attribute(names.ERROR_TYPE, span.error[0])
            told.set_status(self._trace.StatusCode.ERROR, span.error[1])
        if span.name == "execute":
            self._metrics.record(span)
            if self._on_event:
                self._tell_details(span, content)
        told.end(end_time=span.start + (span.duration or 0))

    def entered(self, span: Span, /) -> Callable[[], object]:
        """Make it OpenTelemetry's own span of here, too."""
        if self not in span.handles:
            return lambda: None
        token = self._context.attach(self._inside(span))
        return lambda: self._context.detach(token)

    def _inside(self, span: Span) -> Any:
        return self._trace.set_span_in_context(span.handles[self]) if self in span.handles else None

    def _tell_details(self, span: Span, content: dict[str, str]) -> None:
        logs: Any = require("opentelemetry._logs", extra="otel")
        failure = {names.ERROR_TYPE: span.error[0]} if span.error else {}
        logs.get_logger("prompty", __version__).emit(
            event_name=names.DETAILS_EVENT, attributes=span.attributes | content | failure, context=self._inside(span)
        )


class Metrics:
    """What is measured of calls to models."""

    def __init__(self) -> None:
        meter: Any = require("opentelemetry.metrics", extra="otel").get_meter("prompty", __version__)
        histogram = meter.create_histogram
        self._seconds = histogram(names.CLIENT_DURATION, "s", explicit_bucket_boundaries_advisory=SECONDS)
        self._first = histogram(names.CLIENT_FIRST_CHUNK, "s", explicit_bucket_boundaries_advisory=FIRST_SECONDS)
        self._tokens = histogram(names.CLIENT_TOKENS, "{token}", explicit_bucket_boundaries_advisory=TOKENS)

    def record(self, span: Span) -> None:
        by = {name: span.attributes[name] for name in _MEASURED_BY if name in span.attributes}
        failure = {names.ERROR_TYPE: span.error[0]} if span.error else {}
        self._seconds.record((span.duration or 0) / 1e9, by | failure)
        first = span.attributes.get(names.TIME_TO_FIRST_CHUNK)
        if first is not None:
            self._first.record(first, by)
        for kind in ("input", "output"):
            if (number := span.usage.get(f"{kind}_tokens")) is not None:
                self._tokens.record(number, by | {names.TOKEN_TYPE: kind})


def _usage(span: Span) -> dict[str, int]:
    return {names.USAGE[name]: number for name, number in span.usage.items()}


def _content(span: Span) -> dict[str, str]:
    """What was said, as attributes: JSON in the shape of the conventions."""
    inputs, result = span.content.get("inputs"), span.content.get("result")
    if span.name == "execute_tool":
        shown = {names.TOOL_CALL_ARGUMENTS: inputs, names.TOOL_CALL_RESULT: result}
    elif span.name == "execute" and inputs:
        shown = {
            names.SYSTEM_INSTRUCTIONS: system_instructions(inputs["messages"]),
            names.INPUT_MESSAGES: input_messages(inputs["messages"]),
            names.OUTPUT_MESSAGES: output_messages(result),
            names.TOOL_DEFINITIONS: tool_definitions(inputs["tools"]),
        }
    else:
        shown = {}
    return {name: dumps(value, ensure_ascii=False) for name, value in shown.items() if value not in (None, [])}


def connected() -> OpenTelemetrySink:
    """A sink to what the application has set up, or else to the collector that the OTEL_… variables name."""
    trace: Any = require("opentelemetry.trace", extra="otel")
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        _set_up(trace)
    return OpenTelemetrySink()


def _set_up(trace: Any) -> None:
    exporter, sdk = "opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk"
    part: Callable[[str], Any] = lambda module: require(module, extra="otel")  # noqa: E731  a name for what is said six times
    spans = part(f"{sdk}.trace").TracerProvider()
    export = part(f"{exporter}.trace_exporter").OTLPSpanExporter()
    spans.add_span_processor(part(f"{sdk}.trace.export").BatchSpanProcessor(export))
    trace.set_tracer_provider(spans)
    reader = part(f"{sdk}.metrics.export").PeriodicExportingMetricReader(
        part(f"{exporter}.metric_exporter").OTLPMetricExporter()
    )
    part("opentelemetry.metrics").set_meter_provider(part(f"{sdk}.metrics").MeterProvider([reader]))
    logs = part(f"{sdk}._logs").LoggerProvider()
    export = part(f"{exporter}._log_exporter").OTLPLogExporter()
    logs.add_log_record_processor(part(f"{sdk}._logs.export").BatchLogRecordProcessor(export))
    part("opentelemetry._logs").set_logger_provider(logs)
