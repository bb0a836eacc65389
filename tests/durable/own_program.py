"""A DBOS program in a process of its own, to be killed anywhere, with an outside log of what it does.

Its workflow has two turns of three rounds of four calls, and two steps of the program. The model is on HTTP with TLS,
and one of the tools is an MCP server's. Lines of the log are appended in one write each: `model NAME/ROUND` when a
request arrives, `begin KEY` and `effect KEY` of a call, and `step NAME` of the program's steps.
"""

import asyncio
import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSClient

from prompty import Paused, tool
from prompty.durable import use_result
from prompty.durable.dbos import answer, find_pause, turn
from prompty.mcp import register_mcp_server
from tests.drivers.wires import KEY, Chat
from tests.durable.own import until
from tests.internet import Arrival, Internet, Response

ROUNDS, CALLS = 3, 4
AT_ONCE = 16  # every turn asks the MCP server for its tools, which must answer within 30 s on a busy machine as well
TOOLS = ("pay", "look", "add", "pay")
HOST, QUEUE, SECONDS = "models.test", "orders", 300.0
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.durable.own_program"])


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a program is told."""

    url: str
    log: Path
    pace: float
    mcp: str
    environment: dict[str, str]


def work(job: Job) -> None:
    """Run workflows until killed."""
    os.environ.update(job.environment)
    register_mcp_server("own", url=job.mcp)
    DBOS(
        config={
            "name": "own",
            "system_database_url": job.url,
            "application_version": "1",
            "notification_listener_polling_interval_sec": 0.1,
            "log_level": "CRITICAL",
        }
    )
    DBOS.workflow(name="order")(build_workflow(job))
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=AT_ONCE, polling_interval_sec=0.2)
    note(job.log, f"open {os.getpid()}")
    signal.pause()


def build_workflow(job: Job) -> Any:
    chance = random.Random(os.getpid())  # noqa: S311  not for secrets

    async def do(key: str, result: str) -> str:
        note(job.log, f"begin {key}")
        await asyncio.sleep(chance.random() * job.pace)
        note(job.log, f"effect {key}")
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

    async def step(name: str) -> None:
        note(job.log, f"step {name}")

    async def order(ticket: str) -> list[str]:
        declared = [{"name": "own", "kind": "mcp", "allowedTools": ["add"]}]
        agent = Chat().agent(f"https://{HOST}", instructions="user:\n{{q}}", inputs={"q": ""}, tools=declared)
        results: list[str] = []
        for name in (f"{ticket}-a", f"{ticket}-b"):
            await DBOS.run_step_async({"name": "mine"}, step, name)
            results.append(await turn(agent, {"q": name}, tools=[pay, look], secrets={"key": KEY}))
        return results

    return order


def reply_to(log: Path) -> Any:
    """Return the model: it asks for three rounds of calls, and then says that it is done."""

    def reply(arrival: Arrival) -> Response:
        messages = json.loads(arrival.body)["messages"]
        name = next(message["content"] for message in messages if message["role"] == "user")
        n = sum(message["role"] == "assistant" for message in messages)
        note(log, f"model {name}/{n}")
        calls = [_call(name, n, at) for at in range(CALLS)] if n < ROUNDS else None
        said = Chat().whole("", "tool_calls", tool_calls=calls) if calls else Chat().whole(f"Done with {name}.")
        return Response(200, {"Content-Type": "application/json"}, json.dumps(said).encode())

    return reply


def _call(name: str, n: int, at: int) -> dict[str, object]:
    arguments: dict[str, object] = {"a": n, "b": at} if TOOLS[at] == "add" else {"at": f"{name}/{n}/{at}"}
    function = {"name": TOOLS[at], "arguments": json.dumps(arguments)}
    return {"id": f"call_{n}_{at}", "type": "function", "function": function}


class Orders:
    """The outside: orders in a queue, processes that work on them, and a person who answers by the log."""

    def __init__(self, url: str, internet: Internet, log: Path, mcp: str, pace: float) -> None:
        environment: dict[str, str] = {}
        internet.use(environment.__setitem__)
        self.job = Job(url=url, log=log, pace=pace, mcp=mcp, environment=environment)
        self.client = DBOSClient(system_database_url=url)
        self.tickets: list[str] = []
        self.open: set[str] = set()
        self.asked = 0
        self._answered: set[tuple[str, int]] = set()
        self._processes: list[ForkServerProcess] = []

    def launch(self) -> ForkServerProcess:
        process = PROCESSES.Process(target=work, args=(self.job,))
        process.start()
        self._processes.append(process)
        until(lambda: f"open {process.pid}" in self.lines(), SECONDS)
        return process

    def order(self) -> None:
        ticket = f"T{len(self.tickets)}"
        self.tickets.append(ticket)
        self.open.add(ticket)
        options: Any = {
            "workflow_name": "order",
            "queue_name": QUEUE,
            "workflow_id": ticket,
            "app_version": "1",
        }
        self.client.enqueue(options, ticket)

    def lines(self) -> list[str]:
        return self.job.log.read_text().splitlines()

    def wait_for_progress(self, count: int) -> None:
        """Wait until so much more has happened, or nothing is left to do."""
        before = len(self.lines())

        def has_progressed() -> bool:
            self.answer_all()
            time.sleep(0.2)  # to ask about every order takes its time, too
            return len(self.lines()) >= before + count or not self.open

        until(has_progressed, SECONDS)

    def answer_all(self) -> None:
        """Answer what waits for a person, and forget the orders that are done. None fails."""
        failed = self.client.list_workflows(status="ERROR")
        assert not failed, f"{failed[0].workflow_id}: {failed[0].error}"
        self.open -= {one.workflow_id for one in self.client.list_workflows(status="SUCCESS")}
        for ticket in sorted(self.open):
            paused = find_pause(self.client, ticket)
            if paused is not None and (paused.run_id, paused.pauses) not in self._answered:
                self._answered.add((paused.run_id, paused.pauses))
                answer(self.client, ticket, self._decide(paused), paused=paused)

    def _decide(self, paused: Paused) -> list[object]:
        done = {line.partition(" ")[2] for line in self.lines() if line.startswith("effect ")}
        for call in paused.pending:
            assert (call.unknown, call.name in ("pay", "add")) == (True, True)
        self.asked += len(paused.pending)
        keys = [str(call.arguments.get("at")) for call in paused.pending]
        return [use_result(f"paid {key}") if key in done else True for key in keys]

    def finish(self) -> None:
        """Wait until every order is done, as long as something happens."""
        try:
            while self.open:
                self.wait_for_progress(1)
        except AssertionError as error:
            left = {ticket: self.client.list_workflow_steps(ticket)[-3:] for ticket in sorted(self.open)}
            states = {one.workflow_id: one.status for one in self.client.list_workflows(workflow_ids=list(self.open))}
            raise AssertionError(f"{states} are left after {left}") from error

    def check(self) -> dict[str, int]:
        """Check every result, that no payment was made twice, and that no model call was made again whose calls had
        begun. Return how much there was."""
        for ticket in self.tickets:
            handle: Any = self.client.retrieve_workflow(ticket)
            assert handle.get_result() == [f"Done with {ticket}-{turn}." for turn in "ab"]
        lines = self.lines()
        paid = [line for line in lines if line.startswith("effect ") and TOOLS[int(line[-1])] == "pay"]
        assert len(paid) == len(set(paid)) == len(self.tickets) * 2 * ROUNDS * 2
        begun: set[str] = set()
        for line in lines:
            kind, _, rest = line.partition(" ")
            if kind == "begin":
                begun.add(rest.rpartition("/")[0])
            assert kind != "model" or rest not in begun, f"{line} after its answer was stored"
        kinds = [line.partition(" ")[0] for line in lines]
        return {"workflows": len(self.tickets), "model_requests": kinds.count("model"), "payments": len(paid)}

    def close(self) -> None:
        for process in self._processes:
            end(process)
        self.client.destroy()


@contextmanager
def orders(url: str, folder: Path, mcp: str, pace: float = 0.0) -> Iterator[Orders]:
    """Orders whose model is on an internet of our own."""
    log = folder / "log"
    log.touch()
    with Internet(folder, [HOST], reply_to(log)) as internet:
        found = Orders(url, internet, log, mcp, pace)
        try:
            yield found
        finally:
            found.close()


def end(process: ForkServerProcess) -> None:
    if process.is_alive() and process.pid is not None:
        os.kill(process.pid, signal.SIGKILL)
        process.join(SECONDS)


def note(log: Path, line: str) -> None:
    """Append a line in one write, which no death of the process can cut."""
    file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.write(file, f"{line}\n".encode())
    os.close(file)
