"""What a durable turn costs in processor time, measured in the same steps written by hand on bare DBOS, on both of its
databases. `benchmarks.scaling` has what it writes.

`python -m benchmarks.durable SIDE URL TURNS` runs so many turns, one after the other, in a process of its own: DBOS is
one for each process. Both sides ask the same scripted model, run the same tools, and keep the same steps: what tools
there are, each answer, that a round of calls is meant, and each call.
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
from typing import Any

from dbos import DBOS, DBOSPortableJSONSerializer

from benchmarks.cost import Cost, take_turns
from prompty import Message, PromptAgent, ToolCall, assistant, prepare, run_async, tool_result
from prompty.durable import DurableRuntime
from tests.durable.databases import Postgres

ROUNDS, CALLS = 3, 4
TURNS = 20
LIMIT = 1.15
Turns = Callable[[int], list[float]]


def agent() -> PromptAgent:
    """An agent that asks for three rounds of four calls and then answers."""
    rounds = [[{"call": "look", "arguments": {"at": f"{n}/{at}"}} for at in range(CALLS)] for n in range(ROUNDS)]
    options = {"additionalProperties": {"script": [*rounds, "Done."]}}
    model = {"id": "m", "provider": "scripted", "options": options}
    return PromptAgent.model_validate({"model": model, "instructions": "system:\nBe brief.\nuser:\nLook around."})


async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


def prompty_turns(url: str) -> Iterator[Callable[[], object]]:
    """A durable turn, started and waited for."""
    with DurableRuntime(url, name="bench", tools=[look]) as runtime:
        prompt = agent()
        yield lambda: runtime.start(prompt).result()


def dbos_turns(url: str) -> Iterator[Callable[[], object]]:
    """The loop that people write on DBOS, without what can go wrong in it."""
    prompt, numbers = agent(), count()

    @DBOS.workflow(name="by_hand")
    async def by_hand(_: dict[str, Any]) -> str:
        messages = prepare(prompt)
        await kept("tools", described)
        for number in count():
            calls = await kept(f"model:{number}", lambda: answered(prompt, messages))
            if isinstance(calls, str):
                return calls
            await kept(f"intent:{number}", lambda: nonce(next(numbers)))
            messages.append(assistant(tool_calls=[ToolCall(id=id, **one) for id, one in calls]))
            steps = [kept(f"tool:{id}", lambda one=one: called(one)) for id, one in calls]  # type: ignore[misc]  # a default binds it
            for (id, _), text in zip(calls, await asyncio.gather(*steps), strict=True):
                messages.append(tool_result(id, text))
        raise AssertionError("unreachable")

    config: Any = {"name": "by-hand", "system_database_url": url, "application_version": "1", "executor_id": "bench"}
    config |= {"serializer": DBOSPortableJSONSerializer(), "log_level": "ERROR"}
    DBOS(config=config)
    DBOS.launch()
    yield lambda: DBOS.start_workflow(by_hand, {"agent": prompt.model_dump(mode="json")}).get_result()
    DBOS.destroy()


async def kept(name: str, body: Callable[[], Any]) -> Any:
    async def step() -> Any:
        return await body()

    return await DBOS.run_step_async({"name": name}, step)


async def described() -> Any:
    schema = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
    return [{"name": "look", "description": "Look at something.", "parameters": schema}]


async def answered(prompt: PromptAgent, messages: list[Message]) -> Any:
    """What the model says: words, or calls as JSON."""
    found = await run_async(prompt, messages)
    if isinstance(found, str):
        return found
    return [[call.id, {"name": call.name, "arguments": call.arguments}] for call in found if isinstance(call, ToolCall)]


async def nonce(number: int) -> Any:
    return {"nonce": f"{number:032}"}


async def called(function: dict[str, str]) -> str:
    return await look(**json.loads(function["arguments"]))


SIDES = {"prompty": contextmanager(prompty_turns), "dbos": contextmanager(dbos_turns)}


def durable_costs(rounds: int) -> list[Cost]:
    """A durable turn on either database."""
    return on_both_databases(lambda name, url: turn_cost(name, url, rounds))


def on_both_databases(measure: Callable[[str, str], Cost]) -> list[Cost]:
    """A cost by the name and the URL of a database: a file, and a server that waits for its disk."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "runs.db"
        with closing(sqlite3.connect(file)) as connection:  # as prompty makes it, for both
            connection.execute("PRAGMA journal_mode = WAL")
        costs = [measure("SQLite", f"sqlite:///{file}")]
    server = Postgres(fsync=True)
    server.start()
    try:
        return [*costs, measure("PostgreSQL", server.database())]
    finally:
        server.remove()


def turn_cost(name: str, url: str, rounds: int) -> Cost:
    """The median of all rounds: a side takes seconds, and the machine is not as fast in all of them."""
    sides = {side: lambda side=side: fresh(side, url) for side in SIDES}
    times = take_turns(3 * rounds, sides)
    figure = median(time["prompty"] / time["dbos"] for time in times)
    seconds = {side: median(time[side] for time in times) for side in SIDES}
    return Cost(name=f"durable turn, {name}", figure=figure, unit="times bare DBOS", limit=LIMIT, seconds=seconds)


def fresh(side: str, url: str) -> float:
    """The processor seconds of a turn, in a process of its own."""
    command = [sys.executable, "-m", __name__, side, url, str(TURNS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=280)
    return float(done.stdout)


def main(side: str, url: str, turns: int) -> None:
    """Print the processor seconds of a turn, with all threads. Two before have imported what they need."""
    with SIDES[side](url) as turn:
        for _ in range(2):
            assert turn() == "Done."
        begun = time.process_time()
        for _ in range(turns):
            assert turn() == "Done."
        print((time.process_time() - begun) / turns)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
