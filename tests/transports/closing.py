"""A program that opens one of each kind and closes them. Prints the sockets, threads and tasks that it has each time.

A turn connects to a model, to an MCP server and to an OpenAPI service.

Usage: python -m tests.transports.closing WAY PORT
"""

import asyncio
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import prompty
from prompty.openapi import allow
from prompty.registry import DEFAULT, Registry
from tests.transports.tenants import DOCUMENT, PROMPT

PORT = sys.argv[2]
FOLDER = tempfile.mkdtemp()
WRITTEN = PROMPT.format(url=f"http://127.0.0.1:{PORT}", key="of-one")
PATIENCE = 5.0
Counts = dict[str, int]


def load(registry: Registry = DEFAULT) -> prompty.PromptAgent:
    allow(hosts=[f"127.0.0.1:{PORT}"], registry=registry)
    return prompty.loads(WRITTEN, base_dir=FOLDER, registry=registry)


def count() -> Counts:
    links = []
    for file in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(file.readlink()))
        except OSError:  # that of the folder
            continue
    peers = {f"socket:[{line.split()[9]}]" for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
    tasks = sum(isinstance(known, asyncio.Task) and not known.done() for known in gc.get_objects())
    threads = [thread for thread in threading.enumerate() if "asyncio_" not in thread.name]  # those end with their loop
    return {"sockets": len(peers & set(links)), "threads": len(threads), "tasks": tasks}


def settle(is_settled: Callable[[], bool]) -> None:
    """Wait until the sessions' loop has done what it was told, and not longer than patience lasts."""
    end = time.monotonic() + PATIENCE
    while not is_settled() and time.monotonic() < end:
        time.sleep(0.01)


async def settle_async() -> None:
    await asyncio.to_thread(settle, lambda: count()["sockets"] == 0)


def turn(registry: Registry = DEFAULT) -> Counts:
    assert prompty.turn(load(registry)) == "Fine."
    return count()


async def turn_async(registry: Registry = DEFAULT) -> Counts:
    assert await prompty.turn_async(load(registry)) == "Fine."
    return count()


def close() -> Counts:
    opened = turn()
    prompty.close()
    return opened


async def aclose() -> Counts:
    opened = await turn_async()
    await prompty.aclose()
    await settle_async()
    assert count()["sockets"] == 0
    return opened


def registry() -> Counts:
    with prompty.Registry() as own:
        return turn(own)


async def registry_async() -> Counts:
    async with prompty.Registry() as own:
        opened = await turn_async(own)
    await settle_async()
    return opened


def dropped() -> Counts:
    opened = turn(prompty.Registry())
    gc.collect()
    return opened


async def dropped_async() -> Counts:
    opened = await turn_async(prompty.Registry())
    gc.collect()
    await settle_async()
    assert count()["sockets"] == 0
    return opened


def other_loop() -> Counts:
    """Another thread closes what a loop that runs has opened."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    opened = asyncio.run_coroutine_threadsafe(turn_async(), loop).result()
    prompty.close()
    settle(lambda: count()["sockets"] == 0)
    assert count()["sockets"] == 0
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    return opened


def fork() -> Counts:
    """A child starts empty and opens its own, and what the parent has open still works."""
    opened = turn()
    child = os.fork()
    if child == 0:
        assert not DEFAULT.clients._table
        turn()
        prompty.close()
        os._exit(0 if asyncio.run(turn_async()) and close() else 1)
    assert os.waitpid(child, 0)[1] == 0
    turn()
    prompty.close()
    return opened


if __name__ == "__main__":
    Path(FOLDER, "status.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
    prompty.turn(load())  # threads that a first call starts and keeps
    prompty.close()
    settle(lambda: count()["sockets"] == 0)
    before = count()
    way = globals()[sys.argv[1]]
    opened: Counts = asyncio.run(way()) if asyncio.iscoroutinefunction(way) else way()
    settle(lambda: count() == before)
    print(json.dumps({"start": before, "open": opened, "closed": count()}))  # noqa: T201  for the test that started it
