"""Start a turn. If a call needs approval, store the turn and end: python ask.py [ORDER]."""

import json
import os
import sys
from pathlib import Path

from prompty import Paused, turn
from tools import get_balance, pay

ORDER = " ".join(sys.argv[1:]) or "Pay my rent."
KEY = os.environ.get("PAUSED_KEY", "use a secret of your own here").encode()

answer = turn("bank.prompty", {"order": ORDER}, tools=[get_balance, pay], paused_key=KEY, model=os.environ.get("MODEL"))
if isinstance(answer, Paused):
    Path("paused.json").write_text(json.dumps(answer.to_json()), encoding="utf-8")
    for call in answer.pending:
        print(f"waiting for approval: {call.name} {dict(call.arguments)}")
else:
    print(answer)
