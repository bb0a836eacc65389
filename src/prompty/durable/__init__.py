"""Durable runs: turns that survive their process (extra `durable`)."""

from prompty.durable.engine import Limits
from prompty.durable.record import DurableOptions, WorkerOptions
from prompty.durable.runs import RunEvent, RunSummary
from prompty.durable.runtime import DurableRun, DurableRuntime
from prompty.durable.webhook import Webhook
from prompty.loop.policy import use_result

__all__ = [
    "DurableOptions",
    "DurableRun",
    "DurableRuntime",
    "Limits",
    "RunEvent",
    "RunSummary",
    "Webhook",
    "WorkerOptions",
    "use_result",
]
