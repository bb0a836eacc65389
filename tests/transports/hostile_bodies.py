"""A program that meets one hostile answer after the other, and tells how each ended, when, and with how much memory.

Usage: hostile_bodies.py URL WAY NAMES, with the time limit of every call in HOSTILE_SECONDS.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from prompty import Budget, PromptAgent, invoke, invoke_async
from prompty.errors import PromptyError

URL, WAY, NAMES = sys.argv[1:]
SECONDS = float(os.environ["HOSTILE_SECONDS"])
MODEL = {"id": "m", "connection": {"kind": "anonymous", "endpoint": f"{URL}/v1"}}
AGENT = PromptAgent.model_validate({"model": MODEL, "instructions": "user:\nHi"})


def call(**limit: Any) -> object:
    if WAY == "sync":
        return invoke(AGENT, max_retries=0, **limit)
    if WAY == "sync stream":
        return sum(len(str(text)) for text in invoke(AGENT, stream=True, max_retries=0, **limit))
    return asyncio.run(call_async(**limit))


async def call_async(**limit: Any) -> object:
    if WAY == "async":
        return await invoke_async(AGENT, max_retries=0, **limit)
    stream = await invoke_async(AGENT, stream=True, max_retries=0, **limit)
    return sum([len(str(text)) async for text in stream])


for name in NAMES.split(","):
    limit: dict[str, Any] = {"budget": Budget(seconds=SECONDS)} if name.endswith("budget") else {"timeout": SECONDS}
    start = time.monotonic()
    try:
        told = f"answer: {str(call(**limit))[:50]}"
    except PromptyError as error:
        told = f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - start
    most = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    figures = {"seconds": seconds, "megabytes": int(most.split()[1]) / 1000}
    print(json.dumps({"name": name, "told": told, **figures}), flush=True)  # noqa: T201  for the test that started it
