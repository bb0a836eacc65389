"""Four workers on one queue, killed and started again at random; one is lost for good."""

import random
import time
from pathlib import Path
from statistics import median

import pytest

from tests.durable.databases import Databases
from tests.durable.shop import Shop, kill, until
from tests.soak import SOAK, Keep

pytestmark = pytest.mark.process

SECONDS = 300 if SOAK else 30
LONGEST_RECOVERY = 10.0


@pytest.mark.parametrize("kind", ["postgres"])
def test_four_workers_finish_every_run_once(kind: str, databases: Databases, tmp_path: Path, keep: Keep) -> None:
    shop = Shop(databases.new(kind), tmp_path, pace=0.1)
    chance = random.Random(5)  # noqa: S311  not for secrets
    workers = {name: shop.worker(name) for name in ("w0", "w1", "w2", "w3")}
    end = time.monotonic() + SECONDS
    recoveries: list[float] = []
    number = 0
    while time.monotonic() < end:
        for _ in range(4):
            shop.start(f"run{number}")
            number += 1
        time.sleep(chance.random())
        victim = chance.choice(["w0", "w1"])
        kill(workers[victim])
        left, begun = shop.left_by(victim), time.monotonic()
        workers[victim] = shop.worker(victim)
        if left:
            until(lambda left=left: shop.have_gone_on(left))  # type: ignore[misc]  # a default binds it
            recoveries.append(time.monotonic() - begun)
        shop.answer_all()
    kill(workers.pop("w3"))
    shop.start("last")
    kill(workers.pop("w2"))
    shop.finish(within=240)
    shop.check()
    shop.close()
    keep(kills=number // 4 + 2, **shop.counts(), payments_asked_about=len(shop.asked), **spread(recoveries))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_run_goes_on_soon_after_its_worker_is_started_again(
    kind: str, databases: Databases, tmp_path: Path, keep: Keep
) -> None:
    """It is measured from the start of the process to the next step that is kept, with no other run under way."""
    shop = Shop(databases.new(kind), tmp_path, pace=0.1)
    recoveries: list[float] = []
    for number in range(20 if SOAK else 2):
        shop.start(f"run{number}")
        worker = shop.worker()
        line = f"kept run{number}/model:3"
        until(lambda line=line: line in shop.lines())  # type: ignore[misc]  # a default binds it
        kill(worker)
        left, begun = shop.left_by("worker"), time.monotonic()
        assert list(left) == [f"run{number}"]
        worker = shop.worker()
        until(lambda left=left: shop.have_gone_on(left))  # type: ignore[misc]  # a default binds it
        recoveries.append(time.monotonic() - begun)
        shop.finish()
        kill(worker)
    assert max(recoveries) < LONGEST_RECOVERY
    shop.check()
    shop.close()
    keep(**spread(recoveries))


def spread(recoveries: list[float]) -> dict[str, object]:
    seconds = {"median": median(recoveries), "longest": max(recoveries)}
    return {"recoveries": len(recoveries), "recovery_seconds": {name: round(one, 2) for name, one in seconds.items()}}
