import prompty


def get_weather(city: str) -> str:
    return f"21 degrees in {city}"


def test_the_weather(prompty_recording):
    assert "21" in prompty.turn("weather.prompty", tools=[get_weather])


def test_a_model_that_gives_up(prompty_script):
    script = prompty_script("I do not know.")
    assert prompty.turn("weather.prompty", tools=[get_weather]) == "I do not know."
    assert len(script.requests) == 1
