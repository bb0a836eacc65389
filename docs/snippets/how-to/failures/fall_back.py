import prompty

hosted = {"id": "gpt-6-luna", "provider": "openai"}
question = {"question": "What is a monad?"}
print(prompty.invoke("answer.prompty", question, max_retries=0, fallbacks=[hosted]))
