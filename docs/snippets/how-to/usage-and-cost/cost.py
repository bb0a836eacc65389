import prompty

result = prompty.invoke("answer.prompty", {"question": "What is a monad?"}, details=True)
print(result.value)
print(result.model, result.finish_reason)
print(result.usage.input_tokens, "tokens in,", result.usage.output_tokens, "out")
print(result.cost, "dollars")
