"""A DBOS program with turns in its workflows is killed and suspended anywhere, and every result is right.

100 processes are killed and 20 are stopped with PROMPTY_SOAK=1, a tenth of them otherwise. DBOS goes on with their
workflows in the next process; one that is woken up after that begins nothing.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from tests.durable.databases import Databases
from tests.durable.own_program import Orders, end, orders
from tests.durable.stopping import stop
from tests.soak import SOAK, Keep
from tests.tools.test_mcp_http import OwnServer

pytestmark = [pytest.mark.process, pytest.mark.timing, pytest.mark.nightly]

KILLS, STOPS = (100, 20) if SOAK else (10, 2)


@pytest.fixture(scope="module")
def mcp() -> Iterator[str]:
    server = OwnServer()
    server.start()
    yield server.url
    server.stop()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_workflows_with_turns_survive_kills_and_stops(
    kind: str, databases: Databases, tmp_path: Path, mcp: str, keep: Keep
) -> None:
    begun, chance = time.monotonic(), random.Random(7)  # noqa: S311  not for secrets
    events = ["kill"] * KILLS + ["stop"] * STOPS
    chance.shuffle(events)
    with orders(databases.new(kind), tmp_path, mcp, pace=0.3) as shop:
        process = shop.launch()
        for event in events:
            for _ in range(2):
                shop.order()
            shop.wait_for_progress(chance.randrange(60))  # by the log: how fast that is depends on the machine
            process = replace_killed(shop, process) if event == "kill" else replace_stopped(shop, process)
            shop.answer_all()
        shop.finish()
        keep(
            kills=KILLS,
            stops=STOPS,
            **shop.check(),
            calls_asked_about=shop.asked,
            seconds=round(time.monotonic() - begun),
        )
        assert shop.asked > 0


def replace_killed(shop: Orders, process: ForkServerProcess) -> ForkServerProcess:
    end(process)
    return shop.launch()


def replace_stopped(shop: Orders, process: ForkServerProcess) -> ForkServerProcess:
    """Stop a process, let another one go on with its workflows, and wake it up. Both are killed: DBOS looks for what a
    process has left when the next one is launched."""
    stop(process, shop.job.url)
    following = shop.launch()
    time.sleep(3)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)
    time.sleep(1.5)
    end(process)
    end(following)
    return shop.launch()
