"""A program with agents, as a user writes one: `python -m tests.tracing.program PLAN.json`.

It runs what the plan says, one after the other, and prints what came of it. Nothing in it sets tracing up, unless the
plan says that the application has an OpenTelemetry of its own.
"""

import asyncio
import json
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from prompty import PromptyError, invoke, invoke_async, trace_to, turn, turn_async
from prompty.memory import InProcessMemory

SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

tracer = trace.get_tracer("application")
memory = InProcessMemory()


def weather(city: str) -> dict[str, Any]:
    """How the weather is now."""
    with tracer.start_as_current_span("query of the database"):
        return {"city": city, "degrees": 21}


async def forecast(city: str) -> str:
    """How the weather will be."""
    with tracer.start_as_current_span("request to the service"):
        await asyncio.sleep(0.001)
        return f"rain in {city}"


def broken(city: str) -> str:
    """Fails."""
    raise RuntimeError(f"there is no {city}")


TOOLS = {"weather": weather, "forecast": forecast, "broken": broken}


def options_of(step: dict[str, Any]) -> dict[str, Any]:
    names = step.get("tools", ())
    session = {"memory": memory, "session_id": step["session"]} if "session" in step else {}
    return {**({"tools": [TOOLS[name] for name in names]} if names else {}), **session, **step.get("options", {})}


def run(step: dict[str, Any]) -> Any:
    """One call or turn, in synchronous code."""
    function: Any = {"turn": turn, "invoke": invoke}[step["how"]]
    if not step.get("stream"):
        return function(step["file"], step.get("inputs"), **options_of(step))
    with function(step["file"], step.get("inputs"), stream=True, **options_of(step)) as stream:
        for _ in stream:
            if step.get("leave"):
                return "left"
        return stream.result


async def run_async(step: dict[str, Any]) -> Any:
    """The same in asynchronous code."""
    function: Any = {"turn": turn_async, "invoke": invoke_async}[step["how"]]
    if not step.get("stream"):
        return await function(step["file"], step.get("inputs"), **options_of(step))
    async with await function(step["file"], step.get("inputs"), stream=True, **options_of(step)) as stream:
        async for _ in stream:
            pass
        return await stream.result()


def told(step: dict[str, Any]) -> Any:
    if "switch" in step:
        os.environ[SWITCH] = step["switch"]
        trace_to("otel")
    inside: AbstractContextManager[object] = nullcontext()
    if "inside" in step:
        inside = tracer.start_as_current_span(step["inside"])
    with inside:
        try:
            return asyncio.run(run_async(step)) if step.get("asynchronous") else run(step)
        except PromptyError as error:
            return f"{type(error).__name__}: {error}"


def set_up_an_own_opentelemetry() -> None:
    """As an application does that has nothing to do with prompty."""
    provider = TracerProvider(resource=Resource.create({"service.name": "the application"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    if plan.get("own"):
        set_up_an_own_opentelemetry()
        trace_to("otel")
    sys.stdout.write(json.dumps([told(step) for step in plan["steps"]]))


if __name__ == "__main__":
    main()
