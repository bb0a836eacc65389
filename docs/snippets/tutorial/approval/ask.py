import json
from pathlib import Path

import prompty
from shop import find_books, order_book

question = "Two books about dragons, please."
outcome = prompty.turn("shop.prompty", {"question": question}, tools=[find_books, order_book])

if isinstance(outcome, prompty.Paused):
    for call in outcome.pending:
        print("Waiting for approval:", call.name, call.arguments)
    Path("paused.json").write_text(json.dumps(outcome.to_json()))
else:
    print(outcome)
