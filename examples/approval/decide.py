"""Approve or deny the waiting calls, and finish the turn: python decide.py yes|no."""

import json
import os
import sys
from pathlib import Path

from prompty import Paused, deny, load, resume
from tools import get_balance, pay

KEY = os.environ.get("PAUSED_KEY", "use a secret of your own here").encode()

stored = Path("paused.json")
paused = Paused.from_json(json.loads(stored.read_text(encoding="utf-8")))
stored.unlink()  # a stored turn can be resumed twice; take it away first
verdict = True if sys.argv[1:] == ["yes"] else deny("A person said no.")

answer = resume(
    load("bank.prompty"),
    paused,
    [verdict] * len(paused.pending),
    tools=[get_balance, pay],
    paused_key=KEY,
    model=os.environ.get("MODEL"),
)
print(answer)
