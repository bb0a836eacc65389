"""Processor time of a durable turn (3 rounds × 4 calls), compared with loops written by hand on DBOS, on both of its
databases.

`python -m benchmarks.durable` writes `results/durable.json`. `python -m benchmarks.durable SIDE URL TURNS` runs that
many turns in a process of its own, because DBOS exists once in a process. All sides ask the same
scripted model and run the same tools:

- `bare`: a workflow with the same 21 steps as `turn`: its start, the tools, 4 answers, 3 intents and 12 calls.
- `plain`: a workflow with only the 16 steps that you would write by hand: 4 answers and 12 calls.
- `turn`: `prompty.durable.dbos.turn` in a workflow.
"""

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from dbos import DBOS, DBOSPortableJSONSerializer

from benchmarks.cost import Cost, take_turns
from prompty import Message, PromptAgent, ToolCall, assistant, prepare, tool_result
from prompty.durable.dbos import turn
from prompty.pipeline import run_async
from tests.durable.databases import Postgres

ROUNDS, CALLS = 3, 4
TURNS = 20
SAME, NECESSARY = "times bare DBOS", "times 16 steps by hand"
COMPARED = (
    ("turn in your DBOS workflow", "turn", "bare", SAME, 1.2),
    ("turn in your DBOS workflow", "turn", "plain", NECESSARY, 1.6),
)
T = TypeVar("T")
Run = Callable[[int], list[object]]


def agent() -> PromptAgent:
    """Return an agent that asks for three rounds of four calls and then answers."""
    rounds = [[{"call": "look", "arguments": {"at": f"{n}/{at}"}} for at in range(CALLS)] for n in range(ROUNDS)]
    model = {"id": "m", "provider": "scripted", "script": [*rounds, "Done."]}
    return PromptAgent.model_validate({"model": model, "instructions": "system:\nBe brief.\nuser:\nLook around."})


async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


def run_turns(url: str) -> Iterator[Run]:
    """Turns inside a workflow."""
    prompt = agent()

    @DBOS.workflow(name="own")
    async def own() -> Any:
        return await turn(prompt, tools=[look])

    with launch(url):
        yield lambda turns: [DBOS.start_workflow(own).get_result() for _ in range(turns)]


def run_bare(url: str) -> Iterator[Run]:
    """The same steps, without what a turn does between them."""
    by_hand = write_loop(agent(), is_plain=False)
    with launch(url):
        yield lambda turns: [DBOS.start_workflow(by_hand, {}).get_result() for _ in range(turns)]


def run_plain(url: str) -> Iterator[Run]:
    """A loop as people write it: its steps are the answers and the calls."""
    by_hand = write_loop(agent(), is_plain=True)
    with launch(url):
        yield lambda turns: [DBOS.start_workflow(by_hand, {}).get_result() for _ in range(turns)]


def write_loop(prompt: PromptAgent, *, is_plain: bool) -> Any:
    """Return a workflow with the loop that people write on DBOS, without what can go wrong in it."""
    numbers = count()

    @DBOS.workflow(name="by_hand")
    async def by_hand(_: dict[str, Any]) -> str:
        messages = prepare(prompt)
        if not is_plain:
            await kept("open", lambda: opened(prompt))
            await kept("tools", described)
        for number in count():
            calls = await kept(f"model:{number}", lambda: answered(prompt, messages))
            if isinstance(calls, str):
                return calls
            if not is_plain:
                await kept(f"intent:{number}", lambda: nonce(next(numbers)))
            messages.append(assistant(tool_calls=[ToolCall(id=id, **one) for id, one in calls]))
            steps = [kept(f"tool:{id}", lambda one=one: called(one)) for id, one in calls]  # type: ignore[misc]  # a default binds it
            for (id, _), text in zip(calls, await asyncio.gather(*steps), strict=True):
                messages.append(tool_result(id, text))
        raise AssertionError("unreachable")

    return by_hand


@contextmanager
def launch(url: str) -> Iterator[None]:
    """A DBOS application in this process."""
    config: Any = {"name": "by-hand", "system_database_url": url, "application_version": "1", "executor_id": "bench"}
    config |= {"serializer": DBOSPortableJSONSerializer(), "log_level": "ERROR"}
    DBOS(config=config)
    DBOS.launch()
    yield
    DBOS.destroy()


async def kept(name: str, body: Callable[[], Any]) -> Any:
    async def step() -> Any:
        return await body()

    return await DBOS.run_step_async({"name": name}, step)


async def opened(prompt: PromptAgent) -> Any:
    return {"agent": prompt.model_dump(mode="json"), "inputs": {}}


async def described() -> Any:
    schema = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
    return [{"name": "look", "description": "Look at something.", "parameters": schema}]


async def answered(prompt: PromptAgent, messages: list[Message]) -> Any:
    """Return the model's answer: text, or calls as JSON."""
    found = await run_async(prompt, messages)
    if isinstance(found, str):
        return found
    return [[call.id, {"name": call.name, "arguments": call.arguments}] for call in found if isinstance(call, ToolCall)]


async def nonce(number: int) -> Any:
    return {"nonce": f"{number:032}"}


async def called(function: dict[str, str]) -> str:
    return await look(**json.loads(function["arguments"]))


SIDES = {
    "bare": contextmanager(run_bare),
    "plain": contextmanager(run_plain),
    "turn": contextmanager(run_turns),
}


def durable_costs(rounds: int) -> list[Cost]:
    """A durable turn on either database."""
    return [cost for costs in on_both_databases(lambda name, url: turn_costs(name, url, rounds)) for cost in costs]


def on_both_databases(measure: Callable[[str, str], T]) -> list[T]:
    """Measure with the name and the URL of a database: a file, and a server that waits for its disk."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "runs.db"
        with closing(sqlite3.connect(file)) as connection:  # as prompty makes it, for all sides
            connection.execute("PRAGMA journal_mode = WAL")
        costs = [measure("SQLite", f"sqlite:///{file}")]
    server = Postgres(fsync=True)
    server.start()
    try:
        return [*costs, measure("PostgreSQL", server.database())]
    finally:
        server.remove()


def turn_costs(name: str, url: str, rounds: int) -> list[Cost]:
    """Return the median of the ratios of all rounds: a side takes seconds, and the machine is not as fast in all of
    them."""
    times = take_turns(3 * rounds, {side: lambda side=side: fresh(side, url) for side in SIDES})  # type: ignore[misc]  # a default binds it
    seconds = {side: median(time[side] for time in times) for side in SIDES}
    return [
        Cost(
            name=f"{title}, {name}",
            figure=median(time[side] / time[base] for time in times),
            unit=unit,
            limit=limit,
            seconds={one: seconds[one] for one in (side, base)},
        )
        for title, side, base, unit, limit in COMPARED
    ]


def fresh(side: str, url: str) -> float:
    """Return the processor seconds of a turn, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.durable", side, url, str(TURNS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=280)
    return float(done.stdout)


def main(side: str, url: str, turns: int) -> None:
    """Print the processor seconds of a turn, with all threads. Two before have imported what they need."""
    with SIDES[side](url) as run:
        assert run(2) == ["Done."] * 2
        begun = time.process_time()
        assert run(turns) == ["Done."] * turns
        print((time.process_time() - begun) / turns)


def measure(rounds: int) -> None:
    """Measure both databases, print the costs and keep them."""
    from benchmarks.run import table, write  # it imports this module

    costs = durable_costs(rounds)
    print(table(costs))
    write("durable", costs)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        measure(2)
