"""Tests that every engine must pass. Derive a class from `EngineSuite` in your own tests, and return your engine:

class TestMyEngine(EngineSuite):
    def engine(self, folder, name):
        return MyEngine(folder / "runs", name)
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from prompty.durable.engine import Engine, Status, StepBody, Steps, Workflow
from prompty.durable.selection import Position, RunState, Selection
from prompty.model.message import Json

VALUE: Json = {"text": "Grüße, 世界 🌍 \x00", "number": 1.5, "big": 2**60, "nothing": None, "list": [True, {"a": []}]}
SECONDS = 30.0


class EngineSuite:
    """The tests. Each has an empty folder."""

    def engine(self, folder: Path, name: str | None) -> Engine:
        """Return an engine on this folder, which may already hold workflows."""
        raise NotImplementedError

    @contextmanager
    def open_engine(self, folder: Path, workflow: Workflow, name: str = "worker") -> Iterator[Engine]:
        engine = self.engine(folder, name)
        engine.open(workflow)
        try:
            yield engine
        finally:
            engine.close()

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
            assert engine.select(Selection(), limit=10) == []
            assert engine.steps("a") == []

    def test_a_workflow_that_is_started_twice_runs_once(self, tmp_path: Path) -> None:
        runs: list[Json] = []

        async def workflow(_: Steps, record: Json) -> Json:
            runs.append(record)
            return record

        with self.open_engine(tmp_path, workflow) as engine:
            engine.start("a", {"first": True})
            engine.start("a", {"first": False})
            assert engine.wait("a", SECONDS).output == {"first": True}
            engine.start("a", {"first": False})
            assert engine.wait("a", SECONDS).output == {"first": True}
        assert runs == [{"first": True}]

    def test_workflows_that_are_submitted_together_run_once_each(self, tmp_path: Path) -> None:
        runs: list[Json] = []

        async def workflow(_: Steps, record: Json) -> Json:
            runs.append(record)
            return record

        client = self.engine(tmp_path, None)
        client.submit({"a": {"of": "a"}, "b": {"of": "b"}})
        client.submit({"b": {"of": "another"}, "c": {"of": "c"}})
        client.submit({})
        with self.open_engine(tmp_path, workflow) as engine:
            assert [engine.wait(id, SECONDS).output for id in "abc"] == [{"of": "a"}, {"of": "b"}, {"of": "c"}]
            engine.submit({"c": {"of": "nobody"}, "d": {"of": "d"}})
            assert [engine.wait(id, SECONDS).output for id in "cd"] == [{"of": "c"}, {"of": "d"}]
        client.close()
        assert sorted(str(run["of"]) for run in runs) == ["a", "b", "c", "d"]

    def test_steps_that_left_a_result_are_not_run_again_when_the_worker_comes_back(self, tmp_path: Path) -> None:
        ran: list[str] = []
        released: list[bool] = []

        async def workflow(steps: Steps, _: Json) -> Json:
            first = await steps.step("first", append_name(ran, "first"))
            await steps.step("gate", wait_for(released))
            return {"first": first, "last": await steps.step("last", append_name(ran, "last"))}

        with self.open_engine(tmp_path, workflow) as engine:
            engine.start("a", {})
            self.wait_for_steps(engine, "a", "first")
        released.append(True)
        with self.open_engine(tmp_path, workflow) as engine:
            assert engine.wait("a", SECONDS).output == {"first": {"ran": "first"}, "last": {"ran": "last"}}
            assert [step.name for step in engine.steps("a")] == ["first", "gate", "last"]
            assert [status.recovered for status in engine.find_ended(["a"])] == [1]
        assert ran == ["first", "last"]

    def test_steps_that_run_concurrently_keep_their_own_results_whatever_order_they_end_in(
        self, tmp_path: Path
    ) -> None:
        ran: list[str] = []
        released: list[bool] = []

        async def slow(number: int) -> Json:
            ran.append(str(number))
            await asyncio.sleep(0.05 * (4 - number))
            return {"number": number}

        async def workflow(steps: Steps, _: Json) -> Json:
            stage = [asyncio.create_task(steps.step(f"tool:{number}", partial(slow, number))) for number in range(4)]
            results = await asyncio.gather(*stage)
            await steps.step("gate", wait_for(released))
            return {"results": list(results)}

        with self.open_engine(tmp_path, workflow) as engine:
            engine.start("a", {})
            self.wait_for_steps(engine, "a", *[f"tool:{number}" for number in range(4)])
        released.append(True)
        with self.open_engine(tmp_path, workflow) as engine:
            assert engine.wait("a", SECONDS).output == {"results": [{"number": number} for number in range(4)]}
        assert sorted(ran) == ["0", "1", "2", "3"]

    def test_a_workflow_that_raises_is_broken_and_says_why(self, tmp_path: Path) -> None:
        async def workflow(_: Steps, __: Json) -> Json:
            raise ValueError("this is why")

        with self.open_engine(tmp_path, workflow) as engine:
            engine.start("a", {})
            status = engine.wait("a", SECONDS)
            assert status.state == "broken"
            assert "this is why" in (status.error or "")

    def test_a_workflow_that_broke_goes_on_from_its_last_step_when_it_is_tried_again(self, tmp_path: Path) -> None:
        ran: list[str] = []

        async def workflow(steps: Steps, _: Json) -> Json:
            first = await steps.step("first", append_name(ran, "first"))
            if len(ran) == 1:
                ran.append("broke")
                raise ValueError("this is why")
            return first

        with self.open_engine(tmp_path, workflow) as engine:
            engine.start("a", {})
            assert engine.wait("a", SECONDS).state == "broken"
            engine.retry("a")
            assert self.wait_for_state(engine, "a", "finished").output == {"ran": "first"}
        assert ran == ["first", "broke"]

    def test_what_is_sent_is_received_once_and_in_order(self, tmp_path: Path) -> None:
        released: list[bool] = []

        async def workflow(steps: Steps, _: Json) -> Json:
            none = await steps.receive()
            await steps.step("gate", wait_for(released))
            return {"none": none, "some": await steps.receive(), "more": await steps.receive()}

        with self.open_engine(tmp_path, workflow) as engine:
            engine.start("a", {})
            self.wait_for_steps(engine, "a", "received:1")
            engine.send("a", "one")
            engine.send("a", "two")
            released.append(True)
            assert engine.wait("a", SECONDS).output == {"none": [], "some": ["one", "two"], "more": []}
            results = {step.name: step.result for step in engine.steps("a")}
        assert {name: results[name] for name in sorted(results) if name.startswith("received")} == {
            "received:1": [],
            "received:2": ["one", "two"],
            "received:3": [],
        }

    def test_the_stream_of_a_step_can_be_read_during_the_step_and_afterwards(self, tmp_path: Path) -> None:
        async def workflow(steps: Steps, _: Json) -> Json:
            async def write_twice() -> Json:
                await steps.write({"n": 1})
                await steps.write({"n": 2})
                return {}

            return await steps.step("write", write_twice)

        with self.open_engine(tmp_path, workflow) as engine:
            engine.start("a", {})
            engine.wait("a", SECONDS)
            assert engine.read_stream("a", 0) == [{"n": 1}, {"n": 2}]
            assert engine.read_stream("a", 1) == [{"n": 2}]

    def test_a_cancelled_workflow_ends_and_can_go_on_later(self, tmp_path: Path) -> None:
        ran: list[str] = []
        released: list[bool] = []

        async def workflow(steps: Steps, _: Json) -> Json:
            await steps.step("first", append_name(ran, "first"))
            await steps.step("gate", wait_for(released))
            return await steps.step("last", append_name(ran, "last"))

        with self.open_engine(tmp_path, workflow) as engine:
            engine.start("a", {})
            self.wait_for_steps(engine, "a", "first")
            engine.cancel("a")
            released.append(True)
            assert engine.wait("a", SECONDS).state == "cancelled"
            engine.retry("a")
            assert self.wait_for_state(engine, "a", "finished").output == {"ran": "last"}
            engine.cancel("a")
            assert engine.wait("a", SECONDS).state == "finished"
        assert ran == ["first", "last"]

    def test_workflows_are_found_by_their_ids_and_can_be_deleted(self, tmp_path: Path) -> None:
        with self.open_engine(tmp_path, return_record) as engine:
            for id in ("a", "a#1", "b"):
                engine.start(id, {})
                engine.wait(id, SECONDS)
            assert [status.id for status in engine.find(["b", "a#1", "a", "c"])] == ["a", "a#1", "b"]
            assert engine.find([]) == []
            assert [status.id for status in engine.find_ended(["a", "b", "c"])] == ["a", "b"]
            assert engine.find_ended([]) == []
            engine.delete(["a", "a#1"])
            assert [status.id for status in engine.find(["a", "a#1", "b"])] == ["b"]
            assert engine.status("a") is None

    def test_runs_are_selected_by_state_prompt_and_age(self, tmp_path: Path) -> None:
        async def workflow(steps: Steps, record: Json) -> Json:
            if outcome := record.get("outcome"):
                await steps.label(outcome)  # type: ignore[arg-type]  # one of the outcomes
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
        client.start("queued", {}, prompt="queued.prompty")

        def select(*states: RunState, prompt: str | None = None, before: datetime | None = None) -> list[str]:
            selection = Selection(states=states, prompt=prompt, before=before)
            positions = client.select(selection, limit=100)
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

    def test_a_client_starts_workflows_for_workers(self, tmp_path: Path) -> None:
        client = self.engine(tmp_path, None)
        client.start("a", VALUE)
        status = client.status("a")
        assert status is not None
        assert status.state == "waiting"
        assert client.find_ended(["a"]) == []
        with self.open_engine(tmp_path, return_record):
            assert client.wait("a", SECONDS).state == "finished"
            assert [status.recovered for status in client.find_ended(["a"])] == [0]
        client.close()

    def test_a_worker_that_stops_leaves_its_workflows_to_a_worker_of_any_name(self, tmp_path: Path) -> None:
        released: list[bool] = []

        async def workflow(steps: Steps, _: Json) -> Json:
            await steps.step("first", append_name([], "first"))
            return await steps.step("gate", wait_for(released))

        with self.open_engine(tmp_path, workflow, "first") as engine:
            engine.start("a", {})
            self.wait_for_steps(engine, "a", "first")
        released.append(True)
        with self.open_engine(tmp_path, workflow, "second") as engine:
            assert engine.wait("a", SECONDS).state == "finished"
            assert not engine.is_taken_over("a"), "its worker said that it stopped"

    def test_a_worker_with_a_lease_may_act(self, tmp_path: Path) -> None:
        async def workflow(steps: Steps, record: Json) -> Json:
            await steps.fence()
            return record

        with self.open_engine(tmp_path, workflow) as engine:
            engine.start("a", VALUE)
            assert engine.wait("a", SECONDS).output == VALUE

    def wait_for_steps(self, engine: Engine, id: str, *names: str) -> None:
        """Wait until these steps have ended."""
        wait_until(lambda: set(names) <= {step.name for step in engine.steps(id)})

    def wait_for_state(self, engine: Engine, id: str, state: str) -> Status:
        """Wait until a workflow has this state, and return its status."""
        wait_until(lambda: engine.wait(id, 0).state == state)
        return engine.wait(id, 0)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, or fail after `SECONDS`."""
    for _ in range(int(SECONDS / 0.05)):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"the condition did not hold within {SECONDS} seconds")


async def return_record(_: Steps, record: Json) -> Json:
    return record


def append_name(ran: list[str], name: str) -> StepBody:
    async def body() -> Json:
        ran.append(name)
        return {"ran": name}

    return body


def wait_for(released: list[bool]) -> StepBody:
    """Return a step that ends when `released` is not empty."""

    async def body() -> Json:
        while not released:
            await asyncio.sleep(0.02)
        return {}

    return body
