from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import prompty

exporter = InMemorySpanExporter()  # yours sends to a collector
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

prompty.trace_to("otel")
with trace.get_tracer("app").start_as_current_span("handle request"):
    prompty.turn("answer.prompty", {"question": "What is a monad?"})

names = {span.context.span_id: span.name for span in exporter.get_finished_spans()}
for span in exporter.get_finished_spans():
    print(span.name, "<-", names[span.parent.span_id] if span.parent else None)
