"""Run a turn, and send its spans to a collector: python main.py [QUESTION]."""

import os
import sys

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from prompty import trace_to, turn


def look_up(word: str) -> str:
    """Return the entry of a word in the dictionary."""
    return f"{word}: a design pattern of functional programming"


def main(question: str) -> None:
    """Set up OpenTelemetry as any program does, and tell prompty to use it."""
    provider = TracerProvider(resource=Resource.create({"service.name": "dictionary"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))  # to OTEL_EXPORTER_OTLP_ENDPOINT
    trace.set_tracer_provider(provider)
    trace_to("otel")
    print(turn("answer.prompty", {"question": question}, tools=[look_up], model=os.environ.get("MODEL")))
    provider.shutdown()


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "What is a monad?")
