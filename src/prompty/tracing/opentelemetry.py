"""OpenTelemetry sink: spans, metrics and, if content capture is on, messages in the conventions' form.

The sink needs only the OpenTelemetry API, and uses the application's SDK. `create_sink` configures an SDK if there is
none.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from json import dumps
from os import environ
from typing import Any

from prompty.extras import require
from prompty.safety.json import read_json
from prompty.tracing import names
from prompty.tracing.spans import Span
from prompty.version import __version__

CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CAPTURE_ON_SPAN = frozenset({"SPAN_ONLY", "SPAN_AND_EVENT", "TRUE"})
CAPTURE_ON_EVENT = frozenset({"EVENT_ONLY", "SPAN_AND_EVENT"})
DURATION_BUCKETS = [0.01 * 2**power for power in range(14)]
FIRST_CHUNK_BUCKETS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0]
TOKEN_BUCKETS = [float(4**power) for power in range(14)]
_METRIC_ATTRIBUTES = (
    names.OPERATION_NAME,
    names.PROVIDER_NAME,
    names.REQUEST_MODEL,
    names.RESPONSE_MODEL,
    names.SERVER_ADDRESS,
    names.SERVER_PORT,
)
SanitizedJson = dict[str, Any]


class OpenTelemetrySink:
    """Exports spans with the names of OpenTelemetry's conventions.

    It is called synchronously, so that other instrumented code inside a span finds its parent. The SDK exports in its
    own thread.
    """

    wire = False
    immediate = True

    def __init__(self) -> None:
        self._trace: Any = require("opentelemetry.trace", extra="otel")
        self._context: Any = require("opentelemetry.context", extra="otel")
        self._tracer = self._trace.get_tracer("prompty", __version__, schema_url=names.SCHEMA_URL)
        self._metrics = Metrics()
        capture = environ.get(CAPTURE_VARIABLE, "").upper()
        self._on_span, self._on_event = capture in CAPTURE_ON_SPAN, capture in CAPTURE_ON_EVENT
        self.content: bool = self._on_span or self._on_event

    def started(self, span: Span, /) -> None:
        parent = self._context_of(span.parent) if span.parent else None
        kind = self._trace.SpanKind.CLIENT if span.kind == "client" else self._trace.SpanKind.INTERNAL
        span.handles[self] = self._tracer.start_span(span.title, parent, kind, span.attributes, start_time=span.start)

    def ended(self, span: Span, /) -> None:
        exported = span.handles[self]
        exported.update_name(span.title)  # the prompt may have been loaded after the span began
        exported.set_attributes(
            span.attributes | {names.get_usage_name(name): number for name, number in span.usage.items()}
        )
        content = _encode_content(span) if self.content else {}
        if self._on_span:
            exported.set_attributes(content)
        if span.error:
            exported.set_attribute(names.ERROR_TYPE, span.error[0])
            exported.set_status(self._trace.StatusCode.ERROR, span.error[1])
        if span.name == "execute":
            self._metrics.record(span)
            if self._on_event:
                self._emit_details(span, content)
        exported.end(end_time=span.start + (span.duration or 0))

    def entered(self, span: Span, /) -> Callable[[], object]:
        """Make it OpenTelemetry's current span as well."""
        if self not in span.handles:
            return lambda: None
        token = self._context.attach(self._context_of(span))
        return lambda: self._context.detach(token)

    def _context_of(self, span: Span) -> Any:
        return self._trace.set_span_in_context(span.handles[self]) if self in span.handles else None

    def _emit_details(self, span: Span, content: dict[str, str]) -> None:
        logs: Any = require("opentelemetry._logs", extra="otel")
        failure = {names.ERROR_TYPE: span.error[0]} if span.error else {}
        logs.get_logger("prompty", __version__).emit(
            event_name=names.DETAILS_EVENT,
            attributes=span.attributes | content | failure,
            context=self._context_of(span),
        )


class Metrics:
    """Histograms of model calls: duration, time to the first chunk, tokens."""

    def __init__(self) -> None:
        meter: Any = require("opentelemetry.metrics", extra="otel").get_meter("prompty", __version__)
        histogram = meter.create_histogram
        self._duration = histogram(names.CLIENT_DURATION, "s", explicit_bucket_boundaries_advisory=DURATION_BUCKETS)
        self._first_chunk = histogram(
            names.CLIENT_FIRST_CHUNK, "s", explicit_bucket_boundaries_advisory=FIRST_CHUNK_BUCKETS
        )
        self._tokens = histogram(names.CLIENT_TOKENS, "{token}", explicit_bucket_boundaries_advisory=TOKEN_BUCKETS)

    def record(self, span: Span) -> None:
        attributes = {name: span.attributes[name] for name in _METRIC_ATTRIBUTES if name in span.attributes}
        failure = {names.ERROR_TYPE: span.error[0]} if span.error else {}
        self._duration.record((span.duration or 0) / 1e9, attributes | failure)
        first = span.attributes.get(names.TIME_TO_FIRST_CHUNK)
        if first is not None:
            self._first_chunk.record(first, attributes)
        for kind in ("input", "output"):
            if (number := span.usage.get(f"{kind}_tokens")) is not None:
                self._tokens.record(number, attributes | {names.TOKEN_TYPE: kind})


def _encode_content(span: Span) -> dict[str, str]:
    """Return recorded values as attributes: JSON in the conventions' form."""
    inputs, result = span.content.get("inputs"), span.content.get("result")
    if span.name == "execute_tool":
        content = {names.TOOL_CALL_ARGUMENTS: inputs, names.TOOL_CALL_RESULT: result}
    elif span.name == "execute" and inputs:
        content = {
            names.SYSTEM_INSTRUCTIONS: _format_instructions(inputs["messages"]),
            names.INPUT_MESSAGES: _format_inputs(inputs["messages"]),
            names.OUTPUT_MESSAGES: _format_output(result),
            names.TOOL_DEFINITIONS: [{"type": "function", **function} for function in inputs["tools"]],
        }
    else:
        return _encode_variables(inputs) if span.name in ("invoke", "turn") else {}
    return {name: dumps(value, ensure_ascii=False) for name, value in content.items() if value not in (None, [])}


def _encode_variables(inputs: object) -> dict[str, str]:
    """Return the inputs of a prompt as attributes, one for each input."""
    if not isinstance(inputs, dict):
        return {}
    return {
        f"{names.PROMPT_VARIABLE_PREFIX}{name}": value if isinstance(value, str) else dumps(value, ensure_ascii=False)
        for name, value in inputs.items()
    }


def _format_instructions(messages: list[SanitizedJson]) -> list[SanitizedJson]:
    return [part for message in messages if _is_instruction(message) for part in _format_parts(message)]


def _format_inputs(messages: list[SanitizedJson]) -> list[SanitizedJson]:
    return [
        {"role": message["role"], "parts": _format_parts(message)}
        for message in messages
        if not _is_instruction(message)
    ]


def _format_output(message: object) -> list[SanitizedJson] | None:
    """Return the reply of a model, or None if it is not a message (embeddings, images)."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return None
    reason = message.get("finishReason") or "stop"
    return [{"role": "assistant", "parts": _format_parts(message), "finish_reason": reason}]


def _is_instruction(message: SanitizedJson) -> bool:
    return message["role"] in ("system", "developer")


def _format_parts(message: SanitizedJson) -> list[SanitizedJson]:
    content = message["content"]
    parts = [{"kind": "text", "value": content}] if isinstance(content, str) else content
    if message["role"] == "tool":
        text = "".join(str(part.get("value")) for part in parts)
        return [{"type": "tool_call_response", "id": message.get("tool_call_id"), "result": text}]
    reasoning = [{"type": "reasoning", "content": message["reasoning"]}] if message.get("reasoning") else []
    return [*reasoning, *map(_format_part, parts), *map(_format_call, message.get("tool_calls") or [])]


def _format_part(part: SanitizedJson) -> SanitizedJson:
    if part["kind"] == "text":
        return {"type": "text", "content": part["value"]}
    kind, key = ("uri", "uri") if str(part["value"]).startswith(("http:", "https:")) else ("blob", "content")
    return {"type": kind, key: part["value"], "modality": part["kind"], "mime_type": part.get("mediaType")}


def _format_call(call: SanitizedJson) -> SanitizedJson:
    function = call.get("function", {})
    arguments = function.get("arguments")
    with suppress(TypeError, ValueError):  # a model may write arguments that are not JSON
        arguments = read_json(arguments, strict=False)
    return {"type": "tool_call", "id": call.get("id"), "name": function.get("name"), "arguments": arguments}


def create_sink() -> OpenTelemetrySink:
    """Return a sink for the application's SDK, or for the collector that the OTEL_… variables name."""
    trace: Any = require("opentelemetry.trace", extra="otel")
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        _configure_sdk(trace)
    return OpenTelemetrySink()


def _configure_sdk(trace: Any) -> None:
    exporter, sdk = "opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk"
    part = partial(require, extra="otel")
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
