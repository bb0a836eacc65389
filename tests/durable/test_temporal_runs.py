"""Durable runs on Temporal as people use them: two workers share the steps of each run."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from prompty import Paused, PromptAgent, deny, tool, turn
from prompty.durable import DurableRuntime, Limits
from prompty.errors import Cancelled, MissingExtra, RequestError, UnknownRun
from prompty.events import Done, RunCancelled, ToolFinished
from prompty.model.event import Event
from tests.durable.runs import Desk, rounds, scripted, working
from tests.durable.suite import wait_until
from tests.durable.temporal import TemporalServer
from tests.durable.test_secrets import BOUND, INPUT, KEY, TENANT, agent as agent

SECONDS = 30


@pytest.fixture
def url(temporal: TemporalServer) -> str:
    return temporal.namespace()


@pytest.fixture
def client(url: str) -> Iterator[DurableRuntime]:
    client = DurableRuntime(url)
    yield client
    client.close()


def test_a_run_comes_to_what_the_same_turn_comes_to_and_both_workers_have_a_share(
    url: str, client: DurableRuntime
) -> None:
    agent, desks, plain = scripted(rounds("look", 4, 4)), [Desk(), Desk()], Desk()
    with ExitStack() as stack:
        for number, desk in enumerate(desks):
            stack.enter_context(working(url, desk.look, name=f"worker {number}"))
        runs = [client.start(agent, {"q": "Where?"}, tools=["look"]) for _ in range(4)]
        assert [run.result(timeout=SECONDS) for run in runs] == ["Done."] * 4
        histories = [list(run.events()) for run in runs]
    [done] = [event for _, event in histories[0] if isinstance(event, Done)]
    seen: list[Event] = []
    turn(agent, {"q": "Where?"}, tools=[plain.look], on_event=seen.append)
    [expected] = [event for event in seen if isinstance(event, Done)]
    assert (done.result, done.usage, done.iterations) == (expected.result, expected.usage, expected.iterations)
    assert [message.to_json() for message in done.messages] == [message.to_json() for message in expected.messages]
    assert sorted(desks[0].seen + desks[1].seen) == sorted(plain.seen * 4)
    assert desks[0].seen
    assert desks[1].seen


def test_events_can_be_read_from_any_point_and_by_a_process_without_tools(url: str, client: DurableRuntime) -> None:
    with working(url, Desk().look) as runtime:
        run = runtime.start(scripted(rounds("look", 2, 2)))
        live = list(run.events())
    assert list(client.events(run.id)) == live
    assert list(client.events(run.id, after=5)) == live[5:]
    assert [event for _, event in live if isinstance(event, ToolFinished)]


def test_an_approval_pauses_the_run_and_the_answer_goes_on_with_it(url: str, client: DurableRuntime) -> None:
    desk = Desk()
    with working(url, desk.look):
        run = client.start(scripted(rounds("look", 1, 2)), tools=["look"], approval="always")
        paused = run.result(timeout=SECONDS)
        assert isinstance(paused, Paused)
        assert desk.seen == []
        assert client.summary(run.id).state == "paused"
        for _ in range(2):  # the same answer again changes nothing
            client.answer(paused, [True, deny("no")])
        assert run.result(timeout=SECONDS) == "Done."
        assert desk.seen == ["0/0"]
        assert client.summary(run.id).segments == 2
        with pytest.raises(RequestError, match="answered otherwise"):
            client.answer(run.id, [True, True])


def test_a_run_is_steered_while_another_worker_may_perform_its_steps(url: str, client: DurableRuntime) -> None:
    going_on = threading.Event()

    @tool
    async def look(at: str) -> str:
        """Look."""
        while not going_on.is_set():
            await asyncio.sleep(0.02)
        return at

    with working(url, look, name="first"), working(url, look, name="second"):
        run = client.start(scripted(rounds("look", 3, 1)), tools=["look"], steering=True)
        wait_until(lambda: client.summary(run.id).state == "running")
        client.steer(run.id, "Be quick.")
        client.steer(run.id, "And kind.")
        going_on.set()
        assert run.result(timeout=SECONDS) == "Done."
        *_, last = run.events()
    assert isinstance(last.event, Done)
    said = [message.text for message in last.event.messages if message.role == "user"]
    assert said == ["Hi", "Be quick.", "And kind."]
    with pytest.raises(RequestError, match="not under way"):
        client.steer(run.id, "Too late.")


def test_a_cancelled_run_ends_where_it_is_and_its_tool_ends_too(url: str, client: DurableRuntime) -> None:
    begun, ended = threading.Event(), threading.Event()

    @tool
    async def look(at: str) -> str:
        """Look for ever."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return at

    with working(url, look, lease=2):
        run = client.start(scripted(rounds("look", 1, 1)), tools=["look"])
        assert begun.wait(SECONDS)
        client.cancel(run.id)
        with pytest.raises(Cancelled) as raised:
            run.result(timeout=SECONDS)
        assert raised.value.messages[-1].role == "tool"
        assert isinstance(list(run.events())[-1].event, RunCancelled)
        assert ended.wait(3)
        client.cancel(run.id)  # it has ended


def test_a_run_that_no_worker_has_taken_waits_and_can_be_cancelled(client: DurableRuntime) -> None:
    run = client.start(scripted(["Done."]), run_id="mine")
    assert client.summary("mine").state == "waiting"
    client.cancel("mine")
    with pytest.raises(Cancelled):
        run.result(timeout=SECONDS)
    with pytest.raises(UnknownRun):
        client.cancel("other")


def test_a_call_whose_worker_stopped_is_asked_about_unless_it_may_be_repeated(url: str) -> None:
    begun: list[str] = []
    going_on = threading.Event()

    async def act(name: str) -> str:
        begun.append(name)
        while not going_on.is_set():
            await asyncio.sleep(0.02)
        return name

    @tool
    async def pay() -> str:
        """Pay, once."""
        return await act("pay")

    @tool(idempotent=True)
    async def look() -> str:
        """Look."""
        return await act("look")

    script = [[{"call": "pay", "arguments": {}}, {"call": "look", "arguments": {}}], "Done."]
    with working(url, pay, look) as runtime:
        runtime.start(scripted(script), run_id="mine")
        wait_until(lambda: len(begun) == 2)
    going_on.set()
    with working(url, pay, look) as runtime:
        paused = runtime.result("mine", timeout=SECONDS)
        assert [(call.name, call.unknown) for call in paused.pending] == [("pay", True)]
        runtime.answer(paused, [True])
        assert runtime.result("mine", timeout=SECONDS) == "Done."
    assert sorted(begun) == ["look", "look", "pay", "pay"]


def test_no_secret_is_in_the_history(
    url: str, client: DurableRuntime, temporal: TemporalServer, agent: PromptAgent
) -> None:
    @tool
    async def look(at: str, token: str, tenant: str, password: str) -> str:
        assert (token, tenant, password) == (BOUND, TENANT, INPUT)
        return f"seen {at}"

    with working(url, look, secrets={"the password": INPUT}) as runtime:
        run = runtime.start(agent, {"password": INPUT}, run_id="mine", approval={"look": "always"})
        paused = run.result(timeout=SECONDS)
        while isinstance(paused, Paused):
            runtime.answer(paused, [True])
            paused = run.result(timeout=SECONDS)
        assert paused == "Done."
    stored = temporal.read_history(url)
    assert b"DURABLE_TEST_KEY" in stored
    for secret in (KEY, BOUND, TENANT, INPUT):
        assert secret.encode() not in stored


def test_a_run_that_temporal_cannot_store_is_refused_at_the_start(client: DurableRuntime) -> None:
    with pytest.raises(RequestError, match="Give large inputs as references"):
        client.start(scripted(["Done."]), {"q": "x" * 2_100_000})


def test_what_temporal_cannot_do_is_refused_with_a_fix(url: str, client: DurableRuntime) -> None:
    agent = scripted(["Done."])
    refused: dict[str, Callable[[], object]] = {
        "Leave `stream` out": lambda: client.start(agent, stream=True),
        "Leave `priority`": lambda: client.start(agent, priority=1),
        "Leave `priority` and `tenant` out": lambda: client.start(agent, tenant="a"),
        "Pass the conversation as `messages`": lambda: client.start(agent, session_id="mine"),
        "Leave out deadline": lambda: client.start(agent, deadline=timedelta(hours=1)),
        "Leave out deadline, pause_timeout": lambda: client.start(agent, pause_timeout=timedelta(hours=1)),
        "Use the tools of its server": lambda: client.list(),
        "Use a database": lambda: client.batches,
        "Limit the steps of each worker": lambda: DurableRuntime(url, limits=Limits(concurrency=1)),
        "the steps of each": lambda: DurableRuntime(url, limits=Limits(rate=(1, 1))),
        "of each worker": lambda: DurableRuntime(url, limits=Limits(tenant_concurrency=1)),
        "worker_concurrency": lambda: DurableRuntime(url, limits=Limits(max_waiting=1)),
    }
    for fix, call in refused.items():
        with pytest.raises(RequestError, match=fix):
            call()
    client.start(agent, run_id="mine")
    client.cancel("mine")
    with pytest.raises(RequestError, match="cannot continue a run that has ended"):
        client.retry("mine")


def test_a_worker_performs_so_many_steps_at_once(url: str, client: DurableRuntime) -> None:
    running: list[int] = []
    most: list[int] = []

    @tool
    async def look(at: str) -> str:
        """Look."""
        running.append(1)
        most.append(len(running))
        await asyncio.sleep(0.05)
        running.pop()
        return at

    with working(url, look, limits=Limits(worker_concurrency=2)):
        assert client.start(scripted(rounds("look", 1, 6)), tools=["look"]).result(timeout=SECONDS) == "Done."
    assert max(most) == 2


@pytest.mark.parametrize(
    ("address", "problem"),
    {
        "temporal://user:key@127.0.0.1:7233/a": "has credentials",
        "temporal:///a": "unreadable address",
        "temporal://127.0.0.1:port/a": "unreadable address",
        "temporal://127.0.0.1:7233/a/b": "unreadable address",
    }.items(),
)
def test_an_address_that_cannot_be_right_is_refused(address: str, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        DurableRuntime(address)


def test_a_connection_that_would_not_be_encrypted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEMPORAL_TLS", raising=False)
    client = DurableRuntime("temporal://temporal.invalid:7233/default")
    with pytest.raises(RequestError, match="TEMPORAL_TLS=true"):
        client.attach("mine")
    client.close()


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "temporalio", None)
    with pytest.raises(MissingExtra, match=r"prompty-runtime\[temporal\]"):
        DurableRuntime("temporal://127.0.0.1/default")


def test_a_server_that_is_not_there_is_named(url: str) -> None:
    client = DurableRuntime("temporal://127.0.0.1:1/default")
    with pytest.raises(RequestError, match=r"Temporal at 127\.0\.0\.1:1 does not answer"):
        client.attach("mine")
    client.close()


LOOK = """\
---
model:
  id: m
  provider: scripted
  options: {additionalProperties: {script: [{call: look, arguments: {at: here}}, Done.]}}
tools:
  - {name: look, kind: function, approvalMode: always, parameters: {at: string}}
---
user:
Look.
"""


@pytest.mark.process
def test_the_command_line_works_with_temporal(url: str, tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(
        "from prompty import tool\n\n\n@tool\ndef look(at: str) -> str:\n    return f'seen {at}'\n"
    )
    (tmp_path / "look.prompty").write_text(LOOK)

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "prompty", *arguments, "--database", url]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)  # noqa: S603  our own
        return done.stdout + done.stderr

    command = [sys.executable, "-m", "prompty", "worker", "--tools", "functions.py", "--database", url]
    worker = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)  # noqa: S603  our own
    try:
        assert worker.stdout is not None
        assert "working on temporal://" in worker.stdout.readline()
        assert run("submit", "look.prompty", "--id", "mine") == "mine\n"
        wait_until(lambda: "mine: paused" in run("runs", "show", "mine"))
        run("runs", "answer", "mine", "yes")
        wait_until(lambda: "mine: done" in run("runs", "show", "mine"))
        assert "Use the tools of its server" in run("runs", "list")
        assert "Use the tools of its server" in run("worker", "--keep", "7d")
        assert "cannot serve probes" in run("worker", "--probes", "0")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(SECONDS) == 0
    finally:
        worker.kill()
        worker.wait()
        if worker.stdout is not None:
            worker.stdout.close()
