import prompty

hosted = {"id": "gpt-5-mini", "provider": "openai"}
question = {"question": "What is a monad?"}
print(prompty.invoke("answer.prompty", question, max_retries=0, fallbacks=[hosted]))
