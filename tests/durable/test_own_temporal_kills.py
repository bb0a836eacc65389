"""Workers of Temporal with turns in their workflows are killed and suspended anywhere, and every result is right.

100 processes are killed and 20 are stopped with PROMPTY_SOAK=1, a tenth of them otherwise. The server gives their
activities and workflows to others; one that is woken up after that begins nothing of what it lost.
"""

import asyncio
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from prompty import Paused
from prompty.durable import use_result
from prompty.durable.temporal import answer, find_pause
from tests.durable.own import until
from tests.durable.own_program import ROUNDS, TOOLS, end, reply_to
from tests.durable.own_temporal import LEASE, Job, Order, new_id, work, write_prompt
from tests.durable.stopping import is_stopped
from tests.durable.temporal import TemporalServer
from tests.internet import Internet
from tests.soak import SOAK, Keep
from tests.tools.test_mcp_http import OwnServer

pytestmark = [pytest.mark.process, pytest.mark.timing, pytest.mark.nightly]

KILLS, STOPS = (100, 20) if SOAK else (10, 2)
WORKERS = 2
SECONDS = 300.0
MCP = "tools: [{name: own, kind: mcp, serverName: own, allowedTools: [add]}]\n"
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.durable.own_temporal"])


class Orders:
    """The outside: orders as workflows, processes that work on them, and a person who answers by the log."""

    def __init__(self, client: Client, job: Job, file: str) -> None:
        self._client, self._job, self._file = client, job, file
        self.orders: dict[str, WorkflowHandle[Any, Any]] = {}
        self.open: set[str] = set()
        self.workers: list[ForkServerProcess] = []
        self.asked = 0

    def grow(self) -> None:
        """Have so many workers."""
        while len(self.workers) < WORKERS:
            process = PROCESSES.Process(target=work, args=(self._job,))
            process.start()
            self.workers.append(process)

    async def order(self) -> None:
        ticket = f"T{len(self.orders)}"
        self.orders[ticket] = await self._client.start_workflow(
            Order.run, args=[ticket, self._file], id=f"{self._job.queue}-{ticket}", task_queue=self._job.queue
        )
        self.open.add(ticket)

    def lines(self) -> list[str]:
        return self._job.log.read_text().splitlines()

    async def find_pauses(self) -> dict[str, Paused]:
        """Return the pauses of open orders, and forget those that are done."""
        found: dict[str, Paused] = {}
        for ticket in sorted(self.open):
            handle = self.orders[ticket]
            if (await handle.describe()).close_time is not None:
                self.open.discard(ticket)
                continue
            try:
                paused = await asyncio.wait_for(find_pause(handle), 3)
            except (TimeoutError, RPCError):  # no worker has answered
                continue
            if paused is not None:
                found[ticket] = paused
        return found

    async def answer_all(self) -> None:
        for ticket, paused in (await self.find_pauses()).items():
            await answer(self.orders[ticket], self._decide(paused), paused=paused)

    def _decide(self, paused: Paused) -> list[object]:
        done = {line.partition(" ")[2] for line in self.lines() if line.startswith("effect ")}
        for call in paused.pending:
            assert (call.unknown, call.name in ("pay", "add")) == (True, True)
        self.asked += len(paused.pending)
        keys = [str(call.arguments.get("at")) for call in paused.pending]
        return [use_result(f"paid {key}") if key in done else True for key in keys]

    async def kill_one(self, chance: random.Random) -> None:
        end(self.workers.pop(chance.randrange(len(self.workers))))

    async def stop_one(self, chance: random.Random) -> None:
        """Stop a worker past its lease, until every order is done or waits for a person, and wake it up: whatever it
        began then would be a call that it lost."""
        process = chance.choice(self.workers)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: is_stopped(process))
        await asyncio.sleep(2 * LEASE)
        finish = time.monotonic() + SECONDS
        while (await self.find_pauses()).keys() != self.open:
            assert time.monotonic() < finish, f"{self.open} have not gone on"
            await asyncio.sleep(0.2)
        before = self.lines().count(f"process {process.pid}")
        os.kill(process.pid, signal.SIGCONT)
        await asyncio.sleep(1.5)
        assert self.lines().count(f"process {process.pid}") == before

    async def finish(self) -> None:
        finish = time.monotonic() + SECONDS
        while self.open:
            assert time.monotonic() < finish, f"{self.open} are not done"
            await self.answer_all()
            await asyncio.sleep(0.2)

    async def check(self) -> dict[str, int]:
        """Check every result, that no payment was made twice, and that no call began again whose result was stored: the
        calls of an answer are begun after it was stored, and the next request has their results."""
        for ticket, handle in self.orders.items():
            assert await handle.result() == [f"Done with {ticket}-{turn}." for turn in "ab"]
        lines = self.lines()
        paid = [line for line in lines if line.startswith("effect ") and TOOLS[int(line[-1])] == "pay"]
        assert len(paid) == len(set(paid)) == len(self.orders) * 2 * ROUNDS * TOOLS.count("pay")
        begun: set[str] = set()
        asked: set[str] = set()
        for line in lines:
            kind, _, rest = line.partition(" ")
            if kind == "model":
                assert rest not in begun, f"{line} after its answer was stored"
                asked.add(rest)
            elif kind == "begin":
                name, n, _ = rest.rsplit("/", 2)
                assert f"{name}/{int(n) + 1}" not in asked, f"{line} after its result was stored"
                begun.add(f"{name}/{n}")
        kinds = [line.partition(" ")[0] for line in lines]
        counts = {"workflows": len(self.orders), "model_requests": kinds.count("model"), "payments": len(paid)}
        return {**counts, "calls_begun": kinds.count("begin"), "calls_asked_about": self.asked}

    def close(self) -> None:
        for process in self.workers:
            end(process)


@pytest.fixture
def job(temporal: TemporalServer, tmp_path: Path) -> Iterator[Job]:
    log, server = tmp_path / "log", OwnServer()
    log.touch()
    server.start()
    with Internet(tmp_path, ["api.openai.com"], reply_to(log)) as internet:
        environment = {"OPENAI_API_KEY": "sk-of-a-test"}
        internet.use(environment.__setitem__)
        yield Job(address=temporal.address, queue=new_id(), log=log, mcp=server.url, pace=0.3, environment=environment)
    server.stop()


def test_workflows_with_turns_survive_kills_and_stops_of_their_workers(
    temporal: TemporalServer, job: Job, tmp_path: Path, keep: Keep
) -> None:
    asyncio.run(disturb(temporal, job, write_prompt(tmp_path, "order", frontmatter=MCP), keep))


async def disturb(temporal: TemporalServer, job: Job, file: str, keep: Keep) -> None:
    begun, chance = time.monotonic(), random.Random(13)  # noqa: S311  not for secrets
    events = ["kill"] * KILLS + ["stop"] * STOPS
    chance.shuffle(events)
    orders = Orders(await temporal.connect(), job, file)
    try:
        for event in events:
            orders.grow()
            for _ in range(2):
                await orders.order()
            until(lambda: has_begun(orders), SECONDS)
            await asyncio.sleep(chance.random() * 2)
            await (orders.kill_one(chance) if event == "kill" else orders.stop_one(chance))
            await orders.answer_all()
        orders.grow()
        await orders.finish()
        counts = await orders.check()
        keep(kills=KILLS, stops=STOPS, lease=LEASE, **counts, seconds=round(time.monotonic() - begun))
        assert orders.asked > 0
    finally:
        orders.close()


def has_begun(orders: Orders) -> bool:
    """Whether the last order is under way, so that there is something to disturb."""
    return any(line.startswith(f"model {list(orders.orders)[-1]}-") for line in orders.lines())
