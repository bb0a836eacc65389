"""A turn whose second tool call kills its process, without a word: `python -m tests.tracing.killed FOLDER`."""

import os
import signal
import sys

from prompty import tool, trace_to, turn
from prompty.testing import Script, call
from tests.conversations.turns import scripted


@tool
def step(number: int) -> str:
    """Work, or die."""
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"step {number} is done"


def main(folder: str) -> None:
    """Never returns."""
    trace_to(f"file:{folder}", capture="wire")
    with Script(call("step", number=1), call("step", number=2), "never said"):
        turn(scripted(name="doomed"), {"q": "Go on."}, tools=[step])


if __name__ == "__main__":
    main(sys.argv[1])
