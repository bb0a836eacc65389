from prompty.durable import DurableRuntime
from start import pay

if __name__ == "__main__":
    with DurableRuntime("sqlite:///runs.db", name="laptop", tools=[pay]) as runtime:
        runtime.answer("rent-2026-11", [True])
        print(runtime.result("rent-2026-11"))
