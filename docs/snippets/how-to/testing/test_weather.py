import pytest

import prompty
from prompty.errors import StreamCut
from prompty.testing import Fault, Script, answer, call


def get_weather(city: str) -> str:
    return f"21 degrees in {city}"


def test_the_model_reads_the_weather():
    with Script(call("get_weather", city="Paris"), "It is warm.") as script:
        assert prompty.turn("weather.prompty", tools=[get_weather]) == "It is warm."
    assert script.requests[1]["messages"][-1]["content"] == "21 degrees in Paris"


def test_a_stream_that_breaks_off():
    fault = Fault(after=3, reply=answer("It is very warm."))
    with Script(fault), prompty.invoke("weather.prompty", stream=True) as stream, pytest.raises(StreamCut) as caught:
        list(stream)
    assert caught.value.partial.text == "It is "
