"""Durable runs as people use them: started, read, paused, answered, steered, cancelled, listed and pruned."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prompty import Guardrails, Message, Paused, ToolContext, deny, rewrite, tool, turn
from prompty.durable import DurableRuntime
from prompty.durable.record import record_from, stored_agent
from prompty.errors import Cancelled, IterationsExceeded, RequestError, RunBroken, UnknownRun
from prompty.events import Done, ModelReply, RunCancelled, RunPaused, TextDelta, ToolFinished
from prompty.memory import InProcessMemory, SqliteMemory
from prompty.model.event import Event
from prompty.testing import Script
from tests.conversations.turns import assert_history_is_legal
from tests.durable.runs import Desk, rounds, scripted, working
from tests.durable.suite import wait_until

SECONDS = 30


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def test_a_run_comes_to_what_the_same_turn_comes_to(url: str) -> None:
    agent, desk, plain = scripted(rounds("look", 3, 4)), Desk(), Desk()
    with working(url, desk.look) as runtime:
        run = runtime.start(agent, {"q": "Where?"})
        assert run.result(timeout=SECONDS) == "Done."
        [done] = [event for _, event in run.events() if isinstance(event, Done)]
    seen: list[Event] = []
    turn(agent, {"q": "Where?"}, tools=[plain.look], on_event=seen.append)
    [expected] = [event for event in seen if isinstance(event, Done)]
    assert (done.result, done.usage, done.iterations) == (expected.result, expected.usage, expected.iterations)
    assert [message.to_json() for message in done.messages] == [message.to_json() for message in expected.messages]
    assert sorted(desk.seen) == sorted(plain.seen)


def test_a_run_keeps_the_model_that_it_was_started_with(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nameless = scripted(["Done."])
    nameless = nameless.model_copy(update={"model": nameless.model.model_copy(update={"id": ""})})
    client = DurableRuntime(url)
    monkeypatch.setenv("PROMPTY_MODEL", "scripted:of-the-client")
    from_environment = client.start(nameless)
    chosen = client.start(nameless, model="scripted:of-the-caller", options={"temperature": 0.5})
    monkeypatch.setenv("PROMPTY_MODEL", "scripted:of-the-worker")
    with working(url) as runtime:
        for run, model in ((from_environment, "of-the-client"), (chosen, "of-the-caller")):
            assert runtime.attach(run.id).result(timeout=SECONDS) == "Done."
            status = runtime.engine.status(run.id)
            assert status is not None
            stored = stored_agent(record_from(status.record, run.id), {})
            assert stored.model.id == model
        assert stored.model.options.temperature == 0.5
    client.close()


def test_the_same_in_asynchronous_code(url: str) -> None:
    async def main() -> list[str]:
        async with DurableRuntime(url, name="worker", tools=[Desk().look]) as runtime:
            run = await runtime.start_async(scripted(rounds("look", 1, 2)))
            assert await run.result_async(timeout=SECONDS) == "Done."
            assert (await runtime.attach_async(run.id)).id == run.id
            assert [one.state for one in await runtime.list_async()] == ["done"]
            return [type(event.event).__name__ async for event in run.events_async()]

    names = asyncio.run(main())
    assert names[:3] == ["RunStarted", "IterationStarted", "ModelReply"]
    assert names[-1] == "Done"


def test_events_can_be_read_from_any_point_and_afterwards_by_another_process_without_tools(url: str) -> None:
    with working(url, Desk().look) as runtime:
        run = runtime.start(scripted(rounds("look", 2, 2)))
        live = list(run.events())
    reader = DurableRuntime(url)
    again = list(reader.events(run.id))
    assert again == live
    assert [event.position for event in live] == list(range(1, len(live) + 1))
    assert list(reader.events(run.id, after=5)) == live[5:]
    assert [event for _, event in live if isinstance(event, ToolFinished)]
    reader.close()


def test_words_are_told_while_they_come_and_kept(url: str) -> None:
    with working(url) as runtime:
        run = runtime.start(scripted(["One two three."]), stream=True)
        assert run.result(timeout=SECONDS) == "One two three."
        events = [event for _, event in run.events()]
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

    with working(url, look) as runtime:
        runtime.start(scripted(rounds("look", 2, 2)), run_id="mine").result(timeout=SECONDS)
    assert sorted(keys) == ["mine:1:0", "mine:1:1", "mine:2:0", "mine:2:1"]


def test_an_approval_pauses_the_run_and_the_answer_goes_on_with_it(url: str) -> None:
    desk = Desk()
    with working(url, desk.look) as runtime:
        run = runtime.start(scripted(rounds("look", 1, 2)), approval="always")
        paused = run.result(timeout=SECONDS)
        assert isinstance(paused, Paused)
        assert desk.seen == []
        assert [one.state for one in runtime.list()] == ["paused"]
        events = [event for _, event in run.events()]
        assert isinstance(events[-1], RunPaused)
        runtime.answer(run.id, {paused.pending[0].key: True, paused.pending[1].key: deny("not there")})
        assert run.result(timeout=SECONDS) == "Done."
        [done] = [event for _, event in run.events() if isinstance(event, Done)]
    assert desk.seen == ["0/0"]
    assert [message.text for message in done.messages if message.role == "tool"] == [
        "seen 0/0",
        "Tool 'look' was denied: not there",
    ]


def test_the_same_answer_twice_starts_one_segment_and_another_answer_is_refused(url: str) -> None:
    desk = Desk()
    with working(url, desk.look) as runtime:
        run = runtime.start(scripted(rounds("look", 2, 1)), approval="always")
        first = run.result(timeout=SECONDS)
        runtime.answer(first, [True])
        runtime.answer(first, [True])
        second = run.result(timeout=SECONDS)
        assert second != first
        runtime.answer(first, [True])
        with pytest.raises(RequestError, match="answered otherwise"):
            runtime.answer(first, [deny("no")])
        assert desk.seen == ["0/0"]
        runtime.answer(second, [True])
        assert run.result(timeout=SECONDS) == "Done."
        runtime.answer(run.id, [True])
        assert [(one.state, one.segments) for one in runtime.list()] == [("done", 3)]
        with pytest.raises(RequestError, match="1 calls wait"):
            runtime.answer(run.id, [True, True])
    assert desk.seen == ["0/0", "1/0"]


def test_who_does_not_work_starts_runs_and_a_worker_runs_them(url: str) -> None:
    client = DurableRuntime(url)
    run = client.start(scripted(rounds("look", 1, 1)), tools=["look"])
    with pytest.raises(TimeoutError):
        run.result(timeout=0.2)
    with working(url, Desk().look):
        assert run.result(timeout=SECONDS) == "Done."
    client.close()


def test_a_worker_without_the_tool_says_so(url: str) -> None:
    client = DurableRuntime(url)
    run = client.start(scripted(rounds("look", 1, 1)), tools=["look"])
    with working(url), pytest.raises(RequestError, match="this worker has no tool 'look'"):
        run.result(timeout=SECONDS)
    client.close()


def test_a_person_can_steer_a_run(url: str) -> None:
    steered: list[DurableRuntime] = []

    @tool
    def look(at: str) -> str:
        while steered:
            steered.pop().steer("mine", "Look closer.")
        return at

    with working(url, look) as runtime:
        steered.append(runtime)
        run = runtime.start(scripted(rounds("look", 1, 1)), run_id="mine", steering=True)
        assert run.result(timeout=SECONDS)
        [done] = [event for _, event in run.events() if isinstance(event, Done)]
        assert [message.text for message in done.messages if message.role == "user"] == ["Hi", "Look closer."]
        with pytest.raises(RequestError, match="not under way"):
            runtime.steer("mine", "Too late.")


def test_a_run_that_does_not_listen_cannot_be_steered(url: str) -> None:
    client = DurableRuntime(url)
    run = client.start(scripted(["Done."]))
    with pytest.raises(RequestError, match="steering=True"):
        client.steer(run.id, "Hello?")
    client.close()


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
    with working(url, desk.look, hang) as runtime:
        run = runtime.start(scripted(script))
        for event in run.events():
            if isinstance(event.event, ModelReply) and event.event.reply.tool_calls[0].name == "hang":
                break
        runtime.cancel(run.id)
        with pytest.raises(Cancelled) as raised:
            run.result(timeout=SECONDS)
        assert stopped.wait(SECONDS)
        events = [event for _, event in run.events()]
        assert isinstance(events[-1], RunCancelled)
        assert [one.state for one in runtime.list()] == ["cancelled"]
    roles = [message.role for message in raised.value.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert "interrupted" in raised.value.messages[-1].text
    assert_history_is_legal(raised.value.messages)


def test_a_paused_run_can_be_cancelled(url: str) -> None:
    with working(url, Desk().look) as runtime:
        run = runtime.start(scripted(rounds("look", 1, 1)), approval="always")
        assert isinstance(run.result(timeout=SECONDS), Paused)
        runtime.cancel(run.id)
        with pytest.raises(Cancelled) as raised:
            run.result(timeout=SECONDS)
    assert_history_is_legal(raised.value.messages)


def test_a_failure_is_raised_with_its_messages_in_any_process(url: str) -> None:
    with working(url, Desk().look) as runtime:
        run = runtime.start(scripted(rounds("look", 5, 1)), max_iterations=2)
        with pytest.raises(IterationsExceeded) as raised:
            run.result(timeout=SECONDS)
    reader = DurableRuntime(url)
    with pytest.raises(IterationsExceeded) as again:
        reader.result(run.id)
    assert again.value.limit == 2
    assert [message.to_json() for message in again.value.messages] == [
        message.to_json() for message in raised.value.messages
    ]
    reader.close()


def test_runs_are_listed_and_pruned_when_they_have_ended(url: str) -> None:
    with working(url, Desk().look) as runtime:
        runtime.start(scripted(["Done."]), run_id="ended").result(timeout=SECONDS)
        runtime.start(scripted(rounds("look", 1, 1)), run_id="paused", approval="always").result(timeout=SECONDS)
        assert {one.id: one.state for one in runtime.list()} == {"ended": "done", "paused": "paused"}
        assert [one.id for one in runtime.list("paused")] == ["paused"]
        assert runtime.prune(timedelta(days=1)) == 0
        assert runtime.prune(timedelta(0)) == 1
        assert [one.id for one in runtime.list()] == ["paused"]
        with pytest.raises(UnknownRun):
            runtime.attach("ended")


def test_a_session_is_remembered_once(url: str, tmp_path: Path) -> None:
    store = SqliteMemory(tmp_path / "sessions.db")
    with working(url, Desk().look, memory=store) as runtime:
        for question in ("One?", "Two?"):
            run = runtime.start(scripted(rounds("look", 1, 1)), {"q": question}, session_id="mine")
            assert run.result(timeout=SECONDS) == "Done."
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
    with working(url, Desk().look, **parts) as runtime:
        run = runtime.start(scripted(rounds("look", 1, 2)))
        assert run.result(timeout=SECONDS) == "DONE."
        live = list(run.events())
    reader = DurableRuntime(url)
    assert list(reader.events(run.id)) == live
    assert len(live) > 10
    reader.close()


def test_a_worker_that_asks_others_than_the_one_that_began_breaks_the_run_which_can_be_retried(url: str) -> None:
    going_on: list[bool] = []

    @tool(idempotent=True)
    async def look(at: str) -> str:
        while not going_on:
            await asyncio.sleep(0.02)
        return at

    def gate(calls: list[object]) -> object:
        return [True] * len(calls)

    with working(url, look, gate=gate) as runtime:
        runtime.start(scripted(rounds("look", 1, 1)), run_id="mine")
        wait_until(lambda: len(runtime.engine.steps("mine")) == 3)
    going_on.append(True)
    with working(url, look) as runtime, pytest.raises(RunBroken, match="was begun by a worker with"):
        runtime.result("mine", timeout=SECONDS)
    with working(url, look, gate=gate) as runtime:
        runtime.retry("mine")
        wait_until(lambda: runtime.list()[0].state == "done")
        assert runtime.result("mine") == "Done."


def test_a_worker_that_is_closed_in_the_middle_of_a_tool_stores_no_result_of_it(url: str) -> None:
    begun: list[str] = []

    @tool(idempotent=True)
    async def look(at: str) -> str:
        begun.append(at)
        await asyncio.sleep(SECONDS if len(begun) == 1 else 0)
        return f"seen {at}"

    with working(url, look) as runtime:
        runtime.start(scripted(rounds("look", 1, 1)), run_id="mine")
        wait_until(lambda: begun == ["0/0"])
    with working(url, look) as runtime:
        assert runtime.result("mine", timeout=SECONDS) == "Done."
        results = [event.event.result.text for event in runtime.events("mine") if isinstance(event.event, ToolFinished)]
    assert results == ["seen 0/0"]


def test_a_url_that_is_no_database_is_refused() -> None:
    with pytest.raises(RequestError, match="unsupported database URL"):
        DurableRuntime("mysql://somewhere")


def test_the_script_of_a_test_answers_runs_that_are_started_within_it(url: str) -> None:
    with working(url) as runtime, Script("Hello."):
        assert runtime.start(scripted([])).result(timeout=SECONDS) == "Hello."
