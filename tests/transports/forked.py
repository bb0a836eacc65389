"""A program that calls, forks, and calls in both processes. Usage: forked.py URL"""

import asyncio
import os
import sys

from prompty import PromptAgent, invoke, invoke_async

CONNECTION = {"kind": "key", "endpoint": f"{sys.argv[1]}/v1", "apiKey": "sk-planted"}
AGENT = PromptAgent.model_validate({"model": {"id": "m", "connection": CONNECTION}, "instructions": "user:\nHi"})


def call() -> None:
    """Call from a thread, and from an event loop."""
    print(invoke(AGENT), asyncio.run(invoke_async(AGENT)), flush=True)  # noqa: T201  for the test that started it


call()
if (child := os.fork()) == 0:
    call()
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
call()
