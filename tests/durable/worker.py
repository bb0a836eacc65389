"""A process that works on durable runs and can be killed anywhere, with an outside log of what it does.

Lines of the log are appended in one write each: `process PID` and `begin KEY`, `effect KEY RESULT`, and `kept STEP`
once a step has left its result, or `unknown STEP`. `look` may be repeated; `pay` must not.
"""

import asyncio
import faulthandler
import os
import random
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prompty import ToolContext, tool
from prompty.durable import DurableRuntime, dbos_engine
from prompty.durable.codec import UNKNOWN
from prompty.durable.engine import Attempt, Limits, Steps
from prompty.durable.envelope import seal
from prompty.durable.selection import Outcome
from prompty.memory import SqliteMemory
from prompty.model.message import Json
from tests.durable.runs import Script

ROUNDS, CALLS = 3, 4
LEASE = 2.0
UNKNOWN_TEXT = seal(UNKNOWN)["value"]


def script(run_id: str) -> Script:
    """Three rounds of two payments and two looks, and an answer."""
    names = ["pay", "look", "pay", "look"]
    calls = [[{"call": names[at], "arguments": {"at": f"{n}/{at}"}} for at in range(CALLS)] for n in range(ROUNDS)]
    return [*calls, f"Done with {run_id}."]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a worker is told. It dies or stops by itself at the boundary of this number; a boundary is a moment before a
    step, in it before or after what it does, or after it."""

    url: str
    name: str
    log: Path
    sessions: Path
    pace: float = 0.01
    dies_at: int | None = None
    stops_at: int | None = None
    lease: float = LEASE
    limits: Limits | None = None
    recoveries: int = dbos_engine.MAX_RECOVERIES


def work(job: Job) -> None:
    """Work until killed."""
    dbos_engine.MAX_RECOVERIES = job.recoveries
    sys.stderr = job.log.with_name("stderr").open("a")  # it is open as long as the process, which is killed
    faulthandler.register(signal.SIGUSR1, sys.stderr)
    runtime = Runtime(job)
    runtime.open()
    note(job.log, f"open {job.name}")
    with suppress(KeyboardInterrupt):
        signal.pause()


class Tools:
    """Two tools that take their time before and after what they do."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._chance = random.Random(os.getpid())  # noqa: S311  not for secrets

    @tool
    async def pay(self, at: str, context: ToolContext) -> str:
        """Pay for something, which must happen once."""
        return await self._done(f"paid {at}", context)

    @tool(idempotent=True)
    async def look(self, at: str, context: ToolContext) -> str:
        """Look at something, as often as one likes."""
        return await self._done(f"seen {at}", context)

    async def _done(self, result: str, context: ToolContext) -> str:
        note(self._job.log, f"process {os.getpid()}\nbegin {context.key}")
        await asyncio.sleep(self._chance.random() * self._job.pace)
        note(self._job.log, f"effect {context.key} {result}")
        await asyncio.sleep(self._chance.random() * self._job.pace)
        return result


class Runtime(DurableRuntime):
    """The runtime of a worker, with a log of steps that are kept, and boundaries to die at."""

    def __init__(self, job: Job) -> None:
        tools = Tools(job)
        memory = SqliteMemory(job.sessions)
        super().__init__(
            job.url, name=job.name, limits=job.limits, lease=job.lease, tools=[tools.pay, tools.look], memory=memory
        )
        self._job = job

    async def _segment(self, steps: Steps, stored: Json) -> Json:
        return await super()._segment(Watched(steps, self._job), stored)

    async def _perform(self, attempt: Attempt, reference: Json) -> Json:
        pass_boundary(self._job)
        result = await super()._perform(attempt, reference)
        pass_boundary(self._job)
        return result


class Watched:
    """Steps at whose boundaries the process may die."""

    def __init__(self, steps: Steps, job: Job) -> None:
        self._steps, self._job = steps, job

    @property
    def execution(self) -> str:
        return self._steps.execution

    async def step(self, name: str, effect: Json, /) -> Json:
        pass_boundary(self._job)
        result = await self._steps.step(name, effect)
        note(self._job.log, f"unknown {name}" if result["value"] == UNKNOWN_TEXT else f"kept {name}")
        pass_boundary(self._job)
        return result

    async def begin(self, name: str, /) -> bool:
        pass_boundary(self._job)
        is_first = await self._steps.begin(name)
        note(self._job.log, f"kept {name}")
        pass_boundary(self._job)
        return is_first

    async def receive(self) -> list[str]:
        return await self._steps.receive()

    async def label(self, outcome: Outcome, /) -> None:
        pass_boundary(self._job)
        await self._steps.label(outcome)
        pass_boundary(self._job)


def pass_boundary(job: Job) -> None:
    """Die or stop, if this is the place for it."""
    global _boundaries
    _boundaries += 1
    if _boundaries == job.dies_at:
        os.kill(os.getpid(), signal.SIGKILL)
    if _boundaries == job.stops_at:
        os.kill(os.getpid(), signal.SIGSTOP)


_boundaries = 0


def note(log: Path, line: str) -> None:
    """Append a line in one write, which no death of the process can cut."""
    file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.write(file, f"{line}\n".encode())
    os.close(file)
