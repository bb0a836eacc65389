"""Prompty v1's tracing. New programs use `prompty.tracing` and `prompty.trace_to`."""

import warnings
from pathlib import Path

from prompty.tracing.files import FileSink
from prompty.tracing.sinks import ConsoleSink
from prompty.tracing.tracer import Tracer, trace

__all__ = ["PromptyTracer", "Tracer", "console_tracer", "trace"]

warnings.warn(
    "prompty.tracer is v1's. Write prompty.trace_to('console', 'file:traces'), or import prompty.tracing.",
    DeprecationWarning,
    stacklevel=2,
)
console_tracer: ConsoleSink = ConsoleSink()


class PromptyTracer:
    """Writes traces to a folder: `Tracer.add("files", PromptyTracer("traces").tracer)`."""

    def __init__(self, output_dir: str | Path | None = None) -> None:
        self.tracer: FileSink = FileSink(output_dir or ".runs")
