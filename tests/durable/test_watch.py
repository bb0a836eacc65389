"""What turns cost their database while they wait: 100 in slow tools and 1,000 for a person with PROMPTY_SOAK=1, a fifth
of them otherwise. The same process is measured before, when it is idle."""

import asyncio
from typing import Any

import psycopg
import pytest
from dbos import DBOS

from prompty import tool
from prompty.durable.dbos import answer, find_pause, turn
from tests.durable.databases import Databases
from tests.durable.runs import rounds, scripted
from tests.soak import SOAK, Keep

pytestmark = [pytest.mark.process, pytest.mark.nightly]

IN_TOOLS, WAITING = (100, 1000) if SOAK else (20, 200)
MEASURED_SECONDS = 70 if SOAK else 10  # DBOS's own `recv` would look once a minute
SETTLE_SECONDS = 3
MOST_IN_TOOLS, MOST_WAITING = 10.0, 2.0
release: list[bool] = []


@tool
async def wait(at: str) -> str:
    """Wait for a long time."""
    while not release:
        await asyncio.sleep(0.5)
    return at


async def take_turn(is_waiting: bool) -> Any:
    agent = scripted(rounds("wait", 1, 1))
    return await turn(agent, tools=[wait], approval="always" if is_waiting else None)


def test_turns_that_wait_cost_next_to_nothing(databases: Databases, keep: Keep) -> None:
    asyncio.run(measure(databases.postgres(), keep))


async def measure(url: str, keep: Keep) -> None:
    release.clear()
    workflow = DBOS.workflow(name="take_turn")(take_turn)
    config: Any = {"name": "own", "system_database_url": url, "application_version": "1", "log_level": "CRITICAL"}
    DBOS(config=config)
    DBOS.launch()
    try:
        idle = await measure_rate(url)
        in_tools = [await DBOS.start_workflow_async(workflow, False) for _ in range(IN_TOOLS)]
        while (await count_steps("intent:")) < IN_TOOLS:
            await asyncio.sleep(0.5)
        in_tools_rate = await measure_rate(url)
        release.append(True)
        assert {await one.get_result() for one in in_tools} == {"Done."}
        waiting = [await DBOS.start_workflow_async(workflow, True) for _ in range(WAITING)]
        while await asyncio.to_thread(find_pause, DBOS, waiting[-1].workflow_id) is None:
            await asyncio.sleep(0.5)
        waiting_rate = await measure_rate(url)
        for one in waiting:
            await asyncio.to_thread(answer, DBOS, one.workflow_id, [True])
        assert {await one.get_result() for one in waiting} == {"Done."}
    finally:
        await asyncio.to_thread(DBOS.destroy, destroy_registry=True)
    keep(
        turns={"in_tools": IN_TOOLS, "waiting": WAITING},
        transactions_per_second={
            "idle": round(idle, 1),
            "in_tools_net": round(in_tools_rate - idle, 1),
            "waiting_net": round(waiting_rate - idle, 1),
        },
    )
    assert in_tools_rate - idle < MOST_IN_TOOLS
    assert waiting_rate - idle < MOST_WAITING


async def count_steps(prefix: str) -> int:
    found = await DBOS.list_workflows_async(status="PENDING", load_input=False, load_output=False)
    names = [step["function_name"] for one in found for step in await DBOS.list_workflow_steps_async(one.workflow_id)]
    return sum(name.startswith(prefix) for name in names)


async def measure_rate(url: str) -> float:
    await asyncio.sleep(SETTLE_SECONDS)
    before = await asyncio.to_thread(count_transactions, url)
    await asyncio.sleep(MEASURED_SECONDS)
    return (await asyncio.to_thread(count_transactions, url) - before) / MEASURED_SECONDS


def count_transactions(url: str) -> int:
    """Return how many transactions a database has ended. It is asked through another one."""
    server, _, name = url.rpartition("/")
    with psycopg.connect(f"{server}/postgres") as connection:
        query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"
        [ended] = connection.execute(query, (name,)).fetchone() or [0]
        return int(ended)
