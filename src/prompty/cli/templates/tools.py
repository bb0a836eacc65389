"""Functions that the model can call."""

from prompty import tool


@tool
def get_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"3 degrees and rain in {city}"
