"""A program that has many calls in flight, and tells how many were answered, and the memory that it took.

Usage: python -m tests.transports.crowd TRANSPORT URL CALLS
"""

import asyncio
import json
import sys
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, setrlimit

from prompty import PromptAgent, invoke_async
from tests.transports.subject import Subject


async def call_all(agent: PromptAgent, calls: int) -> int:
    answers = await asyncio.gather(*(invoke_async(agent) for _ in range(calls)))
    return sum(bool(answer) for answer in answers)


def read_peak_memory() -> int:
    """Return the most memory that this process has had, in MB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


if __name__ == "__main__":
    _, most = getrlimit(RLIMIT_NOFILE)
    setrlimit(RLIMIT_NOFILE, (most, most))  # a connection is a file
    subject = Subject(sys.argv[1])
    answered = subject.run(call_all(subject.agent(sys.argv[2]), int(sys.argv[3])))
    subject.close()
    print(json.dumps({"answered": answered, "megabytes": read_peak_memory()}))  # noqa: T201  for the test that started it
