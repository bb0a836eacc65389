"""A process that has turns in a session until it is killed: `python -m tests.memory.worker DATABASE NAME`.

It prints a line for every turn that was done; a turn has two rounds of two calls.
"""

import itertools
import sys

from prompty import tool, turn
from prompty.memory import SqliteMemory
from prompty.testing import Script, call
from tests.conversations.turns import scripted


@tool
def look(at: str) -> str:
    return f"seen {at}"


def main(path: str, name: str) -> None:
    store = SqliteMemory(path)
    for number in itertools.count():
        label = f"{name}-{number}"
        rounds = [[call("look", at=f"{label}/{step}/{place}") for place in range(2)] for step in range(2)]
        with Script(*rounds, f"answer {label}"):
            turn(scripted(), {"q": label}, tools=[look], memory=store, session_id="shared")
        sys.stdout.write(f"{label}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
