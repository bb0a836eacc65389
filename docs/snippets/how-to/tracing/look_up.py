from prompty import trace, trace_to
from prompty.tracing import Tracer


@trace
def look_up(question: str, api_key: str) -> str:
    with Tracer.start("search") as span:
        span.record("hits", 3)
    return "found"


trace_to("console")
look_up("What is a monad?", "sk-secret-of-mine")
