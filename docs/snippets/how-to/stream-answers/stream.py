import prompty

with prompty.invoke("answer.prompty", {"question": "What is a monad?"}, stream=True) as stream:
    for text in stream:
        print(text, end="", flush=True)
print()
print(stream.usage.output_tokens, "tokens")
