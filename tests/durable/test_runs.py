"""Durable runs as people use them: submitted, read, paused, answered, steered, cancelled and pruned."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prompty import Guardrails, Message, Paused, ToolContext, deny, rewrite, tool, turn
from prompty.durable import Runs
from prompty.durable.outcome import read_record
from prompty.durable.record import stored_agent
from prompty.errors import Cancelled, IterationsExceeded, RequestError, RunBroken, UnknownRun
from prompty.events import Done, Event, ModelReply, RunCancelled, RunPaused, TextDelta, ToolFinished
from prompty.memory import InProcessMemory, SqliteMemory
from tests.batch.folder import until
from tests.conversations.turns import assert_history_is_legal
from tests.durable.databases import Databases
from tests.durable.runs import Desk, rounds, scripted, working

SECONDS = 30
LOOK = ["look"]
DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.database)]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def get_done(runs: Runs, run_id: str) -> Done:
    [done] = [event for _, event in runs.events(run_id) if isinstance(event, Done)]
    return done


def submit_paused(runs: Runs, script: list[Any], **options: Any) -> Paused:
    """Submit a run whose calls need approval, and return its pause."""
    run_id = runs.submit(scripted(script), tools=LOOK, approval="always", **options)
    paused = runs.result(run_id, timeout=SECONDS)
    assert isinstance(paused, Paused)
    return paused


def test_a_run_comes_to_what_the_same_turn_comes_to(url: str) -> None:
    agent, desk, plain = scripted(rounds("look", 3, 4)), Desk(), Desk()
    with working(url, desk.look) as worker:
        run_id = worker.runs.submit(agent, {"q": "Where?"}, tools=LOOK)
        assert worker.runs.result(run_id, timeout=SECONDS) == "Done."
        done = get_done(worker.runs, run_id)
    seen: list[Event] = []
    turn(agent, {"q": "Where?"}, tools=[plain.look], on_event=seen.append)
    [expected] = [event for event in seen if isinstance(event, Done)]
    assert (done.result, done.usage, done.iterations) == (expected.result, expected.usage, expected.iterations)
    assert [message.to_json() for message in done.messages] == [message.to_json() for message in expected.messages]
    assert sorted(desk.seen) == sorted(plain.seen)


def test_a_run_keeps_the_model_that_it_was_submitted_with(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nameless = scripted(["Done."])
    nameless = nameless.model_copy(update={"model": nameless.model.model_copy(update={"id": ""})})
    with Runs(url) as client:
        monkeypatch.setenv("PROMPTY_MODEL", "scripted:of-the-client")
        from_environment = client.submit(nameless)
        chosen = client.submit(nameless, model="scripted:of-the-caller", options={"temperature": 0.5})
        monkeypatch.setenv("PROMPTY_MODEL", "scripted:of-the-worker")
        with working(url):
            for run_id, model in ((from_environment, "of-the-client"), (chosen, "of-the-caller")):
                assert client.result(run_id, timeout=SECONDS) == "Done."
                [status] = client.client.list_workflows(workflow_ids=[run_id])
                stored = stored_agent(read_record(status), {})
                assert stored.model.id == model
            assert stored.model.options.temperature == 0.5


def test_the_calls_work_in_threads_of_asynchronous_code(url: str) -> None:
    async def main(runs: Runs) -> object:
        agent = scripted(rounds("look", 1, 2))
        run_id = await asyncio.to_thread(runs.submit, agent, tools=LOOK, approval="always", steering=True)
        paused = await asyncio.to_thread(runs.result, run_id, timeout=SECONDS)
        await asyncio.to_thread(runs.answer, paused, [True, True])
        return await asyncio.to_thread(runs.result, run_id, timeout=SECONDS)

    with working(url, Desk().look) as worker:
        assert asyncio.run(main(worker.runs)) == "Done."


def test_a_run_that_is_not_under_way_is_not_steered(url: str) -> None:
    with working(url, Desk().look) as worker:
        run_id = worker.runs.submit(scripted(rounds("look", 1, 1)), tools=LOOK, approval="always", steering=True)
        worker.runs.result(run_id, timeout=SECONDS)
        worker.runs.cancel(run_id)
        with pytest.raises(RequestError, match="not under way"):
            worker.runs.steer(run_id, "Hello?")


def test_a_repeated_id_starts_nothing_and_some_ids_are_refused(url: str) -> None:
    with Runs(url) as runs:
        assert runs.submit(scripted(["One."]), run_id="mine") == "mine"
        assert runs.submit(scripted(["Two."]), run_id="mine") == "mine"
        for wrong in ("a#1", ""):
            with pytest.raises(RequestError, match="the run id"):
                runs.submit(scripted(["One."]), run_id=wrong)
        with working(url):
            assert runs.result("mine", timeout=SECONDS) == "One."
        assert runs.submit(scripted(["Two."]), run_id="mine") == "mine"
        assert runs.get("mine").state == "done"


def test_a_run_does_not_take_the_id_of_a_workflow_of_another_program(url: str) -> None:
    with Runs(url) as runs:
        runs.client.enqueue({"workflow_name": "theirs", "queue_name": "theirs", "workflow_id": "taken"})
        with pytest.raises(RequestError, match="has a workflow of another program with the id 'taken'"):
            runs.submit(scripted(["One."]), run_id="taken")
        assert runs.list() == []


def test_events_can_be_read_from_any_point_and_afterwards_by_another_client_without_tools(url: str) -> None:
    with working(url, Desk().look) as worker:
        run_id = worker.runs.submit(scripted(rounds("look", 2, 2)), tools=LOOK)
        live = list(worker.runs.events(run_id))
    with Runs(url) as reader:
        assert list(reader.events(run_id)) == live
        assert [event.position for event in live] == list(range(1, len(live) + 1))
        assert list(reader.events(run_id, after=5)) == live[5:]
        assert [event for _, event in live if isinstance(event, ToolFinished)]
        with pytest.raises(UnknownRun):
            list(reader.events("nobody"))


def test_an_event_keeps_its_position_whichever_of_two_calls_was_stored_first(url: str) -> None:
    """The order in which two calls are stored is a matter of milliseconds, which readers see at different times."""

    @tool
    async def look(at: str) -> str:
        """Look at something: at the first thing for longer."""
        await asyncio.sleep(0.5 if at == "0/0" else 0)
        return at

    with working(url, look) as worker:
        run_id = worker.runs.submit(scripted(rounds("look", 1, 3)), tools=LOOK)
        live = list(worker.runs.events(run_id))
        finished = [event for _, event in live if isinstance(event, ToolFinished)]
        assert [event.result.text for event in finished] == ["0/0", "0/1", "0/2"]
        assert list(worker.runs.events(run_id)) == live


def test_words_are_told_while_they_come_and_kept(url: str) -> None:
    with working(url) as worker:
        run_id = worker.runs.submit(scripted(["One two three."]), stream=True)
        assert worker.runs.result(run_id, timeout=SECONDS) == "One two three."
        events = [event for _, event in worker.runs.events(run_id)]
    words = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert words == "One two three."
    before = events[: next(at for at, event in enumerate(events) if isinstance(event, ModelReply))]
    assert any(isinstance(event, TextDelta) for event in before)


def test_a_tool_gets_the_key_of_its_call(url: str) -> None:
    keys: list[str] = []

    @tool
    def look(at: str, context: ToolContext) -> str:
        keys.append(context.key)
        return at

    with working(url, look) as worker:
        worker.runs.submit(scripted(rounds("look", 2, 2)), run_id="mine", tools=LOOK)
        worker.runs.result("mine", timeout=SECONDS)
    assert sorted(keys) == ["mine:1:0", "mine:1:1", "mine:2:0", "mine:2:1"]


def test_an_approval_pauses_the_run_and_the_answer_goes_on_with_it(url: str) -> None:
    desk = Desk()
    with working(url, desk.look) as worker:
        runs = worker.runs
        paused = submit_paused(runs, rounds("look", 1, 2))
        assert desk.seen == []
        assert [one.state for one in runs.list()] == ["paused"]
        events = [event for _, event in runs.events(paused.run_id)]
        assert isinstance(events[-1], RunPaused)
        runs.answer(paused.run_id, {paused.pending[0].key: True, paused.pending[1].key: deny("not there")})
        assert runs.result(paused.run_id, timeout=SECONDS) == "Done."
        done = get_done(runs, paused.run_id)
    assert desk.seen == ["0/0"]
    assert [message.text for message in done.messages if message.role == "tool"] == [
        "seen 0/0",
        "Tool 'look' was denied: not there",
    ]


def test_the_same_answer_twice_is_one_and_another_answer_is_refused(url: str) -> None:
    desk = Desk()
    with working(url, desk.look) as worker:
        runs = worker.runs
        first = submit_paused(runs, rounds("look", 2, 1))
        runs.answer(first, [True])
        runs.answer(first, [True])
        with pytest.raises(RequestError, match="answered otherwise"):
            runs.answer(first, [deny("no")])
        second = runs.result(first.run_id, timeout=SECONDS)
        assert second != first
        runs.answer(first, [True])
        with pytest.raises(RequestError, match="answered otherwise"):
            runs.answer(first, [deny("no")])
        assert desk.seen == ["0/0"]
        runs.answer(second, [True])
        assert runs.result(first.run_id, timeout=SECONDS) == "Done."
        runs.answer(first.run_id, [True])
        assert [(one.state, one.segments) for one in runs.list()] == [("done", 3)]
        with pytest.raises(RequestError, match="1 calls wait"):
            runs.answer(first.run_id, [True, True])
    assert desk.seen == ["0/0", "1/0"]


def test_who_was_never_asked_cannot_be_answered(url: str) -> None:
    with working(url) as worker:
        run_id = worker.runs.submit(scripted(["Done."]))
        worker.runs.result(run_id, timeout=SECONDS)
        with pytest.raises(RequestError, match="does not wait for this answer"):
            worker.runs.answer(run_id, [True])
        with pytest.raises(UnknownRun):
            worker.runs.answer("nobody", [True])


def test_an_answer_whose_giver_died_before_the_run_was_woken_is_not_lost(url: str) -> None:
    desk = Desk()
    with working(url, desk.look) as worker:
        paused = submit_paused(worker.runs, rounds("look", 1, 1))
        with Runs(url) as dying:
            dying._wake = lambda id: None  # type: ignore[method-assign]  # it dies here
            dying.answer(paused, [True])
        assert worker.runs.get(paused.run_id).state == "waiting"  # whoever looks wakes it
        assert worker.runs.result(paused.run_id, timeout=SECONDS) == "Done."
    assert desk.seen == ["0/0"]


def test_a_client_submits_and_a_worker_runs(url: str) -> None:
    with Runs(url) as client:
        run_id = client.submit(scripted(rounds("look", 1, 1)), tools=LOOK)
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.2 s"):
            client.result(run_id, timeout=0.2)
        with working(url, Desk().look):
            assert client.result(run_id, timeout=SECONDS) == "Done."


def test_a_worker_without_the_tool_says_so(url: str) -> None:
    with Runs(url) as client:
        run_id = client.submit(scripted(rounds("look", 1, 1)), tools=LOOK)
        with working(url), pytest.raises(RequestError, match="has no tool 'look'"):
            client.result(run_id, timeout=SECONDS)


def test_a_person_can_steer_a_run(url: str) -> None:
    steered: list[Runs] = []

    @tool
    def look(at: str) -> str:
        while steered:
            steered.pop().steer("mine", "Look closer.")
        return at

    with working(url, look) as worker:
        steered.append(worker.runs)
        worker.runs.submit(scripted(rounds("look", 1, 1)), run_id="mine", steering=True, tools=LOOK)
        assert worker.runs.result("mine", timeout=SECONDS)
        done = get_done(worker.runs, "mine")
        assert [message.text for message in done.messages if message.role == "user"] == ["Hi", "Look closer."]
        with pytest.raises(RequestError, match="not under way"):
            worker.runs.steer("mine", "Too late.")


def test_a_run_that_was_paused_can_be_steered_and_its_events_are_read(url: str) -> None:
    with working(url, Desk().look) as worker:
        runs = worker.runs
        paused = submit_paused(runs, rounds("look", 1, 1), steering=True)
        with pytest.raises(RequestError, match="answer the one that waits"):
            runs.steer(paused.run_id, "Too early.")
        runs.answer(paused, [True])
        assert runs.result(paused.run_id, timeout=SECONDS) == "Done."
        assert isinstance([event for _, event in runs.events(paused.run_id)][-1], Done)


def test_a_run_that_does_not_listen_cannot_be_steered(url: str) -> None:
    with Runs(url) as client:
        run_id = client.submit(scripted(["Done."]))
        with pytest.raises(RequestError, match="steering=True"):
            client.steer(run_id, "Hello?")


def test_a_cancelled_run_ends_with_a_history_to_go_on_from(url: str) -> None:
    desk = Desk()
    stopped = threading.Event()

    @tool
    async def hang(at: str) -> str:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()
        return at

    script = [*rounds("look", 1, 1)[:1], [{"call": "hang", "arguments": {"at": "x"}}], "never"]
    with working(url, desk.look, hang) as worker:
        runs = worker.runs
        run_id = runs.submit(scripted(script), tools=["look", "hang"])
        for event in runs.events(run_id):
            if isinstance(event.event, ModelReply) and event.event.reply.tool_calls[0].name == "hang":
                break
        runs.cancel(run_id)
        with pytest.raises(Cancelled) as raised:
            runs.result(run_id, timeout=SECONDS)
        assert stopped.wait(SECONDS)
        events = [event for _, event in runs.events(run_id)]
        assert isinstance(events[-1], RunCancelled)
        assert [one.state for one in runs.list()] == ["cancelled"]
    roles = [message.role for message in raised.value.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert "interrupted" in raised.value.messages[-1].text
    assert_history_is_legal(raised.value.messages)


def test_a_run_that_ended_is_not_cancelled(url: str) -> None:
    with working(url) as worker:
        run_id = worker.runs.submit(scripted(["Done."]))
        worker.runs.result(run_id, timeout=SECONDS)
        worker.runs.cancel(run_id)
        assert worker.runs.get(run_id).state == "done"
        assert worker.runs.result(run_id) == "Done."


def test_a_run_that_ended_while_it_was_cancelled_is_what_dbos_says(url: str) -> None:
    """The canceller noted it, and the worker had stored the end."""
    with working(url) as worker:
        run_id = worker.runs.submit(scripted(["Done."]))
        worker.runs.result(run_id, timeout=SECONDS)
        worker.runs.table.update(run_id, state="cancelled")
        assert worker.runs.result(run_id, timeout=SECONDS) == "Done."
        assert [run.state for run in worker.runs.list()] == ["done"]
        assert [run.id for run in worker.runs.list("done")] == [run_id], "its row is right again"


def test_a_workflow_that_was_cancelled_with_the_tools_of_dbos_is_a_cancelled_run(url: str) -> None:
    with Runs(url) as runs:
        run_id = runs.submit(scripted(["Done."]))
        runs.client.cancel_workflow(run_id)
        with pytest.raises(Cancelled):
            runs.result(run_id, timeout=SECONDS)
        assert [run.id for run in runs.list("cancelled")] == [run_id]


def test_a_paused_run_can_be_cancelled(url: str) -> None:
    with working(url, Desk().look) as worker:
        paused = submit_paused(worker.runs, rounds("look", 1, 1))
        worker.runs.cancel(paused.run_id)
        with pytest.raises(Cancelled) as raised:
            worker.runs.result(paused.run_id, timeout=SECONDS)
        assert [message.role for message in raised.value.messages] == ["system", "user"]
        with pytest.raises(RequestError, match="does not wait for this answer"):
            worker.runs.answer(paused, [True])


def test_a_failure_is_raised_with_its_messages_in_any_process(url: str) -> None:
    with working(url, Desk().look) as worker:
        run_id = worker.runs.submit(scripted(rounds("look", 5, 1)), max_iterations=2, tools=LOOK)
        with pytest.raises(IterationsExceeded) as raised:
            worker.runs.result(run_id, timeout=SECONDS)
    with Runs(url) as reader, pytest.raises(IterationsExceeded) as again:
        reader.result(run_id)
    assert again.value.limit == 2
    assert [message.to_json() for message in again.value.messages] == [
        message.to_json() for message in raised.value.messages
    ]


def test_runs_are_listed_and_pruned_when_they_have_ended(url: str) -> None:
    with working(url, Desk().look) as worker:
        runs = worker.runs
        runs.submit(scripted(["Done."]), run_id="ended")
        runs.result("ended", timeout=SECONDS)
        submit_paused(runs, rounds("look", 1, 1), run_id="paused")
        assert {one.id: one.state for one in runs.list()} == {"ended": "done", "paused": "paused"}
        assert [one.id for one in runs.list("paused")] == ["paused"]
        assert runs.prune(timedelta(days=1)) == 0
        assert runs.prune(timedelta(0)) == 1
        assert [one.id for one in runs.list()] == ["paused"]
        with pytest.raises(UnknownRun):
            runs.get("ended")


def test_a_session_is_remembered_once(url: str, tmp_path: Path) -> None:
    store = SqliteMemory(tmp_path / "sessions.db")
    with working(url, Desk().look, memory=store) as worker:
        for question in ("One?", "Two?"):
            run_id = worker.runs.submit(scripted(rounds("look", 1, 1)), {"q": question}, session_id="mine", tools=LOOK)
            assert worker.runs.result(run_id, timeout=SECONDS) == "Done."
    roles = [message["role"] for message in store.load("mine")]
    assert roles == ["user", "assistant", "tool", "assistant"] * 2


def test_gate_and_guardrails_are_the_workers_and_what_they_said_is_kept(url: str) -> None:
    def shouted(message: Message) -> object:
        return rewrite(message.text.upper())

    parts: dict[str, Any] = {
        "gate": lambda calls: [True, deny("not this")],
        "guardrails": Guardrails(output=shouted, input=lambda messages: True, tool=lambda call: True),
        "memory": InProcessMemory(),
    }
    with working(url, Desk().look, **parts) as worker:
        run_id = worker.runs.submit(scripted(rounds("look", 1, 2)), tools=LOOK)
        assert worker.runs.result(run_id, timeout=SECONDS) == "DONE."
        live = list(worker.runs.events(run_id))
    with Runs(url) as reader:
        assert list(reader.events(run_id)) == live
    assert len(live) > 10


def test_a_worker_that_asks_others_than_the_one_that_began_breaks_the_run_which_can_be_retried(url: str) -> None:
    going_on: list[bool] = []

    @tool(idempotent=True)
    async def look(at: str) -> str:
        while not going_on:
            await asyncio.sleep(0.02)
        return at

    def gate(calls: list[object]) -> object:
        return [True] * len(calls)

    with working(url, look, gate=gate) as worker:
        worker.runs.submit(scripted(rounds("look", 1, 1)), run_id="mine", tools=LOOK)
        until(lambda: len(worker.runs.client.list_workflow_steps("mine")) == 3)
    going_on.append(True)
    with working(url, look) as worker, pytest.raises(RunBroken, match="was begun with a gate"):
        worker.runs.result("mine", timeout=SECONDS)
    with working(url, look, gate=gate) as worker:
        worker.runs.retry("mine")
        assert worker.runs.result("mine", timeout=SECONDS) == "Done."


def test_a_worker_that_is_closed_in_the_middle_of_a_tool_stores_no_result_of_it(url: str) -> None:
    begun: list[str] = []

    @tool(idempotent=True)
    async def look(at: str) -> str:
        begun.append(at)
        await asyncio.sleep(SECONDS if len(begun) == 1 else 0)
        return f"seen {at}"

    with working(url, look) as worker:
        worker.runs.submit(scripted(rounds("look", 1, 1)), run_id="mine", tools=LOOK)
        until(lambda: begun == ["0/0"])
    with working(url, look) as worker:
        assert worker.runs.result("mine", timeout=SECONDS) == "Done."
        events = [event.event for event in worker.runs.events("mine")]
        results = [event.result.text for event in events if isinstance(event, ToolFinished)]
    assert results == ["seen 0/0"]


@pytest.mark.parametrize("kind", DATABASES)
def test_a_run_passes_through_all_hands(kind: str, databases: Databases) -> None:
    """Once on each database: submitted by a client, paused, answered, cancelled, retried, read, listed and pruned."""
    url, desk = databases.new(kind), Desk()
    with Runs(url) as client, working(url, desk.look):
        paused = submit_paused(client, rounds("look", 2, 2), run_id="mine", tenant="acme", stream=True)
        assert [run.id for run in client.list("paused", tenant="acme", prefix="mi")] == ["mine"]
        client.cancel("mine")
        client.retry("mine")
        assert client.result("mine", timeout=SECONDS) == paused, "it waits for the same answer again"
        client.answer("mine", [True, True])
        again = client.result("mine", timeout=SECONDS)
        assert isinstance(again, Paused)
        client.answer(again, [True, deny("no")])
        assert client.result("mine", timeout=SECONDS) == "Done."
        assert sorted(desk.seen) == ["0/0", "0/1", "1/0"]
        assert isinstance([event for _, event in client.events("mine")][-1], Done)
        assert client.prune(timedelta(0), tenant="acme") == 1
        assert client.list() == []
