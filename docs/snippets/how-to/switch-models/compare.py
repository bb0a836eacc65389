import prompty

inputs = {"question": "Which model are you?"}
for model in ("openai:gpt-6-luna", "anthropic:claude-haiku-5-5"):
    print(model, prompty.invoke("answer.prompty", inputs, model=model))
