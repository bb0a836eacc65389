import prompty


@prompty.tool
def get_weather(city: str) -> str:
    return f"{'3' if city == 'Oslo' else '24'} degrees in {city}"


if __name__ == "__main__":
    question = "Is it warmer in Oslo or in Rome?"
    print(prompty.turn("weather.prompty", {"question": question}, tools=[get_weather]))
