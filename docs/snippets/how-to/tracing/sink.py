import prompty
from prompty.tracing import Tracer


class PrintNames:
    content, wire = True, False  # wants inputs and results, but no raw requests

    def started(self, span):
        pass

    def ended(self, span):
        print(span.name)


def get_weather(city: str) -> str:
    return f"rain in {city}"


Tracer.add("names", PrintNames())
prompty.turn("weather.prompty", {"city": "Oslo"}, tools=[get_weather])
Tracer.flush()
