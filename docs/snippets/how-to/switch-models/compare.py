import prompty

inputs = {"question": "Which model are you?"}
for model in ("openai:gpt-5-mini", "anthropic:claude-sonnet-4-5"):
    print(model, prompty.invoke("answer.prompty", inputs, model=model))
