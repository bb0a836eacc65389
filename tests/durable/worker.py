"""A process that works on durable runs and can be killed anywhere, with an outside log of what it does.

Lines of the log are appended in one write each: `process PID` and `begin KEY`, `effect KEY RESULT`, and `kept STEP`
once a step has left its result, or `unknown STEP`. `look` may be repeated; `pay` must not.
"""

import asyncio
import faulthandler
import logging
import os
import random
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prompty import ToolContext, tool
from prompty.durable import Limits, Worker, dbos, runs
from prompty.durable.codec import UNKNOWN
from prompty.durable.database import RowState, RunTable
from prompty.durable.dbos import DbosSteps
from prompty.durable.envelope import seal
from prompty.durable.performer import Performer
from prompty.durable.steps import Wanted
from prompty.loop.effects import CallModel
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
    step, in it before or after what it does, or after it, and before and after the row of the run is changed."""

    url: str
    name: str
    log: Path
    sessions: Path
    pace: float = 0.01
    dies_at: int | None = None
    stops_at: int | None = None
    lease: float = LEASE
    limits: Limits | None = None


def work(job: Job) -> None:
    """Work until killed."""
    sys.stderr = job.log.with_name("stderr").open("a")  # it is open as long as the process, which is killed
    faulthandler.register(signal.SIGUSR1, sys.stderr)
    line = f"%(created).3f {job.name} %(message)s"
    logging.basicConfig(stream=sys.stderr, format=line)
    logging.getLogger("prompty").setLevel(logging.INFO)
    tools = Tools(job)
    watch(job)
    worker = Worker(
        job.url,
        name=job.name,
        limits=job.limits,
        lease=job.lease,
        tools=[tools.pay, tools.look],
        memory=SqliteMemory(job.sessions),
    )
    worker.open()
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


def watch(job: Job) -> None:
    """Let this process note the steps that are kept, and die at their boundaries."""

    class WatchedPerformer(Performer):
        async def perform(self, name: str, wanted: Wanted, *, once: bool = False, interrupted: bool = False) -> Json:
            pass_boundary(job)
            result = await super().perform(name, wanted, once=once, interrupted=interrupted)
            pass_boundary(job)
            return result

    class WatchedSteps(DbosSteps):
        def __init__(self, performer: Performer, *arguments: Any, **options: Any) -> None:
            super().__init__(performer, *arguments, **options)
            self._run_id = performer.run_id

        async def keep(self, name: str, wanted: Wanted, /, *, once: bool = False, interrupted: bool = False) -> Json:
            pass_boundary(job)
            result = await super().keep(name, wanted, once=once, interrupted=interrupted)
            label = name if name.startswith("tool:") else f"{self._run_id}/{name_effect(name, wanted)}"
            note(job.log, f"unknown {label}" if result["value"] == UNKNOWN_TEXT else f"kept {label}")
            pass_boundary(job)
            return result

        async def begin(self, name: str, /) -> bool:
            pass_boundary(job)
            is_first = await super().begin(name)
            note(job.log, f"kept {name}")
            pass_boundary(job)
            return is_first

    class WatchedTable(RunTable):
        def change(self, id: str, state: RowState, **options: Any) -> bool:
            pass_boundary(job)
            is_changed = super().change(id, state, **options)
            pass_boundary(job)
            return is_changed

    vars(dbos).update(Performer=WatchedPerformer, DbosSteps=WatchedSteps)
    vars(runs).update(RunTable=WatchedTable)


def name_effect(name: str, wanted: Wanted) -> str:
    """Return the name of a step. Model calls are numbered by what was said before, as a server sees them."""
    if not isinstance(wanted, CallModel):
        return name
    messages: Any = wanted.request.body["messages"]
    return f"model:{1 + sum(message['role'] == 'assistant' for message in messages)}"


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
