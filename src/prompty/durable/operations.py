"""What operators see of a worker: probes over HTTP, and metrics for Prometheus."""

from http import HTTPStatus

from prompty.durable.dbos_engine import DbosEngine
from prompty.durable.engine import lacks
from prompty.durable.metrics import create_prometheus_meter, get_application_meter, observe_runs
from prompty.durable.probes import Page, ProbeServer, probe
from prompty.durable.runtime import DurableRuntime
from prompty.errors import MissingExtra


def report_metrics(runtime: DurableRuntime) -> None:
    """Report the metrics of a worker to the SDK of OpenTelemetry that the application has configured."""
    meter = get_application_meter()
    if meter is not None:
        _attach(runtime, meter)


def serve_probes(runtime: DurableRuntime, address: tuple[str, int]) -> ProbeServer:
    """Serve `/livez` and `/readyz` of a worker, and `/metrics` if the extra `metrics` is installed."""
    engine = runtime.engine
    if not isinstance(engine, DbosEngine):
        raise lacks(engine, "serve probes", "Watch the pollers of the task queue with the tools of its server.")
    pages: dict[str, Page] = {"/livez": probe(engine.check_live), "/readyz": probe(engine.check_ready)}
    try:
        prometheus = create_prometheus_meter()
    except MissingExtra:
        pass
    else:
        _attach(runtime, prometheus.meter)
        pages["/metrics"] = lambda: (HTTPStatus.OK, prometheus.scrape())
    server = ProbeServer(address, pages)
    server.open()
    return server


def _attach(runtime: DurableRuntime, meter: object) -> None:
    runtime.metrics.attach(meter)
    if isinstance(runtime.engine, DbosEngine):
        observe_runs(meter, runtime.engine.count_runs)
