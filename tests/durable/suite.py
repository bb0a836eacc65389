"""Tests that every engine must pass, and those of each capability. Derive a class of your own tests from `EngineSuite`
and from the suites of the capabilities that your engine has, and return your engine:

class TestMyEngine(EngineSuite, StreamsSuite):
    def engine(self, folder, name):
        return MyEngine(folder / "runs", name)
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from prompty.durable.engine import (
    Attempt,
    Batches,
    Catalog,
    Engine,
    Retries,
    Status,
    Steps,
    Streams,
    Takeovers,
    Workflow,
    WritableAttempt,
)
from prompty.durable.queueing import HasQueue
from prompty.durable.selection import Outcome, Position, RunState, Selection
from prompty.model.message import Json

VALUE: Json = {"text": "Grüße, 世界 🌍 \x00", "number": 1.5, "big": 2**60, "nothing": None, "list": [True, {"a": []}]}
SECONDS = 30.0
OUTCOMES: dict[str, Outcome] = {"paused": "paused", "failed": "failed", "cancelled": "cancelled"}


class Effects:
    """What the steps of these tests do, in the process of the test. `ran` are the names of steps that were performed,
    and a step that waits does so until it is `released`."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.released: bool = False

    async def perform(self, attempt: Attempt, effect: Json) -> Json:
        if effect.get("waits"):
            while not self.released:
                await asyncio.sleep(0.02)
            return {}
        self.ran.append(attempt.name)
        await attempt.fence()
        await asyncio.sleep(float(str(effect.get("seconds", 0))))
        if isinstance(attempt, WritableAttempt):
            for value in list[Json](effect.get("writes", [])):  # type: ignore[call-overload]  # a list of values
                await attempt.write(value)
        if "raises" in effect:
            raise ValueError(effect["raises"])
        return {"ran": attempt.name}


class Suite:
    """What all suites share. Each test has an empty folder."""

    def engine(self, folder: Path, name: str | None) -> Engine:
        """Return an engine on this folder, which may already hold workflows."""
        raise NotImplementedError

    @contextmanager
    def open_engine(
        self, folder: Path, workflow: Workflow, effects: Effects | None = None, name: str = "worker"
    ) -> Iterator[Engine]:
        engine = self.engine(folder, name)
        engine.open(workflow, (effects or Effects()).perform)
        try:
            yield engine
        finally:
            engine.close()

    def wait_for_steps(self, engine: Engine, id: str, *names: str) -> None:
        """Wait until these steps have ended."""
        wait_until(lambda: set(names) <= {step.name for step in engine.steps(id)})

    def wait_for_state(self, engine: Engine, id: str, state: str) -> Status:
        """Wait until a workflow has this state, and return its status."""
        wait_until(lambda: engine.wait(id, 0).state == state)
        return engine.wait(id, 0)


class EngineSuite(Suite):
    """What every engine does."""

    def test_a_workflow_gives_what_it_returned(self, tmp_path: Path) -> None:
        async def workflow(_: Steps, record: Json) -> Json:
            return {"seen": record}

        with self.open_engine(tmp_path, workflow) as engine:
            engine.start("a", VALUE)
            status = engine.wait("a", SECONDS)
            assert (status.state, status.output) == ("finished", {"seen": VALUE})
            status_later = engine.status("a")
            assert status_later is not None
            assert (status_later.record, status_later.worker) == (VALUE, "worker")

    def test_an_unknown_workflow_has_no_status_and_no_steps(self, tmp_path: Path) -> None:
        with self.open_engine(tmp_path, return_record) as engine:
            assert engine.status("a") is None
            assert engine.steps("a") == []

    def test_a_workflow_that_is_started_twice_runs_once(self, tmp_path: Path) -> None:
        effects = Effects()
        with self.open_engine(tmp_path, run_two_steps, effects) as engine:
            engine.start("a", {"first": True})
            engine.start("a", {"first": False})
            assert engine.wait("a", SECONDS).output == {"record": {"first": True}, "last": {"ran": "last"}}
            engine.start("a", {"first": False})
            assert engine.wait("a", SECONDS).output == {"record": {"first": True}, "last": {"ran": "last"}}
        assert effects.ran == ["first", "last"]

    def test_a_workflow_is_found_by_its_id(self, tmp_path: Path) -> None:
        with self.open_engine(tmp_path, return_record) as engine:
            for id in ("a", "a#1", "b"):
                engine.start(id, {})
                engine.wait(id, SECONDS)
            assert [status.id for status in engine.find(["b", "a#1", "a", "c"])] == ["a", "a#1", "b"]
            assert engine.find([]) == []

    def test_steps_that_left_a_result_are_not_run_again_when_the_worker_comes_back(self, tmp_path: Path) -> None:
        effects = Effects()
        with self.open_engine(tmp_path, run_gated_steps, effects) as engine:
            engine.start("a", {})
            self.wait_for_steps(engine, "a", "first")
        effects.released = True
        with self.open_engine(tmp_path, run_gated_steps, effects) as engine:
            assert engine.wait("a", SECONDS).output == {"first": {"ran": "first"}, "last": {"ran": "last"}}
            assert [step.name for step in engine.steps("a")] == ["first", "gate", "last"]
        assert effects.ran == ["first", "last"]

    def test_a_worker_of_another_name_continues_the_workflows_of_one_that_stopped(self, tmp_path: Path) -> None:
        effects = Effects()
        with self.open_engine(tmp_path, run_gated_steps, effects, "first") as engine:
            engine.start("a", {})
            self.wait_for_steps(engine, "a", "first")
        effects.released = True
        with self.open_engine(tmp_path, run_gated_steps, effects, "second") as engine:
            assert engine.wait("a", SECONDS).state == "finished"

    def test_steps_that_run_concurrently_keep_their_own_results_whatever_order_they_end_in(
        self, tmp_path: Path
    ) -> None:
        async def workflow(steps: Steps, _: Json) -> Json:
            stage = [
                asyncio.create_task(steps.step(f"tool:{number}", {"seconds": 0.05 * (4 - number)}))
                for number in range(4)
            ]
            results = await asyncio.gather(*stage)
            await steps.step("gate", {"waits": True})
            return {"results": list(results)}

        effects = Effects()
        names = [f"tool:{number}" for number in range(4)]
        with self.open_engine(tmp_path, workflow, effects) as engine:
            engine.start("a", {})
            self.wait_for_steps(engine, "a", *names)
        effects.released = True
        with self.open_engine(tmp_path, workflow, effects) as engine:
            assert engine.wait("a", SECONDS).output == {"results": [{"ran": name} for name in names]}
        assert sorted(effects.ran) == names

    def test_what_an_execution_began_is_its_own(self, tmp_path: Path) -> None:
        async def workflow(steps: Steps, _: Json) -> Json:
            return {"first": await steps.begin("begin:a"), "other": await steps.begin("begin:b")}

        with self.open_engine(tmp_path, workflow) as engine:
            engine.start("a", {})
            assert engine.wait("a", SECONDS).output == {"first": True, "other": True}

    def test_a_workflow_that_raises_is_broken_and_says_why(self, tmp_path: Path) -> None:
        async def workflow(_: Steps, __: Json) -> Json:
            raise ValueError("this is why")

        with self.open_engine(tmp_path, workflow) as engine:
            engine.start("a", {})
            status = engine.wait("a", SECONDS)
            assert status.state == "broken"
            assert "this is why" in (status.error or "")

    def test_a_step_that_raises_ends_the_workflow(self, tmp_path: Path) -> None:
        async def workflow(steps: Steps, _: Json) -> Json:
            return await steps.step("raises", {"raises": "this is why"})

        effects = Effects()
        with self.open_engine(tmp_path, workflow, effects) as engine:
            engine.start("a", {})
            status = engine.wait("a", SECONDS)
            assert status.state == "broken"
            assert "this is why" in (status.error or "")
        assert effects.ran == ["raises"]

    def test_what_is_sent_is_received_once_and_in_order(self, tmp_path: Path) -> None:
        async def workflow(steps: Steps, _: Json) -> Json:
            none = await steps.receive()
            await steps.step("gate", {"waits": True})
            return {"none": none, "some": await steps.receive(), "more": await steps.receive()}

        effects = Effects()
        with self.open_engine(tmp_path, workflow, effects) as engine:
            engine.start("a", {})
            self.wait_for_steps(engine, "a", "received:1")
            engine.send("a", "one")
            engine.send("a", "two")
            effects.released = True
            assert engine.wait("a", SECONDS).output == {"none": [], "some": ["one", "two"], "more": []}
            results = {step.name: step.result for step in engine.steps("a")}
        assert {name: results[name] for name in sorted(results) if name.startswith("received")} == {
            "received:1": [],
            "received:2": ["one", "two"],
            "received:3": [],
        }

    def test_a_cancelled_workflow_ends_and_one_that_has_ended_stays_as_it_is(self, tmp_path: Path) -> None:
        effects = Effects()
        with self.open_engine(tmp_path, run_gated_steps, effects) as engine:
            engine.start("a", {})
            self.wait_for_steps(engine, "a", "first")
            engine.cancel("a")
            assert self.wait_for_state(engine, "a", "cancelled").output is None
            effects.released = True
            engine.start("b", {})
            assert engine.wait("b", SECONDS).state == "finished"
            engine.cancel("b")
            assert engine.wait("b", SECONDS).state == "finished"
        assert effects.ran == ["first", "first", "last"]

    def test_a_client_starts_workflows_for_workers(self, tmp_path: Path) -> None:
        client = self.engine(tmp_path, None)
        client.start("a", VALUE)
        status = client.status("a")
        assert status is not None
        assert status.state == "waiting"
        with self.open_engine(tmp_path, return_record):
            assert client.wait("a", SECONDS).state == "finished"
        client.close()


class StreamsSuite(Suite):
    """Engines with `Streams`."""

    def test_the_stream_of_a_step_can_be_read_during_the_step_and_afterwards(self, tmp_path: Path) -> None:
        async def workflow(steps: Steps, _: Json) -> Json:
            await steps.step("write", {"writes": [{"n": 1}, {"n": 2}]})
            return await steps.step("gate", {"waits": True})

        effects = Effects()
        with self.open_engine(tmp_path, workflow, effects) as engine:
            assert isinstance(engine, Streams)
            engine.start("a", {})
            self.wait_for_steps(engine, "a", "write")
            assert engine.read_stream("a", 0) == [{"n": 1}, {"n": 2}]
            effects.released = True
            engine.wait("a", SECONDS)
            assert engine.read_stream("a", 1) == [{"n": 2}]


class QueueSuite(Suite):
    """Engines with `HasQueue`."""

    def test_a_workflow_with_a_priority_is_started_once(self, tmp_path: Path) -> None:
        client = self.engine(tmp_path, None)
        assert isinstance(client, HasQueue)
        client.enqueue("a", {"first": True}, priority=2)
        client.enqueue("a", {"first": False}, priority=1)
        assert client.count_waiting() == 1
        with self.open_engine(tmp_path, return_record):
            assert client.wait("a", SECONDS).output == {"first": True}
        client.close()


class RetriesSuite(Suite):
    """Engines with `Retries`."""

    def test_a_workflow_that_broke_goes_on_from_its_last_step_when_it_is_tried_again(self, tmp_path: Path) -> None:
        breaks = [True]

        async def workflow(steps: Steps, _: Json) -> Json:
            first = await steps.step("first", {})
            if breaks:
                raise ValueError("this is why")
            return first

        effects = Effects()
        with self.open_engine(tmp_path, workflow, effects) as engine:
            assert isinstance(engine, Retries)
            engine.start("a", {})
            assert engine.wait("a", SECONDS).state == "broken"
            breaks.clear()
            engine.retry("a")
            assert self.wait_for_state(engine, "a", "finished").output == {"ran": "first"}
        assert effects.ran == ["first"]

    def test_a_cancelled_workflow_can_go_on_later(self, tmp_path: Path) -> None:
        effects = Effects()
        with self.open_engine(tmp_path, run_gated_steps, effects) as engine:
            assert isinstance(engine, Retries)
            engine.start("a", {})
            self.wait_for_steps(engine, "a", "first")
            engine.cancel("a")
            effects.released = True
            assert engine.wait("a", SECONDS).state == "cancelled"
            engine.retry("a")
            assert self.wait_for_state(engine, "a", "finished").output == {
                "first": {"ran": "first"},
                "last": {"ran": "last"},
            }
        assert effects.ran == ["first", "last"]


class CatalogSuite(Suite):
    """Engines with `Catalog`."""

    def test_workflows_can_be_deleted(self, tmp_path: Path) -> None:
        with self.open_engine(tmp_path, return_record) as engine:
            assert isinstance(engine, Catalog)
            assert engine.select(Selection(), limit=10) == []
            for id in ("a", "a#1", "b"):
                engine.start(id, {})
                engine.wait(id, SECONDS)
            engine.delete(["a", "a#1"])
            assert [status.id for status in engine.find(["a", "a#1", "b"])] == ["b"]
            assert engine.status("a") is None

    def test_runs_are_selected_by_state_prompt_and_age(self, tmp_path: Path) -> None:
        async def workflow(steps: Steps, record: Json) -> Json:
            if outcome := OUTCOMES.get(str(record.get("outcome"))):
                await steps.label(outcome)
            if record.get("raises"):
                raise ValueError("broken")
            return record

        records: dict[str, Json] = {
            "done": {},
            "paused": {"outcome": "paused"},
            "failed": {"outcome": "failed"},
            "broken": {"raises": True},
            "gone": {"outcome": "cancelled"},
            "answered": {"outcome": "paused"},
            "answered#1": {},
        }
        with self.open_engine(tmp_path, workflow) as engine:
            for id, record in records.items():
                engine.start(id, record, prompt=f"{id}.prompty")
                engine.wait(id, SECONDS)
        client = self.engine(tmp_path, None)
        assert isinstance(client, Catalog)
        client.start("queued", {}, prompt="queued.prompty")

        catalog: Catalog = client

        def select(*states: RunState, prompt: str | None = None, before: datetime | None = None) -> list[str]:
            selection = Selection(states=states, prompt=prompt, before=before)
            positions = catalog.select(selection, limit=100)
            assert positions == sorted(positions, reverse=True), "the newest is the first"
            return sorted(position.id for position in positions)

        assert select("waiting") == ["queued"]
        assert select("running") == []
        assert select("done") == ["answered#1", "done"]
        assert select("paused") == ["paused"], "one that was answered is not paused"
        assert select("failed") == ["broken", "failed"]
        assert select("cancelled") == ["gone"]
        assert select("paused", "cancelled") == ["gone", "paused"]
        everything = select()
        assert everything == ["answered#1", "broken", "done", "failed", "gone", "paused", "queued"]
        assert select(prompt="paused") == select(prompt="prompts/paused.prompty") == ["paused"]
        assert select(before=datetime.now(UTC) - timedelta(hours=1)) == []
        assert select(before=datetime.now(UTC) + timedelta(hours=1)) == everything
        for oldest_first in (False, True):
            pages, last = list[Position](), None
            while page := client.select(Selection(), limit=2, after=last, oldest_first=oldest_first):
                pages += page
                last = page[-1]
            assert pages == sorted(pages, reverse=not oldest_first)
            assert sorted(position.id for position in pages) == everything
        [counted] = client.count_versions()
        assert (counted.version, counted.waiting, counted.running, counted.ended) == (client.version, 1, 0, 7)
        client.close()


class BatchesSuite(Suite):
    """Engines with `Batches`."""

    def test_workflows_that_are_submitted_together_run_once_each(self, tmp_path: Path) -> None:
        effects = Effects()
        client = self.engine(tmp_path, None)
        assert isinstance(client, Batches)
        client.submit({"a": {"of": "a"}, "b": {"of": "b"}})
        client.submit({"b": {"of": "another"}, "c": {"of": "c"}})
        client.submit({})
        with self.open_engine(tmp_path, run_two_steps, effects) as engine:
            assert isinstance(engine, Batches)
            assert [self.get_record(engine.wait(id, SECONDS)) for id in "abc"] == [{"of": id} for id in "abc"]
            engine.submit({"c": {"of": "nobody"}, "d": {"of": "d"}})
            assert [self.get_record(engine.wait(id, SECONDS)) for id in "cd"] == [{"of": "c"}, {"of": "d"}]
        client.close()
        assert sorted(effects.ran) == ["first"] * 4 + ["last"] * 4

    def get_record(self, status: Status) -> object:
        assert isinstance(status.output, dict)
        return status.output["record"]

    def test_workflows_that_have_ended_are_found_with_the_number_of_their_recoveries(self, tmp_path: Path) -> None:
        effects = Effects()
        with self.open_engine(tmp_path, run_gated_steps, effects) as engine:
            assert isinstance(engine, Batches)
            engine.start("a", {})
            self.wait_for_steps(engine, "a", "first")
            assert engine.find_ended(["a"]) == []
        effects.released = True
        with self.open_engine(tmp_path, run_gated_steps, effects) as engine:
            assert isinstance(engine, Batches)
            engine.wait("a", SECONDS)
            engine.start("b", {})
            engine.wait("b", SECONDS)
            assert [(status.id, status.recovered) for status in engine.find_ended(["a", "b", "c"])] == [
                ("a", 1),
                ("b", 0),
            ]
            assert engine.find_ended([]) == []


class TakeoversSuite(Suite):
    """Engines with `Takeovers`."""

    def test_a_worker_that_says_that_it_stops_is_not_taken_over(self, tmp_path: Path) -> None:
        effects = Effects()
        with self.open_engine(tmp_path, run_gated_steps, effects, "first") as engine:
            engine.start("a", {})
            self.wait_for_steps(engine, "a", "first")
        effects.released = True
        with self.open_engine(tmp_path, run_gated_steps, effects, "second") as engine:
            assert isinstance(engine, Takeovers)
            assert engine.wait("a", SECONDS).state == "finished"
            assert not engine.is_taken_over("a")


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, or fail after `SECONDS`."""
    for _ in range(int(SECONDS / 0.05)):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"the condition did not hold within {SECONDS} seconds")


async def return_record(_: Steps, record: Json) -> Json:
    return record


async def run_two_steps(steps: Steps, record: Json) -> Json:
    await steps.step("first", {})
    return {"record": record, "last": await steps.step("last", {})}


async def run_gated_steps(steps: Steps, _: Json) -> Json:
    """Run two steps, and between them one that waits until it is released."""
    first = await steps.step("first", {})
    await steps.step("gate", {"waits": True})
    return {"first": first, "last": await steps.step("last", {})}
