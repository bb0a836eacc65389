import prompty
from prompty.durable import DurableRuntime


def pay(amount: int, context: prompty.ToolContext) -> str:
    return f"paid {amount} under the key {context.key}"


if __name__ == "__main__":
    with DurableRuntime("sqlite:///runs.db", name="laptop", tools=[pay]) as runtime:
        run = runtime.start(prompty.load("rent.prompty"), run_id="rent-2026-11")
        for call in run.result().pending:
            print("waiting for approval:", call.name, call.arguments)
