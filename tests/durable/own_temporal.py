"""Workflows of a program that has turns in them, and the model that these turns ask, over TLS."""

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from prompty.durable.temporal import PromptyPlugin, turn

with workflow.unsafe.imports_passed_through():
    from prompty import Paused, PromptAgent, tool
    from prompty.mcp import register_mcp_server
    from prompty.model.request import WireRequest
    from prompty.testing.encoding import WIRES
    from prompty.testing.provider import parse_file_script
    from prompty.testing.script import respond
    from tests.durable.own_program import note as write_line
    from tests.durable.temporal import TemporalServer
    from tests.internet import Arrival, Internet, Response

LEASE = 2.0
Script = list[Any]


@activity.defn
async def note(text: str) -> str:
    """An activity that has nothing to do with turns."""
    return f"noted {text}"


@workflow.defn
class Turns:
    """Runs turns as they are described, one after the other, and notes each."""

    @workflow.run
    async def run(self, turns: list[dict[str, Any]]) -> list[Any]:
        results: list[Any] = []
        for wanted in turns:
            options = {name: value for name, value in wanted.items() if name not in ("source", "inputs")}
            for name in ("deadline", "pause_timeout"):
                if name in options:
                    options[name] = timedelta(seconds=options[name])
            source = wanted["source"]
            if isinstance(source, dict):
                source = PromptAgent.model_validate(source)
            result = await turn(source, wanted.get("inputs"), **options)
            if isinstance(result, Paused):
                again = {name: value for name, value in options.items() if name != "on_pause"}
                verdicts = [True] * len(result.pending)
                result = await turn(source, wanted.get("inputs"), paused=result, verdicts=verdicts, **again)
            results.append(result)
            minute = timedelta(minutes=1)
            results.append(await workflow.execute_activity(note, str(result)[:20], start_to_close_timeout=minute))
        return results


@workflow.defn
class Together:
    """Runs turns at the same time."""

    @workflow.run
    async def run(self, turns: list[dict[str, Any]]) -> list[Any]:
        return list(await asyncio.gather(*(turn(one.pop("source"), one.pop("inputs"), **one) for one in turns)))


@workflow.defn
class UntilPaid:
    """Ends a turn after two rounds."""

    @workflow.run
    async def run(self, source: str) -> Any:
        return await turn(source, stop=lambda progress: progress.rounds == 2)


@workflow.defn
class Order:
    """Two turns, each after an activity of the program."""

    @workflow.run
    async def run(self, ticket: str, file: str) -> list[str]:
        results: list[str] = []
        for name in (f"{ticket}-a", f"{ticket}-b"):
            await workflow.execute_activity(note, name, start_to_close_timeout=timedelta(minutes=1))
            results.append(await turn(file, {"q": name}))
        return results


class Model:
    """A model behind TLS that answers by scripts: the first whose words are in a request answers it."""

    def __init__(self, folder: Path) -> None:
        self.scripts: dict[str, Script] = {}
        self.failures: list[int] = []  # statuses to fail with before the next answers
        self.internet = Internet(folder, ["api.openai.com"], self._answer)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(arrival.body) for arrival in self.internet.arrivals]

    def _answer(self, arrival: Arrival) -> Response:
        if self.failures:
            return Response(self.failures.pop(0), {"Content-Type": "application/json"}, b"{}")
        text = arrival.body.decode()
        script = next(script for words, script in self.scripts.items() if words in text)
        path = next(path for path in WIRES if arrival.path.endswith(path))
        request = WireRequest(path=path, body=json.loads(text), headers={})
        answer = b"".join(respond(parse_file_script(script), request))
        return Response(200, {"Content-Type": "application/json"}, answer)


def write_prompt(folder: Path, name: str, text: str = "{{q}}", frontmatter: str = "") -> str:
    """Write a file that asks the model behind TLS, and return its path."""
    head = f"---\nname: {name}\nmodel: {{provider: openai, id: gpt-4o}}\ninputs: {{q: {{kind: string, default: Hi}}}}\n"
    path = folder / f"{name}.prompty"
    path.write_text(f"{head}{frontmatter}---\nsystem:\nBe brief.\nuser:\n{text}\n")
    return str(path)


@asynccontextmanager
async def working(
    server: TemporalServer,
    queue: str,
    *,
    workflows: Sequence[type] = (Turns,),
    activities: Sequence[Callable[..., Any]] = (),
    lease: float = LEASE,
    options: dict[str, Any] | None = None,
    connection: dict[str, Any] | None = None,
    **parts: Any,
) -> AsyncIterator[Client]:
    """A worker with turns, which is shut down at the end."""
    client = await server.connect(plugins=[PromptyPlugin(lease=lease, **parts)], **(connection or {}))
    own = [note, *activities]
    worker = Worker(client, task_queue=queue, workflows=workflows, activities=own, **(options or {}))
    async with worker:
        yield client


def new_id() -> str:
    return uuid4().hex[:12]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a worker in a process of its own is told."""

    address: str
    queue: str
    log: Path
    mcp: str | None = None
    pace: float = 0.0
    environment: dict[str, str] = field(default_factory=dict)


def work(job: Job) -> None:
    """Work until killed, or until SIGTERM."""
    os.environ.update(job.environment)
    if job.mcp is not None:
        register_mcp_server("own", url=job.mcp)
    asyncio.run(serve(job))


async def serve(job: Job) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    client = await Client.connect(job.address, plugins=[PromptyPlugin(lease=LEASE, tools=build_tools(job))])
    async with Worker(client, task_queue=job.queue, workflows=[Order], activities=[note]):
        write_line(job.log, f"open {os.getpid()}")
        await stopped.wait()


def build_tools(job: Job) -> list[Any]:
    """Two tools that take their time before and after what they do, and write it to the log."""
    chance = random.Random(os.getpid())  # noqa: S311  not for secrets

    async def do(key: str, result: str) -> str:
        write_line(job.log, f"process {os.getpid()}\nbegin {key}")
        await asyncio.sleep(chance.random() * job.pace)
        write_line(job.log, f"effect {key}")
        await asyncio.sleep(chance.random() * job.pace)
        return result

    @tool
    async def pay(at: str) -> str:
        """Pay for something, which must happen once."""
        return await do(at, f"paid {at}")

    @tool(idempotent=True)
    async def look(at: str) -> str:
        """Look at something, as often as one likes."""
        return await do(at, f"seen {at}")

    return [pay, look]


if __name__ == "__main__":
    work(Job(address=sys.argv[1], queue=sys.argv[2], log=Path(sys.argv[3])))
