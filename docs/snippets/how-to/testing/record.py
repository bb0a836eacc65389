import prompty
from prompty.testing import Player, Recorder, RecordingMissing


def get_weather(city: str) -> str:
    return f"21 degrees in {city}"


with Recorder("weather.jsonl"):
    print(prompty.turn("weather.prompty", tools=[get_weather]))

with Player("weather.jsonl"):
    print(prompty.turn("weather.prompty", tools=[get_weather]))
    try:
        prompty.turn("weather.prompty", {"city": "Oslo"}, tools=[get_weather])
    except RecordingMissing as missing:
        print("no recording:", "first difference" in str(missing))
