"""Four named workers on one queue, killed and started again at random; one is lost for good and adopted."""

import os
import random
import time
from pathlib import Path

import pytest

from tests.durable.databases import Databases
from tests.durable.shop import Shop, kill, until

SECONDS = 300 if os.environ.get("PROMPTY_SOAK") else 30
LONGEST_RECOVERY = 10.0


@pytest.mark.parametrize("kind", ["postgres"])
def test_four_workers_finish_every_run_once(kind: str, databases: Databases, tmp_path: Path) -> None:
    shop = Shop(databases.new(kind), tmp_path, pace=0.1)
    chance = random.Random(5)  # noqa: S311  not for secrets
    workers = {name: shop.worker(name) for name in ("w0", "w1", "w2", "w3")}
    end = time.monotonic() + SECONDS
    number = 0
    while time.monotonic() < end:
        for _ in range(4):
            shop.start(f"run{number}")
            number += 1
        time.sleep(chance.random())
        victim = chance.choice(["w0", "w1"])
        kill(workers[victim])
        workers[victim] = shop.worker(victim)
        shop.answer_all()
    kill(workers.pop("w3"))
    shop.start("last")
    kill(workers["w2"])
    workers["w2"] = shop.worker("w2", adopts="w3")
    shop.finish(within=240)
    shop.check()
    shop.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_run_goes_on_soon_after_its_worker_is_started_again(kind: str, databases: Databases, tmp_path: Path) -> None:
    shop = Shop(databases.new(kind), tmp_path, pace=0.3)
    shop.start("run")
    worker = shop.worker()
    until(lambda: "kept model:3" in shop.lines())
    kill(worker)
    lines = len(shop.lines())
    begun = time.monotonic()
    shop.worker()
    until(lambda: len(shop.lines()) > lines + 1)
    assert time.monotonic() - begun < LONGEST_RECOVERY
    shop.finish()
    shop.check()
    shop.close()
