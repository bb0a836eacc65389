from prompty import tool


@tool
def get_weather(city: str) -> str:
    return f"rain in {city}"
