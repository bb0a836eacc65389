"""A run that kills its process is isolated and quarantined, and the runs beside it finish."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from prompty import tool
from prompty.durable import DurableRuntime
from prompty.durable.outcome import QUARANTINE_REASON
from prompty.durable.probation import Probation, Trial
from prompty.errors import RunBroken
from tests.durable.databases import Databases
from tests.durable.runs import rounds, scripted
from tests.durable.shop import PROCESSES, kill, until
from tests.soak import Keep

RUNS = 20
WORKERS = 2
LEASE = 2.0
TOOL_SECONDS = 1.0
SLOWEST = 3.0  # times the undisturbed time
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

    DurableRuntime(url, name="one", lease=LEASE, tools=[look, explode]).open()
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


def time_of_good_runs(client: DurableRuntime, supervisor: Supervisor, name: str) -> float:
    """Return the seconds until the good runs are done."""
    begun = time.monotonic()
    ids = [f"{name}{number}" for number in range(RUNS)]
    for id in ids:
        client.start(scripted(rounds("look", 8, 1)), run_id=id, tools=["look"])
    supervisor.until(lambda: len(client.batches.find_ended(ids)) == RUNS, 300)
    assert [client.result(id) for id in ids] == ["Done."] * RUNS
    return time.monotonic() - begun


@pytest.mark.process
@pytest.mark.timing
@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_one_run_that_kills_its_workers_is_quarantined_and_its_neighbours_finish(
    kind: str, databases: Databases, tmp_path: Path, keep: Keep
) -> None:
    url = databases.new(kind)
    client = DurableRuntime(url)
    with supervised(url, tmp_path) as supervisor:
        undisturbed = time_of_good_runs(client, supervisor, "before")
        assert supervisor.deaths == 0
        (tmp_path / DIES).touch()
        client.start(scripted(rounds("explode", 1, 1)), run_id="poison", tools=["explode"])
        disturbed = time_of_good_runs(client, supervisor, "beside")
        supervisor.until(lambda: client.engine.wait("poison", 0).state == "quarantined", 120)
        deaths = supervisor.deaths
        with pytest.raises(RunBroken, match="is quarantined: its workers died one after the other"):
            client.result("poison")
        assert [(run.id, run.reason) for run in client.list("quarantined")] == [("poison", QUARANTINE_REASON)]
        (tmp_path / DIES).unlink()
        client.retry("poison")
        supervisor.until(lambda: client.engine.wait("poison", 0).state == "finished", 60)
        assert client.result("poison") == "Done."
        assert supervisor.deaths == deaths
    client.close()
    keep(undisturbed_seconds=round(undisturbed, 1), seconds=round(disturbed, 1), deaths=deaths)
    assert disturbed < SLOWEST * undisturbed


def test_suspects_start_one_after_the_other_and_an_isolated_run_is_alone() -> None:
    order: list[str] = []

    async def note(line: str = "") -> None:
        if line:
            order.append(line)

    async def neighbour(probation: Probation, name: str, seconds: float) -> None:
        async with probation.step(None):
            order.append(f"{name} begins")
            await asyncio.sleep(seconds)
            order.append(f"{name} ends")

    async def isolated(probation: Probation) -> Trial:
        async with probation.start(3, lambda: note("isolated begins"), note) as trial, probation.step(trial):
            await asyncio.sleep(0.05)
            order.append("isolated ends")
        return trial

    async def main() -> None:
        probation = Probation()
        first = asyncio.create_task(neighbour(probation, "first", 0.05))
        await asyncio.sleep(0.01)
        alone = asyncio.create_task(isolated(probation))
        await asyncio.sleep(0.01)
        await asyncio.gather(first, alone, neighbour(probation, "second", 0))

    asyncio.run(main())
    assert order == [
        "first begins",
        "first ends",
        "isolated begins",
        "isolated ends",
        "second begins",
        "second ends",
    ]
