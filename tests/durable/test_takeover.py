"""Workers come and go under names that nobody has heard of, and their runs are taken over within one and a half leases.

200 processes are killed and 60 are stopped past their lease with PROMPTY_SOAK=1, a tenth of them otherwise. One that
is woken up begins nothing of what it lost, and works on as a new worker. The model is asked over HTTP.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from statistics import median

import pytest

from prompty import Paused
from tests.durable.databases import Databases
from tests.durable.shop import Model, Shop, kill, until
from tests.durable.stopping import stop
from tests.soak import SOAK, Keep

pytestmark = [pytest.mark.process, pytest.mark.timing, pytest.mark.nightly]

KILLS, STOPS = (200, 60) if SOAK else (20, 6)
LEASE = 4.0
LONGEST = 1.5 * LEASE
WORKERS = (2, 4)


class Fleet:
    """Two to four workers, of which one is disturbed at a time, and the runs that are not done yet."""

    def __init__(self, shop: Shop, chance: random.Random) -> None:
        self.shop, self.chance = shop, chance
        self.workers: dict[str, ForkServerProcess] = {}
        self.open: set[str] = set()
        self.late: list[dict[str, object]] = []
        self._numbers = count()

    def grow(self) -> None:
        name = f"w{next(self._numbers)}"
        self.workers[name] = self.shop.worker(name, lease=LEASE)

    def start_runs(self) -> None:
        for _ in range(3):
            run_id = f"run{len(self.shop.started)}"
            self.shop.start(run_id, remembered=False)
            self.open.add(run_id)

    def choose(self) -> str:
        return self.chance.choice(sorted(self.workers))

    def kill_one(self) -> float | None:
        """Kill a worker, and return how long it took until each run that it had under way had its next step."""
        name = self.choose()
        kill(self.workers.pop(name))
        return self._wait_for_takeover(name)

    def stop_one(self) -> float | None:
        """Stop a worker past its lease and wake it up. Then its runs are done or wait for a person, and nothing is
        queued: whatever it began would belong to a run that it lost."""
        name = self.choose()
        process = self.workers[name]
        stop(process, self.shop.url)
        seconds = self._wait_for_takeover(name)
        until(lambda: self._pauses().keys() == self.open)
        before = self._begun_by(process)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(1.5)
        assert self._begun_by(process) == before
        return seconds

    def answer_all(self) -> None:
        for paused in self._pauses().values():
            self.shop.answer(paused)

    def _wait_for_takeover(self, name: str) -> float | None:
        begun, since = time.monotonic(), time.time()
        left = self.shop.left_by(name)
        until(lambda: self.shop.have_gone_on(left))
        seconds = time.monotonic() - begun
        if left and seconds >= LONGEST:
            self.late.append({"seconds": round(seconds, 2), "runs": sorted(left), "log": self._read_log(since)})
        return seconds if left else None

    def _read_log(self, since: float) -> list[str]:
        """What the workers said meanwhile."""
        found: list[str] = []
        for line in self.shop.log.with_name("stderr").read_text().splitlines():
            moment, _, text = line.partition(" ")
            with suppress(ValueError):
                if float(moment) >= since:
                    found.append(f"+{float(moment) - since:.2f} {text}")
        return found

    def _begun_by(self, process: ForkServerProcess) -> int:
        return self.shop.lines().count(f"process {process.pid}")

    def _pauses(self) -> dict[str, Paused]:
        """Return the open runs that wait for a person, and forget those that are done."""
        found: dict[str, Paused] = {}
        for run_id in sorted(self.open):
            try:
                outcome = self.shop.client.result(run_id, timeout=0)
            except TimeoutError:
                continue
            if isinstance(outcome, Paused):
                found[run_id] = outcome
            else:
                self.open.discard(run_id)
        return found


@pytest.fixture
def fleet(kind: str, databases: Databases, tmp_path: Path) -> Iterator[Fleet]:
    with Model(tmp_path / "log") as model:
        shop = Shop(databases.new(kind), tmp_path, pace=0.4, model=model)  # so most kills leave a run behind
        yield Fleet(shop, random.Random(23))  # noqa: S311  not for secrets
        shop.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_workers_without_names_take_over_from_each_other(fleet: Fleet, keep: Keep) -> None:
    begun = time.monotonic()
    events = ["kill"] * KILLS + ["stop"] * STOPS
    fleet.chance.shuffle(events)
    takeovers: dict[str, list[float]] = {"kill": [], "stop": []}
    for _ in range(WORKERS[0]):
        fleet.grow()
    for event in events:
        while len(fleet.workers) < fleet.chance.randint(WORKERS[0] + 1, WORKERS[1]):
            fleet.grow()
        fleet.start_runs()
        time.sleep(fleet.chance.random() * 1.5)
        seconds = fleet.kill_one() if event == "kill" else fleet.stop_one()
        if seconds is not None:
            takeovers[event].append(seconds)
        fleet.answer_all()
    fleet.shop.finish(within=120)
    fleet.shop.check()
    keep(
        lease_seconds=LEASE,
        kills=KILLS,
        stops=STOPS,
        **fleet.shop.counts(),
        payments_asked_about=len(fleet.shop.asked),
        takeovers_after_kill=spread(takeovers["kill"]),
        takeovers_after_stop=spread(takeovers["stop"]),
        late=fleet.late,
        model_requests_after_their_answer_was_kept=fleet.shop.find_zombie_requests(),
        seconds=round(time.monotonic() - begun),
    )
    assert takeovers["kill"] != []
    assert max(takeovers["kill"] + takeovers["stop"]) < LONGEST


def spread(seconds: list[float]) -> dict[str, object]:
    """Return how many takeovers there were, and how long they took. A stopped worker may have had nothing to lose."""
    if not seconds:
        return {"count": 0}
    return {"count": len(seconds), "median": round(median(seconds), 2), "longest": round(max(seconds), 2)}
