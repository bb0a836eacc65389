import prompty
from prompty.events import ToolFinished


def get_weather(city: str, unit: str) -> str:
    return f"3 {unit} in {city}"


def show(event: object) -> None:
    if isinstance(event, ToolFinished):
        print(event.result.text)


question = "Is it warmer in Oslo or in Rome?"
prompty.turn("bound.prompty", {"question": question, "unit": "fahrenheit"}, tools=[get_weather], on_event=show)
