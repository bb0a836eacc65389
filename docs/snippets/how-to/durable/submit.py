from prompty.durable import Runs

with Runs("sqlite:///runs.db") as runs:
    runs.submit("rent.prompty", run_id="rent-2026-11")
    for call in runs.result("rent-2026-11").pending:
        print("needs approval:", call.name, call.arguments)
