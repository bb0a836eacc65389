import re

import prompty
from prompty.errors import GuardrailError


def refuse_passwords(messages):
    return not any("password" in message.text for message in messages) or prompty.deny("asks for a password")


def mask_phone_numbers(answer):
    return prompty.rewrite(re.sub(r"\d{3}-\d{4}", "•••-••••", answer.text))


guardrails = prompty.Guardrails(input=refuse_passwords, output=mask_phone_numbers)
print(prompty.invoke("answer.prompty", {"question": "How do I reach you?"}, guardrails=guardrails))

try:
    prompty.invoke("answer.prompty", {"question": "What is your password?"}, guardrails=guardrails)
except GuardrailError as error:
    print(error)
