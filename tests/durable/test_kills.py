"""Workers are killed anywhere and stopped past a takeover, and the database goes away: what was paid was paid once.

A turn is three rounds of four calls; half of them must not happen twice. What was unfinished when a worker died is
asked about, and the one who answers looks at the outside log. Full size with PROMPTY_SOAK=1, a tenth of it otherwise.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durable.databases import Databases
from tests.durable.shop import Shop, kill, until
from tests.durable.stopping import is_stopped, stop
from tests.soak import SOAK, Keep

pytestmark = [pytest.mark.process, pytest.mark.nightly]

MOMENTS = 500 if SOAK else 50
# of a run that nobody disturbs; see the last test
BOUNDARIES, BOUNDARIES_WITHOUT_SESSION = 96, 76
databases_of_both_kinds = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


@pytest.fixture
def shop(kind: str, databases: Databases, tmp_path: Path) -> Iterator[Shop]:
    found = Shop(databases.new(kind), tmp_path)
    yield found
    found.close()


@databases_of_both_kinds
@pytest.mark.parametrize("boundary", range(BOUNDARIES, 0, -1 if SOAK else -10))
def test_a_worker_dies_at_every_boundary_of_an_effect(shop: Shop, boundary: int) -> None:
    shop.start("run")
    first = shop.worker(dies_at=boundary)
    first.join(60)
    assert first.exitcode == -signal.SIGKILL
    second = shop.worker()
    shop.finish()
    kill(second)
    shop.check()


@databases_of_both_kinds
def test_workers_are_killed_at_random_moments(shop: Shop, keep: Keep) -> None:
    begun = time.monotonic()
    chance = random.Random(11)  # noqa: S311  not for secrets
    shop.pace = 0.05
    shop.retries_quarantined = True  # nobody can tell so many kills from outside from those of a run
    for moment in range(MOMENTS):
        shop.start(f"run{moment}")
        worker = shop.worker()
        time.sleep(chance.random() * 1.5)
        kill(worker)
        shop.answer_all()
    worker = shop.worker()
    shop.finish(within=600)
    kill(worker)
    shop.check()
    assert shop.asked, "no payment was ever interrupted, so this has shown nothing"
    keep(kills=MOMENTS, payments_asked_about=len(shop.asked), seconds=round(time.monotonic() - begun), **shop.counts())


@databases_of_both_kinds
@pytest.mark.parametrize("moment", range(10 if SOAK else 2))
def test_a_worker_is_stopped_past_a_takeover_and_wakes_up(shop: Shop, moment: int) -> None:
    """It finds that its runs are no longer its own. Who is asked about its payments waits until it is gone; a session
    would wait likewise, for a process that is stopped still has it."""
    shop.pace = 0.3
    stopped = shop.worker("first")
    for number in range(3):
        shop.start(f"run{number}", remembered=False)
    until(lambda: any(line.startswith("begin ") for line in shop.lines()))
    time.sleep(random.Random(moment).random() * 0.8)  # noqa: S311  not for secrets
    stop(stopped, shop.url)
    other = shop.worker("other")
    until(shop.have_settled)
    assert stopped.pid is not None
    os.kill(stopped.pid, signal.SIGCONT)
    time.sleep(2)
    kill(stopped)
    shop.finish()
    kill(other)
    shop.check()


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize("boundary", range(BOUNDARIES_WITHOUT_SESSION, 1, -1 if SOAK else -25))
def test_a_worker_that_wakes_up_after_a_takeover_begins_nothing(shop: Shop, boundary: int) -> None:
    shop.start("run", remembered=False)
    stopped = shop.worker("first", stops_at=boundary)
    until(lambda: is_stopped(stopped))
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


@pytest.mark.parametrize("kind", ["postgres"])
def test_the_database_is_stopped_and_started_again_while_runs_go_on(shop: Shop, databases: Databases) -> None:
    shop.pace = 0.3
    worker = shop.worker(lease=10)
    for number in range(4):
        shop.start(f"run{number}")
    until(lambda: sum(line.startswith("kept tool:") for line in shop.lines()) > 4)
    databases.server.stop()
    time.sleep(2)
    databases.server.start()
    shop.finish()
    kill(worker)
    shop.check()
    assert shop.asked == set(), "no worker died, so nothing is unknown"


@pytest.mark.parametrize("kind", ["sqlite"])
def test_an_undisturbed_run_has_as_many_boundaries_as_are_tried(shop: Shop) -> None:
    shop.start("run")
    worker = shop.worker()
    shop.finish()
    kill(worker)
    shop.check()
    kept = [line.removeprefix("kept ") for line in shop.lines() if line.startswith("kept ")]
    intents = sum(name.startswith("intent:") for name in kept)  # they have no inside
    assert 4 * (len(kept) - intents) + 2 * intents + 2 == BOUNDARIES  # the last two are those of the row
