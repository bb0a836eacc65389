"""A collector of OpenTelemetry on loopback: takes OTLP over HTTP, keeps the bytes, and reads the protobuf in them."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {1: "INTERNAL", 2: "SERVER", 3: "CLIENT"}
STATUSES = {0: "UNSET", 1: "OK", 2: "ERROR"}
Attributes = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Span:
    """A span as it was received."""

    name: str
    kind: str
    id: str
    parent: str
    trace: str
    attributes: Attributes
    status: str
    message: str
    seconds: float
    scope: tuple[str, str, str]
    resource: Attributes


@dataclass(frozen=True, kw_only=True)
class Event:
    """A log record that is an event."""

    name: str
    trace: str
    span: str
    attributes: Attributes


@dataclass(frozen=True, kw_only=True)
class Point:
    """What a histogram says about one set of attributes."""

    metric: str
    unit: str
    count: int
    sum: float
    bounds: tuple[float, ...]
    attributes: Attributes


class Collector:
    """Runs for as long as a `with` statement."""

    def __init__(self) -> None:
        self.received: list[tuple[str, bytes]] = []
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def spans(self) -> list[Span]:
        return [span for content in self.bodies("/v1/traces") for span in _spans(content)]

    @property
    def events(self) -> list[Event]:
        return [event for content in self.bodies("/v1/logs") for event in _events(content)]

    @property
    def points(self) -> list[Point]:
        return [point for content in self.bodies("/v1/metrics") for point in _points(content)]

    def bodies(self, path: str = "") -> list[bytes]:
        """What was sent to a path, or all of it, as bytes."""
        return [content for where, content in self.received if where == path or not path]


class _Server(ThreadingHTTPServer):
    def __init__(self, collector: Collector) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.collector = collector


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        cast(_Server, self.server).collector.received.append((self.path, content))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on stderr."""


def _spans(content: bytes) -> Iterator[Span]:
    for resource in ExportTraceServiceRequest.FromString(content).resource_spans:
        about = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            origin = (scope.scope.name, scope.scope.version, scope.schema_url)
            for one in scope.spans:
                yield Span(
                    name=one.name,
                    kind=KINDS[one.kind],
                    id=one.span_id.hex(),
                    parent=one.parent_span_id.hex(),
                    trace=one.trace_id.hex(),
                    attributes=_attributes(one.attributes),
                    status=STATUSES[one.status.code],
                    message=one.status.message,
                    seconds=(one.end_time_unix_nano - one.start_time_unix_nano) / 1e9,
                    scope=origin,
                    resource=about,
                )


def _events(content: bytes) -> Iterator[Event]:
    for resource in ExportLogsServiceRequest.FromString(content).resource_logs:
        for scope in resource.scope_logs:
            for one in scope.log_records:
                yield Event(
                    name=one.event_name,
                    trace=one.trace_id.hex(),
                    span=one.span_id.hex(),
                    attributes=_attributes(one.attributes),
                )


def _points(content: bytes) -> Iterator[Point]:
    for resource in ExportMetricsServiceRequest.FromString(content).resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for one in metric.histogram.data_points:
                    yield Point(
                        metric=metric.name,
                        unit=metric.unit,
                        count=one.count,
                        sum=one.sum,
                        bounds=tuple(one.explicit_bounds),
                        attributes=_attributes(one.attributes),
                    )


def _attributes(pairs: Any) -> Attributes:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None
