"""The life of a worker: it drains, ends, loses its lease and comes back, and leaves alone what is not its own."""

import asyncio
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from dbos import DBOS, DBOSClient, EnqueueOptions, WorkflowStatus

from prompty import tool
from prompty.durable import Limits, Runs, Worker
from prompty.durable.database import create_engine
from prompty.durable.leases import Leases
from prompty.durable.runs import APPLICATION, QUEUE, VERSION, WORKFLOW
from prompty.errors import RequestError
from tests.durable.databases import Databases
from tests.durable.runs import Desk, rounds, scripted, working
from tests.durable.shop import PROCESSES, until

LEASE = 1.0
SECONDS = 120  # for a machine that has much else to do


class Bench:
    """A tool that takes its time, and notes what becomes of it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.notes: list[str] = []

    @tool(idempotent=True)
    async def work(self, at: str) -> str:
        """Work on something."""
        self.notes.append("begins")
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.notes.append("is cancelled")
            raise
        self.notes.append("ends")
        return at

    def begin(self, worker: Worker, run_id: str = "run") -> None:
        """Leave a run for the worker, and wait until it is in the tool."""
        worker.runs.submit(scripted(rounds("work", 1, 1)), run_id=run_id, tools=["work"])
        until(lambda: "begins" in self.notes, SECONDS)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, databases: Databases) -> str:
    return databases.new(request.param)


@pytest.fixture
def sqlite(databases: Databases) -> str:
    return databases.sqlite()


def describe(id: str, **options: object) -> EnqueueOptions:
    """Where and as what a workflow is to be queued."""
    usual = {"workflow_name": WORKFLOW, "queue_name": QUEUE, "workflow_id": id, "app_version": VERSION}
    return cast(EnqueueOptions, {**usual, **options})


def find(runs: Runs, id: str) -> WorkflowStatus:
    [status] = runs.client.list_workflows(workflow_ids=[id])
    return status


def test_runs_get_part_of_a_second_to_end_when_a_worker_stops(url: str) -> None:
    bench = Bench(0.1)
    worker = Worker(url, tools=[bench.work], lease=LEASE)
    worker.open()
    bench.begin(worker)
    worker.close(drain=0.9)
    assert bench.notes == ["begins", "ends"]


@pytest.mark.parametrize("drain", [0.0, 0.5])
def test_runs_that_take_longer_are_cancelled_before_dbos_ends_and_go_on_elsewhere(url: str, drain: float) -> None:
    bench = Bench(60)
    worker = Worker(url, tools=[bench.work], lease=LEASE)
    worker.open()
    bench.begin(worker)
    assert worker.life is not None
    assert len(worker.life.executions) == 1
    worker.close(drain=drain)
    assert bench.notes == ["begins", "is cancelled"]
    with Runs(url) as runs:
        assert find(runs, "run").status == "ENQUEUED"
        row = runs.table.get("run")
        assert row is not None
        assert (row.state, row.deaths) == ("open", 0)
    other = Bench(0)
    with working(url, other.work) as second:
        assert second.runs.result("run", timeout=SECONDS) == "Done."
    assert other.notes == ["begins", "ends"]


def run_worker(url: str, log: Path) -> None:
    """Work until told to end."""

    @tool
    async def wait(at: str) -> str:
        """Wait for a long time."""
        log.touch()
        await asyncio.sleep(60)
        return at

    Worker(url, tools=[wait], lease=LEASE).run(drain=0.5)


@pytest.mark.process
def test_a_worker_that_gets_sigterm_gives_its_runs_back_and_ends(sqlite: str, tmp_path: Path) -> None:
    with Runs(sqlite) as runs:
        runs.submit(scripted(rounds("wait", 1, 1)), run_id="run", tools=["wait"])
        process = PROCESSES.Process(target=run_worker, args=(sqlite, tmp_path / "begun"))
        process.start()
        until((tmp_path / "begun").exists, SECONDS)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGTERM)
        process.join(SECONDS)
        assert process.exitcode == 0
        assert find(runs, "run").status == "ENQUEUED"


def lose_lease(worker: Worker) -> str:
    """Do what others do with a worker that they take for dead, and return its id."""
    assert worker.life is not None
    lost = worker.life.lease.id
    leases = Leases(worker.url, LEASE)
    leases.remove(lost)
    leases.close()
    return lost


def test_a_worker_that_lost_its_lease_goes_on_in_the_same_process_and_nothing_of_its_old_life_acts(url: str) -> None:
    bench = Bench(3.0)
    with working(url, bench.work, lease=LEASE) as worker:
        bench.begin(worker)
        old = worker.life
        assert old is not None
        lost = lose_lease(worker)
        until(lambda: worker.life not in (old, None), SECONDS)
        assert bench.notes == ["begins", "is cancelled"]
        assert sum(thread.name == "prompty worker" for thread in threading.enumerate()) == 1
        assert worker.check_ready() is None
        bench.seconds = 0
        assert worker.runs.result("run", timeout=SECONDS) == "Done."  # this very process took it over from itself
        executor = find(worker.runs, "run").executor_id
        assert executor != lost
        assert worker.life is not None
        assert executor == worker.life.lease.id
    assert bench.notes == ["begins", "is cancelled", "begins", "ends"]


def test_a_worker_can_be_closed_while_it_comes_back(sqlite: str) -> None:
    for delay in (0.0, 0.1, 0.2):
        worker = Worker(sqlite, lease=LEASE)
        worker.open()
        lose_lease(worker)
        time.sleep(delay)
        worker.close()
        assert worker.life is None


def test_a_process_has_one_worker_and_no_other_dbos(sqlite: str, databases: Databases) -> None:
    with working(sqlite), pytest.raises(RequestError, match="this process already has a worker"):
        Worker(sqlite).open()
    DBOS(config={"name": "mine", "system_database_url": databases.sqlite(), "executor_id": "mine"})
    try:
        with pytest.raises(RequestError, match="this process has a DBOS of its own"):
            Worker(sqlite).open()
        DBOS.launch()  # it is still there
        assert DBOS.executor_id == "mine"
    finally:
        DBOS.destroy()


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"worker_concurrency": 20, "concurrency": 10}, "one worker may execute 20 runs, and all of them 10"),
        ({"worker_concurrency": 0}, "worker_concurrency=0 lets no run execute"),
        ({"tenant_concurrency": -1}, "tenant_concurrency=-1 lets no run execute"),
        ({"rate": (10, 0)}, r"the rate \(10, 0\) lets no run start"),
        ({"rate": (0, 10)}, r"the rate \(0, 10\) lets no run start"),
    ],
)
def test_limits_that_let_nothing_run_are_refused(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Limits(**limits)


@pytest.mark.parametrize("lease", [0, -1, float("inf"), float("nan")])
def test_a_lease_that_never_holds_is_refused(sqlite: str, lease: float) -> None:
    with pytest.raises(RequestError, match="never holds"):
        Worker(sqlite, lease=lease)


def test_runs_of_another_version_stay_for_their_workers(url: str) -> None:
    desk = Desk()
    with working(url, desk.look, lease=LEASE) as worker:
        client = worker.runs.client
        for id in ("waits", "runs"):
            client.enqueue(describe(id, app_version="prompty-0"), {})
        change(url, "runs", status="PENDING", executor_id="gone")
        worker.runs.submit(scripted(["Hi."]), run_id="own")
        assert worker.runs.result("own", timeout=SECONDS) == "Hi."
        time.sleep(3 * LEASE)  # in which owners without a lease are looked for
        assert (find(worker.runs, "waits").status, find(worker.runs, "runs").status) == ("ENQUEUED", "PENDING")


def test_the_run_of_an_owner_that_has_no_lease_is_taken_over(url: str) -> None:
    with Runs(url) as runs:
        runs.submit(scripted(["Hi."]), run_id="run")
    change(url, "run", status="PENDING", executor_id="gone")
    with working(url, lease=LEASE) as worker:
        assert worker.runs.result("run", timeout=SECONDS) == "Hi."


def test_a_run_that_dbos_took_and_did_not_start_is_queued_again(url: str) -> None:
    with working(url, lease=LEASE) as worker:
        assert worker.life is not None
        worker.runs.submit(scripted(["Hi."]), run_id="other")
        assert worker.runs.result("other", timeout=SECONDS) == "Hi."
        client = worker.runs.client
        with worker.runs.table.engine.begin() as connection:
            worker.runs.table.insert("run", "", None, connection)
        record = find(worker.runs, "other").input
        assert record is not None
        # in a queue that nobody listens to, so that it stays as it is until then
        client.enqueue(describe("run", queue_name="nobody"), {**record["args"][0]})
        change(url, "run", status="PENDING", executor_id=worker.life.lease.id, started_at_epoch_ms=1, queue_name=QUEUE)
        until(lambda: find(worker.runs, "run").status not in ("PENDING", "ENQUEUED"), SECONDS)


def test_a_run_that_was_cancelled_while_it_was_taken_over_stays_cancelled(url: str) -> None:
    desk = Desk()
    with Runs(url) as runs:
        runs.submit(scripted(rounds("look", 1, 1)), run_id="run", tools=["look"])
        runs.table.change("run", "cancelled", segment=0)  # and it was queued again at the same moment
        with working(url, desk.look):
            until(lambda: find(runs, "run").status == "CANCELLED", SECONDS)
    assert desk.seen == []


class Harmful:
    """A value whose pickle creates a file when it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._path),)


def test_a_worker_reads_no_pickles_and_a_client_changes_nothing(sqlite: str, tmp_path: Path) -> None:
    with Runs(sqlite) as runs:
        mine = DBOSClient(system_database_url=sqlite, application_name=APPLICATION)  # which writes pickles
        mine.enqueue(describe("harmful"), Harmful(tmp_path / "harm"))
        mine.enqueue({"workflow_name": "mine", "queue_name": "mine", "workflow_id": "mine"}, {1, 2})
        assert read_input(mine, "mine") == {1, 2}  # beside a client of ours
        with working(sqlite, lease=LEASE):
            until(lambda: runs.client.list_workflows(status="ERROR", load_input=False) != [], SECONDS)
            assert not (tmp_path / "harm").exists()
        assert read_input(mine, "mine") == {1, 2}
        mine.destroy()
    with pytest.raises(FileNotFoundError):  # it is what it claims to be
        pickle.loads(pickle.dumps(Harmful(tmp_path / "no" / "harm")))  # noqa: S301  our own


def read_input(client: DBOSClient, id: str) -> object:
    [status] = client.list_workflows(workflow_ids=[id])
    assert status.input is not None
    return status.input["args"][0]


def change(url: str, id: str, **values: object) -> None:
    """Change the row of a workflow: nothing public leaves it like this."""
    schema = None if url.startswith("sqlite") else "dbos"
    table = sa.table("workflow_status", sa.column("workflow_uuid"), *map(sa.column, values), schema=schema)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.update(table).where(table.c.workflow_uuid == id).values(values))
    engine.dispose()


@pytest.fixture(autouse=True)
def _no_worker_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "prompty worker"]
