from openai import AsyncOpenAI, OpenAI

import prompty
from prompty.providers import register_connection

register_connection("main", OpenAI(), AsyncOpenAI())
print(prompty.invoke("answer.prompty", {"question": "What is a monad?"}))
