import prompty

try:
    prompty.turn("news.prompty", {"topic": "Example"}, provider_tools=False)
except prompty.PromptyError as error:
    print(error)
