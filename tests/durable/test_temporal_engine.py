"""The engine on Temporal, held to the suite that every engine must pass, and what is special about it."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from prompty.durable.engine import Attempt, Engine, Perform, Steps, Workflow
from prompty.durable.temporal_engine import ID_PREFIX, VERSION, WORKFLOW, TemporalEngine
from prompty.errors import RequestError, RunRefused, UnknownRun
from prompty.model.message import Json
from tests.durable.suite import SECONDS, Effects, EngineSuite, return_record, wait_until
from tests.durable.temporal import TemporalServer


class TestTemporal(EngineSuite):
    @pytest.fixture(autouse=True)
    def _namespace(self, temporal: TemporalServer) -> None:
        self.url = temporal.namespace()

    def engine(self, folder: Path, name: str | None) -> Engine:
        return TemporalEngine(self.url, name, lease=2)


@contextmanager
def opened(url: str, workflow: Workflow, perform: Perform, lease: float = 2) -> Iterator[TemporalEngine]:
    engine = TemporalEngine(url, "worker", lease=lease)
    engine.open(workflow, perform)
    try:
        yield engine
    finally:
        engine.close()


async def run_one_step(steps: Steps, record: Json) -> Json:
    return await steps.step("only", record)


def test_a_result_that_temporal_cannot_store_breaks_the_run_and_says_so(temporal: TemporalServer) -> None:
    performed: list[str] = []

    async def perform(attempt: Attempt, effect: Json) -> Json:
        performed.append(attempt.name)
        return {"text": "x" * 2_100_000}

    with opened(temporal.namespace(), run_one_step, perform) as engine:
        engine.start("a", {})
        status = engine.wait("a", SECONDS)
    assert status.state == "broken"
    assert "the result of the step 'only' has 2,100,0" in (status.error or "")
    assert performed == ["only"]


def test_a_step_that_takes_longer_than_the_lease_is_performed_once(temporal: TemporalServer) -> None:
    performed: list[bool] = []

    async def perform(attempt: Attempt, effect: Json) -> Json:
        performed.append(attempt.is_repeated)
        await asyncio.sleep(8)  # the library gives up 5 s after the lease, unless it is told
        await attempt.fence()
        return {}

    with opened(temporal.namespace(), run_one_step, perform, lease=1) as engine:
        engine.start("a", {})
        assert engine.wait("a", SECONDS).state == "finished"
    assert performed == [False]


def test_a_step_that_the_server_has_given_to_another_attempt_begins_nothing(temporal: TemporalServer) -> None:
    """The first attempt sends no heartbeats, like a process that is stopped."""
    begun: list[bool] = []

    async def perform(attempt: Attempt, effect: Json) -> Json:
        if not attempt.is_repeated:
            time.sleep(3)  # nothing else happens in this process, either
        await attempt.fence()
        begun.append(attempt.is_repeated)
        return {}

    with opened(temporal.namespace(), run_one_step, perform, lease=1) as engine:
        engine.start("a", {})
        assert engine.wait("a", SECONDS).state == "finished"
    assert begun == [True]


def test_a_step_in_which_workers_die_again_and_again_breaks_the_run(
    temporal: TemporalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prompty.durable.temporal_engine.MAX_DEATHS", 2)
    attempts: list[bool] = []

    async def perform(attempt: Attempt, effect: Json) -> Json:
        attempts.append(attempt.is_repeated)
        time.sleep(2)
        await attempt.fence()
        return {}

    with opened(temporal.namespace(), run_one_step, perform, lease=1) as engine:
        engine.start("a", {})
        status = engine.wait("a", SECONDS)
    assert "3 workers died while they performed the step 'only'" in (status.error or "")
    assert attempts == [False, True, True]


def test_a_worker_that_drains_finishes_its_steps(temporal: TemporalServer) -> None:
    begun = threading.Event()

    async def perform(attempt: Attempt, effect: Json) -> Json:
        begun.set()
        await asyncio.sleep(1)
        return {"repeated": attempt.is_repeated}

    url = temporal.namespace()
    engine = TemporalEngine(url, "worker")
    engine.open(run_one_step, perform)
    engine.start("a", {})
    assert begun.wait(SECONDS)
    engine.close(drain=10)
    with opened(url, run_one_step, perform) as engine:
        assert engine.wait("a", SECONDS).output == {"repeated": False}


def test_what_others_have_written_is_refused(temporal: TemporalServer) -> None:
    url = temporal.namespace()
    with opened(url, run_one_step, Effects().perform) as engine:
        asyncio.run(start_foreign(temporal, url))
        assert engine.wait("a", SECONDS).state == "broken"
        with pytest.raises(RunRefused, match="its encoding is 'binary/plain'"):
            engine.status("a")


async def start_foreign(temporal: TemporalServer, url: str) -> None:
    client = await temporal.connect(url.rpartition("/")[2])
    await client.start_workflow(WORKFLOW, b"a pickle", id=f"{ID_PREFIX}a", task_queue=VERSION)


def test_a_workflow_that_somebody_terminated_is_broken_and_says_so(temporal: TemporalServer) -> None:
    url = temporal.namespace()
    with opened(url, run_one_step, Effects().perform) as engine:
        engine.start("a", {"waits": True})
        wait_until(lambda: engine.wait("a", 0).state == "running")
        asyncio.run(terminate(temporal, url))
        status = engine.wait("a", SECONDS)
    assert (status.state, status.error) == ("broken", "it was terminated: too dear")


async def terminate(temporal: TemporalServer, url: str) -> None:
    client = await temporal.connect(url.rpartition("/")[2])
    await client.get_workflow_handle(f"{ID_PREFIX}a").terminate(reason="too dear")


def test_a_message_to_a_workflow_that_has_ended_or_never_was_is_refused(temporal: TemporalServer) -> None:
    with opened(temporal.namespace(), return_record, Effects().perform) as engine:
        engine.start("a", {})
        engine.wait("a", SECONDS)
        with pytest.raises(RequestError, match="has ended"):
            engine.send("a", "Too late.")
        with pytest.raises(UnknownRun):
            engine.send("b", "Who?")
        with pytest.raises(UnknownRun):
            engine.wait("b", 0)
