"""What every engine must do, as tests: derive a class from `EngineSuite` in your own tests, and give it an engine.

class TestMyEngine(EngineSuite):
    def engine(self, folder, name):
        return MyEngine(folder / "runs", name)
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from prompty.durable.engine import Body, Engine, Status, Steps, Workflow
from prompty.errors import NameInUse
from prompty.model.message import Json

VALUE: Json = {"text": "Grüße, 世界 🌍 \x00", "number": 1.5, "big": 2**60, "nothing": None, "list": [True, {"a": []}]}
SECONDS = 30.0


class EngineSuite:
    """The tests; `folder` is an empty one for each."""

    def engine(self, folder: Path, name: str | None) -> Engine:
        """A new engine, or a second look at what is in this folder."""
        raise NotImplementedError

    @contextmanager
    def opened(self, folder: Path, workflow: Workflow, name: str = "worker") -> Iterator[Engine]:
        engine = self.engine(folder, name)
        engine.open(workflow)
        try:
            yield engine
        finally:
            engine.close()

    def test_a_workflow_gives_what_it_returned(self, tmp_path: Path) -> None:
        async def workflow(_: Steps, record: Json) -> Json:
            return {"seen": record}

        with self.opened(tmp_path, workflow) as engine:
            engine.start("a", VALUE)
            status = engine.wait("a", SECONDS)
            assert (status.state, status.output) == ("finished", {"seen": VALUE})
            known = engine.status("a")
            assert known is not None
            assert (known.record, known.worker) == (VALUE, "worker")

    def test_what_is_not_there_is_none(self, tmp_path: Path) -> None:
        with self.opened(tmp_path, nothing) as engine:
            assert engine.status("a") is None
            assert engine.find() == []
            assert engine.steps("a") == []

    def test_a_workflow_that_is_started_twice_runs_once(self, tmp_path: Path) -> None:
        runs: list[Json] = []

        async def workflow(_: Steps, record: Json) -> Json:
            runs.append(record)
            return record

        with self.opened(tmp_path, workflow) as engine:
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

        outside = self.engine(tmp_path, None)
        outside.submit({"a": {"of": "a"}, "b": {"of": "b"}})
        outside.submit({"b": {"of": "another"}, "c": {"of": "c"}})
        outside.submit({})
        with self.opened(tmp_path, workflow) as engine:
            assert [engine.wait(id, SECONDS).output for id in "abc"] == [{"of": "a"}, {"of": "b"}, {"of": "c"}]
            engine.submit({"c": {"of": "nobody"}, "d": {"of": "d"}})
            assert [engine.wait(id, SECONDS).output for id in "cd"] == [{"of": "c"}, {"of": "d"}]
        outside.close()
        assert sorted(str(run["of"]) for run in runs) == ["a", "b", "c", "d"]

    def test_steps_that_left_a_result_are_not_run_again_when_the_worker_comes_back(self, tmp_path: Path) -> None:
        ran: list[str] = []
        going_on: list[bool] = []

        async def workflow(steps: Steps, _: Json) -> Json:
            first = await steps.step("first", noting(ran, "first"))
            await steps.step("gate", waiting(going_on))
            return {"first": first, "last": await steps.step("last", noting(ran, "last"))}

        with self.opened(tmp_path, workflow) as engine:
            engine.start("a", {})
            self.reached(engine, "a", "first")
        going_on.append(True)
        with self.opened(tmp_path, workflow) as engine:
            assert engine.wait("a", SECONDS).output == {"first": {"ran": "first"}, "last": {"ran": "last"}}
            assert [step.name for step in engine.steps("a")] == ["first", "gate", "last"]
            assert [status.recovered for status in engine.ended(["a"])] == [1]
        assert ran == ["first", "last"]

    def test_steps_beside_each_other_keep_their_own_results_however_they_end(self, tmp_path: Path) -> None:
        ran: list[str] = []
        going_on: list[bool] = []

        async def slow(number: int) -> Json:
            ran.append(str(number))
            await asyncio.sleep(0.05 * (4 - number))
            return {"number": number}

        async def workflow(steps: Steps, _: Json) -> Json:
            stage = [asyncio.create_task(steps.step(f"tool:{number}", partial(slow, number))) for number in range(4)]
            results = await asyncio.gather(*stage)
            await steps.step("gate", waiting(going_on))
            return {"results": list(results)}

        with self.opened(tmp_path, workflow) as engine:
            engine.start("a", {})
            self.reached(engine, "a", *[f"tool:{number}" for number in range(4)])
        going_on.append(True)
        with self.opened(tmp_path, workflow) as engine:
            assert engine.wait("a", SECONDS).output == {"results": [{"number": number} for number in range(4)]}
        assert sorted(ran) == ["0", "1", "2", "3"]

    def test_a_workflow_that_raises_is_broken_and_says_why(self, tmp_path: Path) -> None:
        async def workflow(_: Steps, __: Json) -> Json:
            raise ValueError("this is why")

        with self.opened(tmp_path, workflow) as engine:
            engine.start("a", {})
            status = engine.wait("a", SECONDS)
            assert status.state == "broken"
            assert "this is why" in (status.error or "")

    def test_a_workflow_that_broke_goes_on_from_its_last_step_when_it_is_tried_again(self, tmp_path: Path) -> None:
        ran: list[str] = []

        async def workflow(steps: Steps, _: Json) -> Json:
            first = await steps.step("first", noting(ran, "first"))
            if len(ran) == 1:
                ran.append("broke")
                raise ValueError("this is why")
            return first

        with self.opened(tmp_path, workflow) as engine:
            engine.start("a", {})
            assert engine.wait("a", SECONDS).state == "broken"
            engine.retry("a")
            assert self.state_of(engine, "a", "finished").output == {"ran": "first"}
        assert ran == ["first", "broke"]

    def test_what_is_sent_is_received_once_and_in_order(self, tmp_path: Path) -> None:
        going_on: list[bool] = []

        async def workflow(steps: Steps, _: Json) -> Json:
            none = await steps.received()
            await steps.step("gate", waiting(going_on))
            return {"none": none, "some": await steps.received(), "more": await steps.received()}

        with self.opened(tmp_path, workflow) as engine:
            engine.start("a", {})
            self.reached(engine, "a", "received:1")
            engine.send("a", "one")
            engine.send("a", "two")
            going_on.append(True)
            assert engine.wait("a", SECONDS).output == {"none": [], "some": ["one", "two"], "more": []}
            kept = {step.name: step.result for step in engine.steps("a")}
        assert {name: kept[name] for name in sorted(kept) if name.startswith("received")} == {
            "received:1": [],
            "received:2": ["one", "two"],
            "received:3": [],
        }

    def test_what_a_step_tells_can_be_read_by_others_meanwhile_and_afterwards(self, tmp_path: Path) -> None:
        async def workflow(steps: Steps, _: Json) -> Json:
            async def telling() -> Json:
                await steps.write({"n": 1})
                await steps.write({"n": 2})
                return {}

            return await steps.step("telling", telling)

        with self.opened(tmp_path, workflow) as engine:
            engine.start("a", {})
            engine.wait("a", SECONDS)
            assert engine.written("a", 0) == [{"n": 1}, {"n": 2}]
            assert engine.written("a", 1) == [{"n": 2}]

    def test_a_cancelled_workflow_ends_and_can_go_on_later(self, tmp_path: Path) -> None:
        ran: list[str] = []
        going_on: list[bool] = []

        async def workflow(steps: Steps, _: Json) -> Json:
            await steps.step("first", noting(ran, "first"))
            await steps.step("gate", waiting(going_on))
            return await steps.step("last", noting(ran, "last"))

        with self.opened(tmp_path, workflow) as engine:
            engine.start("a", {})
            self.reached(engine, "a", "first")
            engine.cancel("a")
            going_on.append(True)
            assert engine.wait("a", SECONDS).state == "cancelled"
            engine.retry("a")
            assert self.state_of(engine, "a", "finished").output == {"ran": "last"}
            engine.cancel("a")
            assert engine.wait("a", SECONDS).state == "finished"
        assert ran == ["first", "last"]

    def test_workflows_are_found_by_how_their_ids_begin_and_can_be_forgotten(self, tmp_path: Path) -> None:
        with self.opened(tmp_path, nothing) as engine:
            for id in ("a", "a#1", "b"):
                engine.start(id, {})
                engine.wait(id, SECONDS)
            assert [status.id for status in engine.find("a")] == ["a", "a#1"]
            assert [status.id for status in engine.find()] == ["a", "a#1", "b"]
            assert [status.id for status in engine.ended(["a", "b", "c"])] == ["a", "b"]
            assert engine.ended([]) == []
            engine.delete(["a", "a#1"])
            assert [status.id for status in engine.find()] == ["b"]
            assert engine.status("a") is None

    def test_who_has_no_name_starts_workflows_for_workers(self, tmp_path: Path) -> None:
        client = self.engine(tmp_path, None)
        client.start("a", VALUE)
        status = client.status("a")
        assert status is not None
        assert status.state == "waiting"
        assert client.ended(["a"]) == []
        with self.opened(tmp_path, nothing):
            assert client.wait("a", SECONDS).state == "finished"
            assert [status.recovered for status in client.ended(["a"])] == [0]
        client.close()

    def test_a_name_has_one_worker_at_a_time(self, tmp_path: Path) -> None:
        with self.opened(tmp_path, nothing), pytest.raises(NameInUse, match="'worker'"):
            self.locked(tmp_path, "worker")
        with self.opened(tmp_path, nothing):
            pass

    def locked(self, folder: Path, name: str) -> None:
        """Have another process try to work under a name. Engines of which a process can have several need no more."""
        self.engine(folder, name).open(nothing)

    def test_the_workflows_of_a_worker_that_does_not_come_back_are_adopted(self, tmp_path: Path) -> None:
        going_on: list[bool] = []

        async def workflow(steps: Steps, _: Json) -> Json:
            await steps.step("first", noting([], "first"))
            return await steps.step("gate", waiting(going_on))

        with self.opened(tmp_path, workflow, "lost") as engine:
            engine.start("a", {})
            self.reached(engine, "a", "first")
        going_on.append(True)
        with self.opened(tmp_path, workflow, "other") as engine:
            assert engine.wait("a", 1).state == "running"
            assert engine.adopt("lost") == 1
            assert engine.wait("a", SECONDS).state == "finished"
            assert engine.adopt("lost") == 0

    def reached(self, engine: Engine, id: str, *names: str) -> None:
        """Wait until these steps have left their results."""
        until(lambda: set(names) <= {step.name for step in engine.steps(id)})

    def state_of(self, engine: Engine, id: str, state: str) -> Status:
        """The status of a workflow when it has come to a state."""
        until(lambda: engine.wait(id, 0).state == state)
        return engine.wait(id, 0)


def until(holds: Callable[[], bool]) -> None:
    """Wait for something, but not forever."""
    for _ in range(int(SECONDS / 0.05)):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


async def nothing(_: Steps, record: Json) -> Json:
    return record


def noting(ran: list[str], name: str) -> Body:
    async def body() -> Json:
        ran.append(name)
        return {"ran": name}

    return body


def waiting(going_on: list[bool]) -> Body:
    """A step that ends when somebody says so."""

    async def body() -> Json:
        while not going_on:
            await asyncio.sleep(0.02)
        return {}

    return body
