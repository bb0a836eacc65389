"""Tracing: sinks, and spans around your own code."""

from prompty.tracing.sinks import trace_to
from prompty.tracing.spans import Sink, Span
from prompty.tracing.tracer import Tracer, trace

__all__ = ["Sink", "Span", "Tracer", "trace", "trace_to"]
