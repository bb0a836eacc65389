"""Tracing: sinks, and spans around your own code."""

from prompty.tracing.sinks import Sink, trace_to
from prompty.tracing.spans import Span
from prompty.tracing.tracer import Tracer, trace

__all__ = ["Sink", "Span", "Tracer", "trace", "trace_to"]
