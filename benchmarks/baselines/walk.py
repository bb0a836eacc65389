"""Measure how many files and rooms one turn passes through: a prompt file with one function tool, over HTTP.

The turn is warm (the second one counts) and the server is on loopback. Tracing must be off.
"""

import os
import sys
import threading
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import prompty
from benchmarks.baselines.rooms import get_folder
from tests.loopback import Reply, Server, json_reply

FOLDER = f"{Path(prompty.__file__).parent}{os.sep}"
PROMPT = """\
---
model:
  id: m
  provider: openai
  connection: {{kind: anonymous, endpoint: "{url}/v1"}}
inputs: {{q: Hi}}
---
user:
{{{{q}}}}
"""


def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


def measure_walk() -> dict[str, int]:
    """Return the files and rooms that the turn enters, and how often it goes from one file to another."""
    asked = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "a"}'}}
    turn = [_chat("tool_calls", tool_calls=[asked]), _chat("stop", content="Done.")]
    with Server() as server, TemporaryDirectory() as folder:
        server.answer(*turn, *turn)
        file = Path(folder, "look.prompty")
        file.write_text(PROMPT.format(url=server.url), encoding="utf-8")
        os.utime(file, (0, 0))  # a file that has just changed is not cached
        prompty.turn(file, {"q": "Look."}, tools=[look])
        entered = _profile(file)
    return {
        "files": len(set(entered)),
        "rooms": len({get_folder(path) for path in entered}),
        "switches of file": sum(before != after for before, after in pairwise(entered)),
    }


def _chat(reason: str, **said: object) -> Reply:
    message = {"role": "assistant", **said}
    return json_reply({"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": reason}]})


def _profile(file: Path) -> list[str]:
    """Run a turn and return the file of each function that was entered, in order. Resuming a generator is an entry."""
    entered: list[str] = []

    def keep(frame: FrameType, event: str, argument: object) -> None:
        path, name = frame.f_code.co_filename, frame.f_code.co_qualname
        if event == "call" and path.startswith(FOLDER) and not name.endswith("comp>"):
            entered.append(Path(path).relative_to(FOLDER).as_posix())

    threading.setprofile(keep)
    sys.setprofile(keep)
    try:
        prompty.turn(file, {"q": "Look."}, tools=[look])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered
