"""A program that calls with one key after the other, and tells the most file descriptors that it had.

Usage: python -m tests.transports.many_keys WAY URL KEYS
"""

import asyncio
import json
import sys
from pathlib import Path

from prompty import invoke, invoke_async
from tests.transports.subject import create_agent


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def call_each(url: str, keys: int) -> int:
    most = 0
    for number in range(keys):
        assert invoke(create_agent(url, f"sk-of-user-{number:05}"))
        most = max(most, count_descriptors())
    return most


async def call_each_async(url: str, keys: int) -> int:
    most = 0
    for number in range(keys):
        assert await invoke_async(create_agent(url, f"sk-of-user-{number:05}"))
        most = max(most, count_descriptors())
    return most


if __name__ == "__main__":
    way, url, keys = sys.argv[1], sys.argv[2], int(sys.argv[3])
    most = call_each(url, keys) if way == "sync" else asyncio.run(call_each_async(url, keys))
    print(json.dumps({"keys": keys, "descriptors": most}))  # noqa: T201  for the test that started it
