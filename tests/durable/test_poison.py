"""A run that kills its process is isolated and quarantined, its neighbours finish, and no other is suspected long."""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from prompty import tool
from prompty.durable import Runs, Worker
from prompty.durable.database import RunRow
from prompty.durable.outcome import QUARANTINE_REASON
from prompty.durable.poison import (
    ISOLATED_DEATHS,
    QUARANTINE_DEATHS,
    WINDOW_SECONDS,
    Probation,
    Trial,
    count_deaths,
)
from prompty.errors import RunBroken
from tests.durable.databases import Databases
from tests.durable.runs import rounds, scripted
from tests.durable.shop import PROCESSES, Shop, kill, until
from tests.soak import SOAK, Keep

RUNS = 20
WORKERS = 2
LEASE = 2.0
TOOL_SECONDS = 1.0
SLOWEST = 4.0  # times the undisturbed time
KILLS = 300 if SOAK else 30
KILL_SECONDS = 6.0
DIES = "dies"


def work(url: str, folder: Path) -> None:
    """Work until killed."""
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  it is open as long as the process, which is killed

    @tool(idempotent=True)
    async def look(at: str) -> str:
        """Look at something, which takes its time."""
        await asyncio.sleep(TOOL_SECONDS)
        return f"seen {at}"

    @tool(idempotent=True)
    def explode(at: str) -> str:
        """End the process, as long as there is reason to."""
        if (folder / DIES).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return at

    Worker(url, name="one", lease=LEASE, tools=[look, explode]).open()
    with suppress(KeyboardInterrupt):
        signal.pause()


class Supervisor:
    """Starts workers, and starts those again that died."""

    def __init__(self, url: str, folder: Path) -> None:
        self._arguments = (url, folder)
        self._processes = [self._start() for _ in range(WORKERS)]
        self.deaths = 0

    def _start(self) -> ForkServerProcess:
        process = PROCESSES.Process(target=work, args=self._arguments)
        process.start()
        return process

    def look(self) -> None:
        for at, process in enumerate(self._processes):
            if not process.is_alive():
                self._processes[at] = self._start()
                self.deaths += 1

    def until(self, holds: Callable[[], bool], within: float) -> None:
        def look() -> bool:
            self.look()
            return holds()

        until(look, within)

    def stop(self) -> None:
        for process in self._processes:
            if process.is_alive():
                kill(process)


@contextmanager
def supervised(url: str, folder: Path) -> Iterator[Supervisor]:
    supervisor = Supervisor(url, folder)
    try:
        yield supervisor
    finally:
        supervisor.stop()


def time_of_good_runs(client: Runs, supervisor: Supervisor, name: str) -> float:
    """Return the seconds until the good runs are done."""
    begun = time.monotonic()
    ids = [f"{name}{number}" for number in range(RUNS)]
    for id in ids:
        client.submit(scripted(rounds("look", 8, 1)), run_id=id, tools=["look"])
    supervisor.until(lambda: len(client.list("done", prefix=name)) == RUNS, 300)
    seconds = time.monotonic() - begun
    assert [client.result(id) for id in ids] == ["Done."] * RUNS
    return seconds


@pytest.mark.process
@pytest.mark.timing
@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_one_run_that_kills_its_workers_is_quarantined_and_its_neighbours_finish(
    kind: str, databases: Databases, tmp_path: Path, keep: Keep
) -> None:
    url = databases.new(kind)
    with Runs(url) as client, supervised(url, tmp_path) as supervisor:
        client.submit(scripted(rounds("look", 1, 1)), run_id="first", tools=["look"])
        assert client.result("first", timeout=180) == "Done."  # the workers have started
        undisturbed = time_of_good_runs(client, supervisor, "before")
        assert supervisor.deaths == 0
        (tmp_path / DIES).touch()
        client.submit(scripted(rounds("explode", 1, 1)), run_id="poison", tools=["explode"])
        disturbed = time_of_good_runs(client, supervisor, "beside")
        supervisor.until(lambda: client.get("poison").state == "quarantined", 120)
        deaths = supervisor.deaths
        with pytest.raises(RunBroken, match="is quarantined: its workers died one after the other"):
            client.result("poison")
        assert [(run.id, run.reason) for run in client.list("quarantined")] == [("poison", QUARANTINE_REASON)]
        (tmp_path / DIES).unlink()
        client.retry("poison")
        supervisor.until(lambda: client.get("poison").state == "done", 60)
        assert client.result("poison") == "Done."
        assert supervisor.deaths == deaths == QUARANTINE_DEATHS
    keep(undisturbed_seconds=round(undisturbed, 1), seconds=round(disturbed, 1), deaths=deaths)
    assert disturbed < SLOWEST * undisturbed


@pytest.mark.process
@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_innocent_run_is_quarantined_however_many_workers_are_killed(
    kind: str, databases: Databases, tmp_path: Path, keep: Keep
) -> None:
    """Every six seconds one of three workers is killed, with runs under way all the time."""
    begun = time.monotonic()
    shop = Shop(databases.new(kind), tmp_path, pace=0.4)
    chance = random.Random(31)  # noqa: S311  not for secrets
    workers = {name: shop.worker(name) for name in ("w0", "w1", "w2")}
    deaths: dict[int, int] = {}
    for number in range(KILLS):
        for at in range(3):
            shop.start(f"run{3 * number + at}", remembered=False)
        until(lambda number=number: time.monotonic() > begun + KILL_SECONDS * (number + 1), 60)  # type: ignore[misc]  # a default binds it
        victim = chance.choice(sorted(workers))
        kill(workers[victim])
        workers[victim] = shop.begin_worker(victim)
        shop.answer_all()
        for run in shop.client.list("running"):
            row = shop.client.table.get(run.id)
            if row is not None and row.deaths:
                deaths[row.deaths] = deaths.get(row.deaths, 0) + 1
        assert shop.client.list("quarantined") == []
    shop.finish(within=300)
    shop.check()
    shop.close()
    keep(kills=KILLS, **shop.counts(), suspicions_seen=deaths, seconds=round(time.monotonic() - begun))


def row(deaths: int = 0, marked_by: str | None = None, taken_over: float | None = None) -> RunRow:
    """Return the row of a run that was taken over so many seconds after 1970."""
    at = None if taken_over is None else int(taken_over * 1000)
    empty = RunRow("", "", None, "open", 0, 0, 1, None, None, None, None, 0, None, None, None, 0)
    return empty._replace(deaths=deaths, marked_by=marked_by, taken_over=at)


def test_a_death_counts_only_against_runs_that_executed_a_step() -> None:
    runs = {
        "first time": row(),
        "replayed": row(1, None, 100.0),
        "executed elsewhere": row(2, "other", 100.0),
        "executed": row(1, "lost", 100.0),
        "long ago": row(4, "other", 100.0 - WINDOW_SECONDS),
    }
    assert count_deaths(runs, "lost", 101.0) == {
        "first time": 1,
        "replayed": 1,
        "executed elsewhere": 2,
        "executed": 2,
        "long ago": 1,
    }


def test_a_death_counts_only_against_the_run_that_was_alone() -> None:
    alone = row(ISOLATED_DEATHS, "lost", 100.0)
    runs = {"alone": alone, "waited": row(), "waited as well": row(2, "lost", 100.0)}
    assert count_deaths(runs, "lost", 101.0) == {"alone": ISOLATED_DEATHS + 1, "waited": 0, "waited as well": 2}


class Trials:
    """Executions of one worker, and the order of what they do."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.probation = Probation()

    def begin(self, name: str, deaths: int) -> Trial:
        async def mark() -> None:
            self.order.append(f"{name} is marked")

        async def clear() -> None:
            self.order.append(f"{name} is cleared")

        return Trial(self.probation, deaths, mark, clear)

    async def step(self, trial: Trial, name: str, seconds: float) -> None:
        async with trial.step():
            await trial.begin()
            self.order.append(f"{name} begins")
            await asyncio.sleep(seconds)
            self.order.append(f"{name} ends")
        await trial.pass_step()
        await trial.end()


def test_a_run_with_three_deaths_is_alone_until_it_has_finished_a_step() -> None:
    async def main() -> list[str]:
        trials = Trials()
        first = asyncio.create_task(trials.step(trials.begin("first", 0), "first", 0.05))
        await asyncio.sleep(0.01)
        alone = asyncio.create_task(trials.step(trials.begin("alone", ISOLATED_DEATHS), "alone", 0.05))
        await asyncio.sleep(0.01)
        await asyncio.gather(first, alone, trials.step(trials.begin("second", 0), "second", 0))
        return trials.order

    assert asyncio.run(main()) == [
        "first begins",
        "first ends",
        "alone is marked",
        "alone begins",
        "alone ends",
        "alone is cleared",
        "second begins",
        "second ends",
    ]


def test_runs_with_two_deaths_begin_one_after_the_other() -> None:
    async def main() -> list[str]:
        trials = Trials()
        runs = [trials.step(trials.begin(name, 2), name, 0.02) for name in ("one", "two")]
        await asyncio.gather(*runs)
        return trials.order

    assert asyncio.run(main()) == [
        "one is marked",
        "one begins",
        "one ends",
        "one is cleared",
        "two is marked",
        "two begins",
        "two ends",
        "two is cleared",
    ]


def test_a_run_that_must_be_alone_does_not_wait_for_one_that_waits_for_its_turn() -> None:
    async def main() -> list[str]:
        trials = Trials()
        deaths = {"one": ISOLATED_DEATHS, "two": 2, "three": ISOLATED_DEATHS, "four": 2}
        runs = [trials.step(trials.begin(name, count), name, 0.01) for name, count in deaths.items()]
        await asyncio.wait_for(asyncio.gather(*runs), 5)
        return [line for line in trials.order if line.endswith("begins")]

    assert asyncio.run(main()) == ["one begins", "two begins", "three begins", "four begins"]
