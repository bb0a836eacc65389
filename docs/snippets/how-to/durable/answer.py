from prompty.durable import Runs

with Runs("sqlite:///runs.db") as runs:
    runs.answer("rent-2026-11", [True])
    print(runs.result("rent-2026-11"))
