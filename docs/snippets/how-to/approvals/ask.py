import json
from pathlib import Path

import prompty


def pay(amount: int) -> str:
    return f"paid {amount}"


paused = prompty.turn("bank.prompty", {"question": "Pay my rent."}, tools=[pay])
for call in paused.pending:
    print("May I call", call.name, call.arguments, "?")
Path("paused.json").write_text(json.dumps(paused.to_json()))
