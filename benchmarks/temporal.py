"""What a step costs on Temporal, measured in the same activities written by hand: `python -m benchmarks.temporal`.

It writes `results/temporal.json`. `python -m benchmarks.temporal SIDE ADDRESS TURNS` runs so many turns, one after the
other, in a process of its own, which is worker and client. The server is the development server, in memory.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from benchmarks.cost import Cost
from benchmarks.durable import CALLS, ROUNDS, agent, answered, called, described, look
from benchmarks.run import table, write
from prompty import Message, ToolCall, assistant, prepare, tool_result
from prompty.durable.temporal import PromptyPlugin, turn
from tests.durable.temporal import TemporalServer

STEPS = 2 + ROUNDS * (1 + CALLS) + 1  # the start, the tools, answers with calls, calls, and the last answer
TURNS = 20
PROCESSES = 5
# A turn asks the server before each step whether the attempt still counts, which is most of the difference.
LIMITS = {"processor time": 1.5, "time": 1.2}


@activity.defn
async def begin() -> Any:
    return agent().model_dump(mode="json", by_alias=True, exclude_unset=True)


@activity.defn
async def describe() -> Any:
    return await described()


@activity.defn
async def answer(messages: list[dict[str, Any]]) -> Any:
    return await answered(agent(), [Message.from_json(message) for message in messages])


@activity.defn
async def call(function: dict[str, str]) -> str:
    return await called(function)


@workflow.defn(sandboxed=False)
class ByHand:
    """The loop that people write on Temporal, without what can go wrong in it."""

    @workflow.run
    async def run(self) -> str:
        await perform(begin)
        messages = prepare(agent())
        await perform(describe)
        while True:
            calls = await perform(answer, [message.to_json() for message in messages])
            if isinstance(calls, str):
                return calls
            messages.append(assistant(tool_calls=[ToolCall(id=id, **one) for id, one in calls]))
            results = await asyncio.gather(*(perform(call, one) for _, one in calls))
            messages += [tool_result(id, text) for (id, _), text in zip(calls, results, strict=True)]


@workflow.defn(sandboxed=False)
class Turn:
    @workflow.run
    async def run(self) -> Any:
        return await turn(agent())


async def perform(function: Callable[..., Any], *arguments: Any) -> Any:
    return await workflow.execute_activity(
        function,
        args=arguments,
        start_to_close_timeout=timedelta(hours=1),
        heartbeat_timeout=timedelta(seconds=10),
    )


def temporal_costs() -> list[Cost]:
    """A step, in processor time of the worker and in time. The least of several processes counts."""
    best: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as folder:
        server = TemporalServer(Path(folder))
        try:
            for _ in range(PROCESSES):
                for side in ("prompty", "temporal"):
                    for kind, seconds in measure(side, server.address).items():
                        sides = best.setdefault(kind, {})
                        sides[side] = min(seconds, sides.get(side, seconds))
        finally:
            server.close()
    return [
        Cost(
            name=f"step on Temporal, {kind}",
            figure=seconds["prompty"] / seconds["temporal"],
            unit="times bare Temporal",
            limit=LIMITS[kind],
            seconds=seconds,
        )
        for kind, seconds in best.items()
    ]


def measure(side: str, address: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.temporal", side, address, str(TURNS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=280)
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


async def run_turns(side: str, address: str, turns: int) -> None:
    """Print the seconds of a step. Two turns before have imported what they need."""
    plugins = [PromptyPlugin(tools=[look])] if side == "prompty" else []
    client, queue = await Client.connect(address, plugins=plugins), uuid4().hex
    known: Any = Turn if side == "prompty" else ByHand
    activities: list[Callable[..., Any]] = [begin, describe, answer, call]
    runner = UnsandboxedWorkflowRunner()
    async with Worker(client, task_queue=queue, workflows=[known], activities=activities, workflow_runner=runner):

        async def run(times: int) -> None:
            for _ in range(times):
                assert await client.execute_workflow(known.run, id=uuid4().hex, task_queue=queue) == "Done."

        await run(2)
        used, begun = time.process_time(), time.perf_counter()
        await run(turns)
        spent = {"processor time": time.process_time() - used, "time": time.perf_counter() - begun}
    print(json.dumps({kind: seconds / turns / STEPS for kind, seconds in spent.items()}), flush=True)
    os._exit(0)  # a thread of Temporal's SDK sometimes outlives the interpreter, which then aborts


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(run_turns(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    else:
        costs = temporal_costs()
        print(table(costs))
        write("temporal", costs)
