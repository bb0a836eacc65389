import json
from pathlib import Path

import prompty


def pay(amount: int) -> str:
    return f"paid {amount}"


paused = prompty.Paused.from_json(json.loads(Path("paused.json").read_text()))
print(prompty.resume(prompty.load("bank.prompty"), paused, [True], tools=[pay]))
