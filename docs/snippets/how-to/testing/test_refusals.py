import pytest

import prompty
from prompty.testing import RulesServer

GROQ = "groq:qwen/qwen3-32b"


def get_weather(city: str) -> str:
    return f"21 degrees in {city}"


def test_groq_accepts_the_requests():
    with RulesServer() as server:
        prompty.turn("weather.prompty", tools=[get_weather], model=GROQ)
    assert [request.host for request in server.requests] == ["api.groq.com"] * 2
    assert server.refusals == []


def test_groq_refuses_an_effort_that_other_servers_take():
    options = {"additionalProperties": {"reasoning_effort": "low"}}
    with RulesServer(), pytest.raises(prompty.ModelError, match="must be one of `none` or `default`"):
        prompty.turn("weather.prompty", tools=[get_weather], model=GROQ, options=options)
