"""Choose the engine of durable runs by a URL. An engine is imported when it is chosen."""

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
        from prompty.durable.temporal_engine import TemporalEngine  # needs the extra

        return TemporalEngine(url, name, limits, lease)
    return DbosEngine(url, name, limits, lease, metrics)
