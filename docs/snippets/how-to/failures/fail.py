import prompty

try:
    prompty.invoke("answer.prompty", {"question": "What is a monad?"}, max_retries=0)
except prompty.ModelError as error:
    print(error)
    print("retryable:", error.retryable)
