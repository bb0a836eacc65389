"""Choose the engine of durable runs by a URL. An engine is imported when it is chosen."""

from importlib import import_module

from prompty.durable.dbos_engine import DbosEngine
from prompty.durable.engine import Engine, Limits
from prompty.durable.metrics import WorkerMetrics
from prompty.extras import require

TEMPORAL = "temporal://"


def create_engine(
    url: str, name: str | None, limits: Limits | None, lease: float, metrics: WorkerMetrics | None = None
) -> Engine:
    """Return the engine for `temporal://…`, `sqlite:///…` or `postgresql://…`."""
    if url.startswith(TEMPORAL):
        require("temporalio", extra="temporal")
        engine: Engine = import_module("prompty.durable.temporal_engine").TemporalEngine(url, name, limits, lease)
        return engine
    return DbosEngine(url, name, limits, lease, metrics)
