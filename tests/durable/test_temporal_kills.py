"""Workers on Temporal are killed anywhere and stopped past their lease: what was paid was paid once.

The runs are those of `test_kills`. Steps are performed by any worker, so a run loses the process that decides, the one
that acts, or both. Full size with PROMPTY_SOAK=1, a tenth of it otherwise.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durable.shop import Shop, is_stopped, kill, stop, until
from tests.durable.temporal import TemporalServer
from tests.soak import SOAK, Keep

pytestmark = [pytest.mark.process, pytest.mark.nightly]

KILLS = 100 if SOAK else 10
WORKERS = 2


@pytest.fixture
def shop(temporal: TemporalServer, tmp_path: Path) -> Iterator[Shop]:
    found = Shop(temporal.namespace(), tmp_path)
    yield found
    found.close()


def test_workers_on_temporal_are_killed_at_random_moments(shop: Shop, keep: Keep) -> None:
    begun = time.monotonic()
    chance = random.Random(11)  # noqa: S311  not for secrets
    shop.pace = 0.05
    workers = [shop.worker(f"worker{number}") for number in range(WORKERS)]
    for moment in range(KILLS):
        shop.start(f"run{moment}", remembered=False)
        time.sleep(chance.random() * 1.5)
        killed = chance.randrange(WORKERS)
        kill(workers[killed])
        workers[killed] = shop.worker(f"worker{killed}")
        shop.answer_all()
    shop.finish(within=600)
    for worker in workers:
        kill(worker)
    shop.check()
    assert shop.asked or not SOAK, "no payment was ever interrupted, so this has shown nothing"
    keep(kills=KILLS, payments_asked_about=len(shop.asked), seconds=round(time.monotonic() - begun), **shop.counts())


@pytest.mark.parametrize("moment", range(10 if SOAK else 2))
def test_a_worker_on_temporal_that_wakes_up_after_its_lease_begins_nothing(shop: Shop, moment: int) -> None:
    shop.pace = 0.3
    stopped = shop.worker("first")
    for number in range(3):
        shop.start(f"run{number}", remembered=False)
    until(lambda: any(line.startswith("begin ") for line in shop.lines()))
    time.sleep(random.Random(moment).random() * 0.8)  # noqa: S311  not for secrets
    stop(stopped, shop.url)
    assert is_stopped(stopped)
    other = shop.worker("other")
    until(shop.have_settled)
    begun = sum(line.startswith("begin ") for line in shop.lines())
    assert stopped.pid is not None
    os.kill(stopped.pid, signal.SIGCONT)
    time.sleep(2)
    assert sum(line.startswith("begin ") for line in shop.lines()) == begun
    kill(stopped)
    shop.finish()
    kill(other)
    shop.check()
