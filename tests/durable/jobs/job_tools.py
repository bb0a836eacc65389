"""Tools that append what they do to a log, one write for a line: `begin KEY`, `effect KEY`."""

import asyncio
import os
import random
import signal

from prompty import tool

PACE = float(os.environ["JOBS_PACE"])
chance = random.Random(os.getpid())  # noqa: S311  not for secrets


def note(line: str) -> None:
    file = os.open(os.environ["JOBS_LOG"], os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{line}\n".encode())
    os.close(file)


async def do(at: str) -> None:
    if "poison" in at:
        os.kill(os.getpid(), signal.SIGKILL)
    note(f"begin {at}")
    await asyncio.sleep(chance.random() * PACE)
    note(f"effect {at}")
    await asyncio.sleep(chance.random() * PACE)


@tool(idempotent=True)
async def look(at: str) -> str:
    """Look at something."""
    await do(at)
    return f"seen {at}"


@tool
async def pay(at: str) -> str:
    """Pay for something, once."""
    await do(at)
    return f"paid {at}"


@tool
async def refund(at: str) -> str:
    """Pay back, once, after an approval."""
    await do(at)
    return f"refunded {at}"


TOOLS = [look, pay, refund]
