"""Talk to a model that remembers earlier conversations: python main.py [NAME]."""

import os
import sys

from prompty import turn
from prompty.memory import SqliteMemory

MODEL = os.environ.get("MODEL")


def main(name: str) -> None:
    """Answer each line of standard input, and keep the conversation under a name."""
    memory = SqliteMemory("sessions.db")
    print(f"Hello {name}. I know {len(memory.load(name))} messages of earlier. End with Ctrl-D.")
    for line in sys.stdin:
        inputs = {"message": line.strip()}
        for text in turn("chat.prompty", inputs, memory=memory, session_id=name, stream=True, model=MODEL):
            print(text, end="", flush=True)
        print()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "guest")
