"""What a worker measures, as OpenTelemetry metrics. `docs/reference/metrics.md` lists them.

Instruments belong to the meter of the application's SDK, and to one of our own if Prometheus scrapes the worker.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from prompty.errors import MissingExtra
from prompty.extras import require
from prompty.model.message import Usage
from prompty.version import __version__

STEP_BUCKETS = [0.01 * 4**power for power in range(9)]
RUN_BUCKETS = [0.25 * 4**power for power in range(11)]  # to three days
READING_SECONDS = 1.0
STATE = "prompty.run.state"
OUTCOME = "prompty.run.outcome"
STEP_KIND = "prompty.step.kind"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105  a name, not a secret


class Metric(NamedTuple):
    """A metric: what it counts, its unit, and the attribute that splits it."""

    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    description: str
    attribute: str = ""


METRICS: Mapping[str, Metric] = {
    "prompty.runs": Metric("gauge", "{run}", "Runs that wait, run, are paused or are quarantined.", STATE),
    "prompty.runs.oldest": Metric("gauge", "s", "Time that the oldest of these runs has been in its state.", STATE),
    "prompty.runs.ended": Metric("counter", "{run}", "Runs that ended in this worker.", OUTCOME),
    "prompty.run.duration": Metric("histogram", "s", "Time from the submission of a run to its end.", OUTCOME),
    "prompty.step.duration": Metric("histogram", "s", "Time of a step, without its storage.", STEP_KIND),
    "prompty.tokens": Metric("counter", "{token}", "Tokens of the model calls of this worker.", TOKEN_TYPE),
    "prompty.model.rate_limited": Metric("counter", "{reply}", "Replies of models with status 429."),
    "prompty.calls.uncertain": Metric("counter", "{call}", "Tool calls whose outcome is not known after a crash."),
    "prompty.workers.lost": Metric("counter", "{worker}", "Workers whose lease this worker saw expire."),
    "prompty.runs.taken_over": Metric("counter", "{run}", "Runs that this worker took over from lost workers."),
}


class RunCount(NamedTuple):
    """How many runs are in a state, and for how many seconds the oldest is."""

    state: str
    runs: int
    oldest: float


class WorkerMetrics:
    """Instruments of a worker. They report to every meter that is attached, and to none before that."""

    def __init__(self) -> None:
        self._meters: list[dict[str, Any]] = []

    def attach(self, meter: Any) -> None:
        """Report to a meter of OpenTelemetry from now on."""
        self._meters.append({name: _create(meter, name) for name, metric in METRICS.items() if metric.kind != "gauge"})

    def count(self, name: str, number: int = 1, **attributes: str) -> None:
        for instruments in self._meters:
            instruments[name].add(number, attributes)

    def count_tokens(self, usage: Usage) -> None:
        for kind, number in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if number:
                self.count("prompty.tokens", number, **{TOKEN_TYPE: kind})

    def count_end(self, outcome: str, seconds: float) -> None:
        """Count a run that has ended, so many seconds after it was submitted."""
        self.count("prompty.runs.ended", 1, **{OUTCOME: outcome})
        for instruments in self._meters:
            instruments["prompty.run.duration"].record(seconds, {OUTCOME: outcome})

    def record_step(self, kind: str, seconds: float) -> None:
        for instruments in self._meters:
            instruments["prompty.step.duration"].record(seconds, {STEP_KIND: kind})


def observe_runs(meter: Any, read: Callable[[], Sequence[RunCount]]) -> None:
    """Let a meter read the state of the queue whenever it is collected. Metrics of one collection share a reading."""
    observation = require("opentelemetry.metrics", extra="otel").Observation
    latest: Sequence[RunCount] = ()
    read_at = -READING_SECONDS

    def get_latest() -> Sequence[RunCount]:
        nonlocal latest, read_at
        if time.monotonic() - read_at >= READING_SECONDS:
            latest, read_at = read(), time.monotonic()
        return latest

    def observe(field: str) -> Callable[[Any], list[Any]]:
        return lambda _: [observation(getattr(found, field), {STATE: found.state}) for found in get_latest()]

    for name, field in (("prompty.runs", "runs"), ("prompty.runs.oldest", "oldest")):
        metric = METRICS[name]
        meter.create_observable_gauge(name, [observe(field)], metric.unit, metric.description)


def get_application_meter() -> Any | None:
    """Return the meter of the SDK that the application has configured, or None without OpenTelemetry."""
    try:
        return require("opentelemetry.metrics", extra="otel").get_meter("prompty", __version__)
    except MissingExtra:
        return None


class PrometheusMeter(NamedTuple):
    """A meter of its own, and the function that writes its metrics as Prometheus reads them."""

    meter: Any
    scrape: Callable[[], bytes]


def create_prometheus_meter() -> PrometheusMeter:
    """Create a meter that Prometheus can scrape, whatever SDK the application has configured."""
    part = partial(require, extra="metrics")
    client = part("prometheus_client")
    registry = client.CollectorRegistry()
    reader = part("opentelemetry.exporter.prometheus").PrometheusMetricReader(registry=registry)
    provider = part("opentelemetry.sdk.metrics").MeterProvider([reader])
    return PrometheusMeter(provider.get_meter("prompty", __version__), partial(client.generate_latest, registry))


def _create(meter: Any, name: str) -> Any:
    metric = METRICS[name]
    buckets = STEP_BUCKETS if metric.attribute == STEP_KIND else RUN_BUCKETS
    options = {"explicit_bucket_boundaries_advisory": buckets} if metric.kind == "histogram" else {}
    return getattr(meter, f"create_{metric.kind}")(name, metric.unit, metric.description, **options)
