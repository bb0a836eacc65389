"""What a worker measures, as OpenTelemetry metrics. `docs/reference/metrics.md` lists them.

Instruments belong to the meter of the application's SDK, and to one of our own if Prometheus scrapes the worker.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from prompty.errors import MissingExtra
from prompty.extras import require
from prompty.model.message import Usage
from prompty.version import __version__

STEP_BUCKETS = [0.01 * 4**power for power in range(9)]
READING_SECONDS = 1.0
STATE = "prompty.run.state"
PAUSE_AGE = "prompty.pause.age"
# The first that fits: seconds a run has waited for a person at most, by the value of the attribute.
PAUSE_AGES: Mapping[str, float] = {"1h": 3600.0, "1d": 86_400.0, "7d": 604_800.0, "older": math.inf}
STEP_KIND = "prompty.step.kind"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105  a name, not a secret


class Metric(NamedTuple):
    """A metric: what it counts, its unit, and the attribute that splits it."""

    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    description: str
    attribute: str = ""


METRICS: Mapping[str, Metric] = {
    "prompty.runs": Metric("gauge", "{run}", "Runs that wait for a worker, run, or are paused.", STATE),
    "prompty.runs.oldest": Metric("gauge", "s", "Age of the oldest run that waits for a worker or is paused.", STATE),
    "prompty.runs.paused": Metric("gauge", "{run}", "Paused runs by how long they wait for a person.", PAUSE_AGE),
    "prompty.step.duration": Metric("histogram", "s", "Time of a step, without its storage.", STEP_KIND),
    "prompty.tokens": Metric("counter", "{token}", "Tokens of the model calls of this worker.", TOKEN_TYPE),
    "prompty.model.rate_limited": Metric("counter", "{reply}", "Replies of models with status 429."),
    "prompty.calls.uncertain": Metric("counter", "{call}", "Tool calls whose outcome is not known after a crash."),
    "prompty.workers.lost": Metric("counter", "{worker}", "Workers whose lease this worker saw expire."),
    "prompty.runs.taken_over": Metric("counter", "{run}", "Runs that this worker took over from lost workers."),
}


class RunCount(NamedTuple):
    """How many runs have a state, the age of the oldest in seconds, and of paused ones how many are how old."""

    state: str
    runs: int
    oldest: float
    ages: Mapping[str, int] = {}


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

    def observe_ages(_: Any) -> list[Any]:
        return [observation(runs, {PAUSE_AGE: age}) for found in get_latest() for age, runs in found.ages.items()]

    paused = METRICS["prompty.runs.paused"]
    meter.create_observable_gauge("prompty.runs.paused", [observe_ages], paused.unit, paused.description)


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
    options = {"explicit_bucket_boundaries_advisory": STEP_BUCKETS} if metric.kind == "histogram" else {}
    return getattr(meter, f"create_{metric.kind}")(name, metric.unit, metric.description, **options)
