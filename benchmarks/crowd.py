"""What a process with very many calls in flight needs: `python -m benchmarks.crowd URL CALLS` makes them."""

import asyncio
import math
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.callers import agent_at
from benchmarks.cost import Cost
from benchmarks.prompts import INPUTS
from benchmarks.provider import allow_many_connections, fake_provider
from prompty import invoke_async

LIMIT = 450
FULL = 10_000


def crowd_cost(calls: int) -> Cost:
    """The memory of a fresh process at its peak. The provider answers when it has all the calls."""
    start = time.perf_counter()
    with fake_provider() as provider:
        command = [sys.executable, "-m", __name__, f"{provider}/0/0/{calls}", str(calls)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=280)
    return Cost(
        name=f"{calls:,} calls in flight",
        figure=float(done.stdout),
        unit="MB",
        limit=LIMIT if calls == FULL else math.inf,
        seconds={"all": time.perf_counter() - start},
    )


async def call_at_once(url: str, calls: int) -> None:
    agent = agent_at(url)
    await asyncio.gather(*(invoke_async(agent, INPUTS) for _ in range(calls)))


def peak_memory() -> float:
    """In MB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    allow_many_connections()
    asyncio.run(call_at_once(sys.argv[1], int(sys.argv[2])))
    print(peak_memory())
