import json
from pathlib import Path

import prompty
from shop import find_books, order_book

paused = prompty.Paused.from_json(json.loads(Path("paused.json").read_text()))
agent = prompty.load("shop.prompty")
print(prompty.resume(agent, paused, [True], tools=[find_books, order_book]))
