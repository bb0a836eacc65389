"""Turns inside a workflow of Temporal: its model and tool calls are activities, and the workflow decides alone."""

import asyncio
import dataclasses
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, cast

import pytest
from hypothesis import given, strategies as st
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.converter import (
    DataConverter,
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from prompty import Guardrails, Message, Paused, PromptAgent, ToolCall, deny, rewrite, tool
from prompty.durable import use_result
from prompty.durable.envelope import seal
from prompty.durable.performer import Performer
from prompty.durable.temporal import PromptyPlugin, answer, find_pause, steer, turn
from prompty.durable.temporal_worker import KnownTurn, Missing
from prompty.durable.temporal_workflow import SentMessages, encode
from prompty.errors import RequestError
from prompty.events import GatedCall
from prompty.loop.effects import AskGate, CheckGuardrail, DescribeTools, PlannedCall, Summarise
from prompty.memory import InProcessMemory
from prompty.messages import TextPart
from tests.durable.own import until
from tests.durable.own_temporal import LEASE, Model, Together, Turns, UntilPaid, new_id, working, write_prompt
from tests.durable.temporal import TemporalServer
from tests.soak import SOAK, Keep
from tests.strategies import json_objects, names, texts
from tests.tools.test_mcp_http import OwnServer, running

P = ParamSpec("P")
SECONDS = 30
PAYING = [[{"call": "pay", "arguments": {"at": "home"}}], "Paid."]
MCP = "tools: [{name: own, kind: mcp, serverName: own, allowedTools: [add]}]\n"


def in_event_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an async test."""

    @wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **options), 120))

    return run


@dataclass
class Desk:
    """Tools that note what they do. `hold` makes them wait."""

    seen: list[str] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    ended: list[str] = field(default_factory=list)
    hold: bool = False

    @tool
    async def pay(self, at: str) -> str:
        """Pay, which must happen once."""
        return await self._act(f"paid {at}")

    @tool(idempotent=True)
    async def look(self, at: str) -> str:
        """Look at something."""
        return await self._act(f"seen {at}")

    async def _act(self, text: str) -> str:
        self.seen.append(text)
        self.began.set()
        try:
            while self.hold:
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.ended.append(text)
            raise
        return text

    @property
    def tools(self) -> list[Any]:
        return [self.pay, self.look]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    found = Model(tmp_path)
    with found.internet:
        found.internet.use(monkeypatch.setenv)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
        monkeypatch.setattr("prompty.loop.model_step.FIRST_WAIT", 0.01)
        yield found


@pytest.fixture
def mcp_server(clean_registry: None) -> Iterator[OwnServer]:
    yield from running(OwnServer())


async def run_turns(client: Client, queue: str, *turns: dict[str, Any]) -> list[Any]:
    return await client.execute_workflow(Turns.run, list(turns), id=new_id(), task_queue=queue)


async def start_turns(client: Client, queue: str, *turns: dict[str, Any]) -> WorkflowHandle[Any, Any]:
    return await client.start_workflow(Turns.run, list(turns), id=new_id(), task_queue=queue)


async def wait_for_pause(handle: WorkflowHandle[Any, Any], name: str = "") -> Paused:
    for _ in range(SECONDS * 20):
        paused = await find_pause(handle)
        if paused is not None and name in paused.pending[0].name:
            return paused
        await asyncio.sleep(0.05)
    raise AssertionError("the workflow did not pause")


async def fail_turns(client: Client, queue: str, *turns: dict[str, Any]) -> ApplicationError:
    with pytest.raises(WorkflowFailureError) as failure:
        await run_turns(client, queue, *turns)
    assert isinstance(failure.value.cause, ApplicationError), failure.value.cause
    return failure.value.cause


Parts = st.tuples(st.integers(0, 2), st.text(max_size=4))


@given(st.lists(st.tuples(st.sampled_from(["user", "made", "ask", "drop"]), Parts), max_size=25))
def test_each_worker_reads_the_messages_that_the_workflow_means(steps: list[tuple[str, tuple[int, str]]]) -> None:
    """Whichever worker is asked, it knows a message, is sent it, or says that it lacks it, and is sent it then."""
    workers = [KnownTurn(lambda: cast(Performer, None), None) for _ in range(3)]
    sent, messages = SentMessages(), list[Message]()
    for kind, (number, text) in steps:
        worker = workers[number]
        if kind == "drop":
            messages = messages[number:]
        elif kind == "user":
            messages.append(Message("user", (TextPart(text),)))
        elif kind == "made":
            made = Message("assistant", (TextPart(text),))
            stored = seal({"message": made.to_json()})
            worker.note(stored)
            sent.note(stored)
            messages.append(made)
        else:
            assert read_as_sent(sent, worker, messages) == messages


def read_as_sent(sent: SentMessages, worker: KnownTurn, messages: list[Message]) -> list[Message]:
    encoded = json.loads(json.dumps(sent.encode(messages)))
    for _ in range(2):
        try:
            read = worker.read(encoded)
            sent.have_arrived()
            return read
        except Missing as missing:
            worker.learn(json.loads(json.dumps(sent.read(missing.lacking or ()))))
    raise AssertionError("a worker is told at once what it lacks")


GATED = st.builds(
    GatedCall, id=names, name=names, arguments=json_objects, key=names, bound=st.lists(names, max_size=2).map(tuple)
)
CALLS = st.builds(
    PlannedCall,
    call=st.builds(ToolCall, id=names, name=names, arguments=names),
    arguments=json_objects,
    key=names,
    timeout=st.none() | st.floats(0, 9),
)
SAID = st.builds(lambda text: Message("user", (TextPart(text),)), texts)
EFFECTS = (
    st.just(DescribeTools())
    | CALLS
    | st.lists(GATED, max_size=3).map(lambda calls: AskGate(tuple(calls)))
    | GATED.map(lambda call: CheckGuardrail("tool", call))
    | SAID.map(lambda message: CheckGuardrail("output", message))
    | st.lists(SAID, max_size=4).map(lambda messages: CheckGuardrail("input", tuple(messages)))
    | st.builds(Summarise, st.lists(SAID, max_size=4).map(tuple), st.integers(1, 9))
)


@given(EFFECTS)
def test_an_activity_reads_the_effect_that_the_workflow_wants(wanted: Any) -> None:
    effect = encode(wanted, SentMessages().encode)
    assert KnownTurn(lambda: cast(Performer, None), None).decode(json.loads(json.dumps(effect))) == wanted


def test_what_temporal_cannot_hold_is_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    refused: dict[str, Callable[[], object]] = {
        "number of seconds above 0": lambda: PromptyPlugin(lease=0),
        "no lock can be held": lambda: PromptyPlugin(memory=InProcessMemory()),
        r"turn\(…, stop=…\)": lambda: PromptyPlugin(stop=lambda _: True),
        r"turn\(…, messages=…\)": lambda: asyncio.run(turn("a.prompty", session_id="mine")),
        "stores no deltas": lambda: asyncio.run(turn("a.prompty", stream=True)),
        "Pass the path of its file": lambda: asyncio.run(turn(PromptAgent(path=tmp_path / "a.prompty"))),
    }
    for fix, call in refused.items():
        with pytest.raises(RequestError, match=fix):
            call()


class Forbidden:
    """Notes what workflow code does that it must not: open a file, connect, start a thread or a process."""

    EVENTS = ("open", "socket.", "subprocess.", "os.posix_spawn", "os.listdir", "os.scandir", "_thread.start")

    def __init__(self) -> None:
        self.is_on = False
        self.found: list[str] = []
        sys.addaudithook(self._hear)  # there is no way to remove it

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.is_on and event.startswith(self.EVENTS) and workflow.in_workflow():
            self.found.append(f"{event} {arguments!r:.200}")


forbidden = Forbidden()


@workflow.defn(sandboxed=False)
class Reader:
    """Reads a file, as no workflow should."""

    @workflow.run
    async def run(self) -> str:
        return Path(__file__).read_text()[:3]


@pytest.fixture
def watched_workflows() -> Iterator[Forbidden]:
    forbidden.found.clear()
    forbidden.is_on = True
    yield forbidden
    forbidden.is_on = False


@in_event_loop
async def test_a_workflow_that_reads_a_file_is_noticed(temporal: TemporalServer, watched_workflows: Forbidden) -> None:
    queue = new_id()
    async with working(temporal, queue, workflows=[Reader]) as client:
        assert await client.execute_workflow(Reader.run, id=new_id(), task_queue=queue) == '"""'
    assert any("test_own_temporal.py" in found for found in watched_workflows.found)


@pytest.mark.parametrize("sandboxed", [True, False], ids=["sandbox", "no sandbox"])
@in_event_loop
async def test_workflows_with_two_turns_run_one_after_the_other_on_one_worker_and_do_no_input_or_output(
    temporal: TemporalServer,
    model: Model,
    mcp_server: OwnServer,
    tmp_path: Path,
    watched_workflows: Forbidden,
    sandboxed: bool,
) -> None:
    """A transport that a workflow built broke every workflow after the first one (D-B1)."""
    names = ["pay", "look", "add", "look"]
    rounds = [
        [
            {"call": name, "arguments": {"a": n, "b": at} if name == "add" else {"at": f"{n}/{at}"}}
            for at, name in enumerate(names)
        ]
        for n in range(3)
    ]
    model.scripts = {"Work": [*rounds, "Done."], "": ["Hello."]}
    file, desk, queue = write_prompt(tmp_path, "work", frontmatter=MCP), Desk(), new_id()
    options = {} if sandboxed else {"workflow_runner": UnsandboxedWorkflowRunner()}
    async with working(temporal, queue, tools=desk.tools, options=options) as client:
        handles = []
        for _ in range(3):
            handle = await start_turns(client, queue, {"source": file, "inputs": {"q": "Work"}}, {"source": file})
            assert await handle.result() == ["Done.", "noted Done.", "Hello.", "noted Hello."]
            handles.append(handle)
        history = await handles[-1].fetch_history()
    assert watched_workflows.found == []
    assert sorted(Counter(desk.seen).values()) == [3] * 9
    assert len(model.bodies) == 3 * 5
    results = [message["content"] for message in model.bodies[3]["messages"] if message["role"] == "tool"]
    assert results[:4] == ["paid 0/0", "seen 0/1", "2", "seen 0/3"]
    replayer = Replayer(workflows=[Turns], plugins=[PromptyPlugin(tools=desk.tools)])
    await replayer.replay_workflow(history)  # it comes to the same activities


@in_event_loop
async def test_a_pause_is_answered_by_a_signal_after_the_worker_was_replaced(
    temporal: TemporalServer, model: Model, tmp_path: Path
) -> None:
    model.scripts = {"": [[{"call": "look", "arguments": {"at": "home"}}], *PAYING]}
    file, desk, queue = write_prompt(tmp_path, "rent"), Desk(), new_id()
    async with working(temporal, queue, tools=desk.tools) as client:
        handle = await start_turns(client, queue, {"source": file, "approval": {"pay": "always"}})
        paused = await wait_for_pause(handle)
    assert [(call.name, call.arguments) for call in paused.pending] == [("pay", {"at": "home"})]
    other = Desk()
    async with working(temporal, queue, tools=other.tools):
        await answer(handle, [True], paused=paused)
        await answer(handle, [False], paused=paused)  # too late
        assert (await handle.result())[0] == "Paid."
        assert await find_pause(handle) is None
        with pytest.raises(RequestError, match="does not wait for an answer"):
            await answer(handle, [True])
    assert (desk.seen, other.seen) == (["seen home"], ["paid home"])


@in_event_loop
async def test_a_pause_returns_to_the_workflow_which_goes_on_with_its_own_verdicts(
    temporal: TemporalServer, model: Model, tmp_path: Path
) -> None:
    model.scripts = {"": PAYING}
    file, desk, queue = write_prompt(tmp_path, "rent"), Desk(), new_id()
    async with working(temporal, queue, tools=desk.tools) as client:
        wanted = {"source": file, "approval": "always", "on_pause": "return"}
        assert (await run_turns(client, queue, wanted))[0] == "Paid."
    assert desk.seen == ["paid home"]


@in_event_loop
async def test_a_pause_that_nobody_answers_in_time_is_denied(
    temporal: TemporalServer, model: Model, mcp_server: OwnServer, tmp_path: Path
) -> None:
    """The worker that goes on has described the tools of the MCP server before the pause, and does so again."""
    model.scripts = {"": PAYING}
    file, desk, queue = write_prompt(tmp_path, "rent", frontmatter=MCP), Desk(), new_id()
    async with working(temporal, queue, tools=desk.tools) as client:
        wanted = {"source": file, "approval": "always", "pause_timeout": 0.5}
        assert (await run_turns(client, queue, wanted))[0] == "Paid."
    assert desk.seen == []
    assert "denied" in model.bodies[-1]["messages"][-1]["content"]


@in_event_loop
async def test_guardrails_a_gate_and_summaries_are_functions_of_the_worker(
    temporal: TemporalServer, model: Model, tmp_path: Path, watched_workflows: Forbidden
) -> None:
    gated: list[str] = []

    async def hide(messages: list[Message]) -> object:
        return rewrite(
            [Message.from_json(json.loads(json.dumps(one.to_json()).replace("4711", "****"))) for one in messages]
        )

    def redirect(call: GatedCall) -> object:
        return rewrite({"at": "office"}) if call.name == "pay" else deny("not this one")

    def gate(calls: list[GatedCall]) -> object:
        gated.extend(f"{call.name} {call.arguments}" for call in calls)
        return [True] * len(calls)

    async def sum_up(messages: list[Message], characters: int) -> str:
        return f"{len(messages)} messages about rent"

    rounds = [[{"call": "pay", "arguments": {"at": "x" * 900}}, {"call": "look", "arguments": {"at": "y"}}]] * 2
    model.scripts = {"messages about rent": ["Paid 4711."] * 3, "": rounds * 3}
    rails = Guardrails(input=hide, output=lambda message: rewrite(message.text.upper()), tool=redirect)
    file, desk, queue = write_prompt(tmp_path, "rent"), Desk(), new_id()
    async with working(temporal, queue, tools=desk.tools, guardrails=rails, gate=gate, summary=sum_up) as client:
        wanted = {"source": file, "inputs": {"q": "Code 4711"}, "context_budget": 1500}
        assert (await run_turns(client, queue, wanted))[0] == "PAID 4711."
    assert watched_workflows.found == []
    assert desk.seen == ["paid office"] * 2
    assert gated == ["pay {'at': 'office'}"] * 2
    assert "4711" not in json.dumps(model.bodies)
    assert "messages about rent" in json.dumps(model.bodies[-1])


@in_event_loop
async def test_a_worker_with_other_guardrails_than_the_one_that_began_the_turn_is_named(
    temporal: TemporalServer, model: Model, tmp_path: Path
) -> None:
    model.scripts = {"": PAYING}
    file, queue = write_prompt(tmp_path, "rent"), new_id()
    rails = Guardrails(output=lambda message: True)
    async with working(temporal, queue, tools=Desk().tools, guardrails=rails) as client:
        handle = await start_turns(client, queue, {"source": file, "approval": "always"})
        paused = await wait_for_pause(handle)
    async with working(temporal, queue, tools=Desk().tools):
        await answer(handle, [True], paused=paused)
        with pytest.raises(WorkflowFailureError) as failure:
            await handle.result()
    assert "with the same PromptyPlugin" in str(failure.value.cause)


@in_event_loop
async def test_a_message_steers_a_turn_that_is_under_way(
    temporal: TemporalServer, model: Model, tmp_path: Path
) -> None:
    model.scripts = {"": [[{"call": "look", "arguments": {"at": "home"}}], "Done."]}
    file, desk, queue = write_prompt(tmp_path, "rent"), Desk(hold=True), new_id()
    async with working(temporal, queue, tools=desk.tools) as client:
        handle = await start_turns(client, queue, {"source": file, "steering": True})
        await desk.began.wait()
        await steer(handle, "And be quick.")
        desk.hold = False
        assert (await handle.result())[0] == "Done."
    assert model.bodies[1]["messages"][-1] == {"role": "user", "content": "And be quick."}


@in_event_loop
async def test_a_cancelled_workflow_cancels_the_call_that_is_under_way(
    temporal: TemporalServer, model: Model, tmp_path: Path
) -> None:
    model.scripts = {"": PAYING}
    file, desk, queue = write_prompt(tmp_path, "rent"), Desk(hold=True), new_id()
    async with working(temporal, queue, tools=desk.tools) as client:
        handle = await start_turns(client, queue, {"source": file})
        await desk.began.wait()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as failure:
            await handle.result()
        assert isinstance(failure.value.cause, CancelledError)
        async with asyncio.timeout(LEASE):
            while not desk.ended:
                await asyncio.sleep(0.01)
    assert len(model.bodies) == 1


@in_event_loop
async def test_a_deadline_ends_a_turn_and_what_it_has_under_way_and_the_workflow_can_go_on(
    temporal: TemporalServer, model: Model, tmp_path: Path
) -> None:
    model.scripts = {"": PAYING}
    file, desk, queue = write_prompt(tmp_path, "rent"), Desk(hold=True), new_id()
    async with working(temporal, queue, tools=desk.tools) as client:
        failure = await fail_turns(client, queue, {"source": file, "deadline": 1.0})
        assert failure.type == "DeadlineExceeded"
        assert "0:00:01 after its start" in str(failure)
        async with asyncio.timeout(LEASE):
            while not desk.ended:
                await asyncio.sleep(0.01)
        desk.hold = False
        assert (await run_turns(client, queue, {"source": file, "deadline": 60.0}))[0] == "Paid."


@in_event_loop
async def test_errors_keep_their_classes_and_a_model_that_fails_for_a_moment_is_asked_again(
    temporal: TemporalServer, model: Model, tmp_path: Path
) -> None:
    model.scripts = {"Loop": [[{"call": "look", "arguments": {"at": "x"}}]] * 9, "": ["Fine."]}
    file, desk, queue = write_prompt(tmp_path, "rent"), Desk(), new_id()
    async with working(temporal, queue, tools=desk.tools) as client:
        model.failures = [503, 429]
        assert (await run_turns(client, queue, {"source": file}))[0] == "Fine."
        model.failures = [401]
        failures: dict[str, dict[str, Any]] = {
            "ModelError": {"source": file},
            "IterationsExceeded": {"source": file, "inputs": {"q": "Loop"}, "max_iterations": 2},
            "InputError": {"source": file, "inputs": {"unknown": 1}},
            "FileMissing": {"source": str(tmp_path / "missing.prompty")},
            "RequestError": {"source": file, "session_id": "mine"},
        }
        found = {name: (await fail_turns(client, queue, wanted)).type for name, wanted in failures.items()}
    assert found == {name: name for name in failures}


@in_event_loop
async def test_a_call_whose_worker_is_shut_down_is_repeated_or_asked_about(
    temporal: TemporalServer, model: Model, tmp_path: Path
) -> None:
    calls = [{"call": "pay", "arguments": {"at": "home"}}, {"call": "look", "arguments": {"at": "home"}}]
    model.scripts = {"": [calls, "Paid."]}
    file, desk, other, queue = write_prompt(tmp_path, "rent"), Desk(hold=True), Desk(), new_id()
    async with working(temporal, queue, tools=desk.tools) as client:
        handle = await start_turns(client, queue, {"source": file})
        while len(desk.seen) < 2:
            await asyncio.sleep(0.01)
    async with working(temporal, queue, tools=other.tools):
        paused = await wait_for_pause(handle)
        assert [(call.name, call.unknown) for call in paused.pending] == [("pay", True)]
        await answer(handle, [use_result("paid home")])
        assert (await handle.result())[0] == "Paid."
    assert other.seen == ["seen home"]


@in_event_loop
async def test_turns_that_run_at_the_same_time_pause_and_are_answered_each_by_itself(
    temporal: TemporalServer, model: Model, tmp_path: Path
) -> None:
    model.scripts = {"first": PAYING, "second": [[{"call": "look", "arguments": {"at": "home"}}], "Seen."]}
    file, desk, queue = write_prompt(tmp_path, "rent"), Desk(), new_id()
    async with working(temporal, queue, tools=desk.tools, workflows=[Together]) as client:
        wanted = [{"source": file, "inputs": {"q": q}, "approval": "always"} for q in ("first", "second")]
        handle = await client.start_workflow(Together.run, wanted, id=new_id(), task_queue=queue)
        shown = await wait_for_pause(handle)
        await answer(handle, [True])
        other = "look" if shown.pending[0].name == "pay" else "pay"
        await wait_for_pause(handle, other)
        await answer(handle, [True])
        assert await handle.result() == ["Paid.", "Seen."]
        history = await handle.fetch_history()
        steered = [{**one, "steering": True} for one in wanted]
        with pytest.raises(WorkflowFailureError) as failure:
            await client.execute_workflow(Together.run, steered, id=new_id(), task_queue=queue)
    assert "the same steering messages" in str(failure.value.cause)
    await Replayer(workflows=[Together], plugins=[PromptyPlugin(tools=desk.tools)]).replay_workflow(history)


@in_event_loop
async def test_a_function_of_the_workflow_stops_a_turn(temporal: TemporalServer, model: Model, tmp_path: Path) -> None:
    model.scripts = {"": [[{"call": "look", "arguments": {"at": f"{n}"}}] for n in range(5)]}
    file, desk, queue = write_prompt(tmp_path, "rent"), Desk(), new_id()
    async with working(temporal, queue, tools=desk.tools, workflows=[UntilPaid]) as client:
        assert await client.execute_workflow(UntilPaid.run, file, id=new_id(), task_queue=queue) == ""
    assert desk.seen == ["seen 0", "seen 1"]


@in_event_loop
async def test_a_prompt_that_runs_as_a_tool_gets_what_is_left_of_the_budget(
    temporal: TemporalServer, model: Model, tmp_path: Path
) -> None:
    looks = [[{"call": "look", "arguments": {"at": f"{n}"}}] for n in range(5)]
    model.scripts = {"the child": looks, "the parent": [[{"call": "child", "arguments": {}}], "Done."]}
    child = "tools: [{name: look, kind: function, parameters: [{name: at, kind: string}]}]\n"
    write_prompt(tmp_path, "child", "the child", child)
    parent = "tools: [{name: child, kind: prompty, mode: agentic, path: child.prompty}]\n"
    file, desk, queue = write_prompt(tmp_path, "parent", "the parent", parent), Desk(), new_id()
    async with working(temporal, queue, tools=desk.tools) as client:
        failure = await fail_turns(client, queue, {"source": file, "budget": {"tokens": 45}})
    assert "the turn has used 45 tokens" in str(failure)
    assert len(model.bodies) == 3


@in_event_loop
async def test_a_result_that_temporal_cannot_store_fails_the_turn_and_says_its_size(
    temporal: TemporalServer, model: Model, tmp_path: Path
) -> None:
    @tool
    async def read(at: str) -> str:
        """Read something long."""
        reads.append(at)
        return "漢" * 400_000  # seven bytes each, as JSON in JSON

    reads: list[str] = []
    model.scripts = {"": [[{"call": "read", "arguments": {"at": "here"}}], "Read."]}
    file, queue = write_prompt(tmp_path, "rent"), new_id()
    async with working(temporal, queue, tools=[read]) as client:
        failure = await fail_turns(client, queue, {"source": file})
        assert failure.type == "RunBroken"
        assert "has 2,800," in str(failure)
        large = await fail_turns(client, queue, {"source": file, "inputs": {"q": "x" * 1_000_001}})
        assert "the start of a turn has 2,0" in str(large)
    assert reads == ["here"]


@in_event_loop
async def test_a_sensitive_input_is_a_secret_of_the_workers_and_no_history_has_it(
    temporal: TemporalServer, model: Model, tmp_path: Path
) -> None:
    got: list[str] = []

    @tool
    async def enter(code: str) -> str:
        """Enter."""
        got.append(code)
        return "open"

    frontmatter = (
        "tools: [{name: enter, kind: function, parameters: {code: string}, bindings: {code: {input: code}}}]\n"
    )
    sensitive = "inputs: {code: {kind: string, sensitive: true}}\n"
    file = Path(write_prompt(tmp_path, "door", "Open it.", frontmatter))
    file.write_text(file.read_text().replace("inputs: {q: {kind: string, default: Hi}}\n", sensitive))
    shown = tmp_path / "shown.prompty"
    shown.write_text(file.read_text().replace("Open it.", "Use {{code}}."))
    model.scripts = {"": [[{"call": "enter", "arguments": {}}], "Entered."]}
    queue = new_id()
    async with working(temporal, queue, tools=[enter], secrets={"code": "s3cr3t-4711"}) as client:
        handle = await start_turns(client, queue, {"source": str(file)})
        assert (await handle.result())[0] == "Entered."
        events = [event async for event in handle.fetch_history_events()]
        given = await fail_turns(client, queue, {"source": str(file), "inputs": {"code": "s3cr3t-4711"}})
        rendered = await fail_turns(client, queue, {"source": str(shown)})
    assert got == ["s3cr3t-4711"]
    assert b"s3cr3t" not in b"".join(event.SerializeToString() for event in events)
    assert "Leave it out, and give it to the workers" in str(given)
    assert "would have it in a message" in str(rendered)


@pytest.mark.parametrize("workers", [1, 3])
@in_event_loop
async def test_the_history_grows_with_what_is_new_in_a_conversation(
    temporal: TemporalServer, keep: Keep, workers: int
) -> None:
    """However many workers share the steps. Each learns what the others did."""
    rounds, characters = 40, 8000

    @tool(idempotent=True)
    async def read(at: str) -> str:
        """Read something."""
        return f"{at} " * (characters // (len(at) + 1))

    script = [[{"call": "read", "arguments": {"at": f"{n:04}"}}] for n in range(rounds)]
    sizes = {}
    for count in (rounds // 2, rounds):
        model = {"id": "m", "provider": "scripted", "script": [*script[:count], "Done."]}
        agent = {"model": model, "instructions": "user:\nRead."}
        queue = new_id()
        async with AsyncExitStack() as stack:
            only = {"disable_eager_activity_execution": True}  # so that any worker gets an activity
            clients = [
                await stack.enter_async_context(working(temporal, queue, tools=[read], options=only))
                for _ in range(workers)
            ]
            handle = await start_turns(clients[0], queue, {"source": agent, "max_iterations": count + 1})
            assert (await handle.result())[0] == "Done."
            events = [event async for event in handle.fetch_history_events()]
        sizes[count] = sum(event.ByteSize() for event in events), len(events)
    script_bytes = len(json.dumps(script))
    ratio = (sizes[rounds][0] - sizes[rounds // 2][0] - script_bytes) / (rounds // 2 * characters)
    keep(workers=workers, rounds=rounds, bytes_of_new=characters, ratio=round(ratio, 2), events=sizes[rounds][1])
    assert ratio < 1.5  # what one worker did is read by the others with queries
    assert sizes[rounds][1] < 1.2 * 2 * sizes[rounds // 2][1]


class Shelf(StorageDriver):
    """An external storage in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def name(self) -> str:
        return "shelf"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        keys = [f"{len(self.kept) + number}" for number in range(len(payloads))]
        self.kept |= {key: one.SerializeToString() for key, one in zip(keys, payloads, strict=True)}
        return [StorageDriverClaim({"key": key}) for key in keys]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        return [Payload.FromString(self.kept[claim.claim_data["key"]]) for claim in claims]


@in_event_loop
async def test_an_external_storage_takes_what_a_history_cannot_hold(temporal: TemporalServer, tmp_path: Path) -> None:
    agent, read = read_pages(5, 500_000)
    agent["inputs"] = {"q": {"kind": "string", "default": ""}}
    storage = ExternalStorage(drivers=[Shelf()], payload_size_threshold=64_000)
    converter = dataclasses.replace(DataConverter.default, external_storage=storage)
    queue = new_id()
    async with working(temporal, queue, tools=[read], connection={"data_converter": converter}) as client:
        handle = await start_turns(client, queue, {"source": agent, "inputs": {"q": "x" * 2_500_000}})
        assert (await handle.result())[0] == "Done."
        described = await handle.describe()
    assert described.raw_description.workflow_execution_info.history_size_bytes < 100_000


@in_event_loop
async def test_a_long_turn_ends_well(temporal: TemporalServer, keep: Keep) -> None:
    rounds, characters = 120 if SOAK else 30, 8_000
    agent, read = read_pages(rounds, characters)
    queue = new_id()
    async with working(temporal, queue, tools=[read]) as client:
        handle = await start_turns(client, queue, {"source": agent, "max_iterations": rounds + 1})
        assert (await handle.result())[0] == "Done."
        described = await handle.describe()
    size = described.raw_description.workflow_execution_info.history_size_bytes
    keep(rounds=rounds, characters=characters, history_bytes=size)
    assert size < 2 * rounds * characters


@activity.defn
async def fill() -> str:
    """Return nearly as much as a history can hold of one activity."""
    return "x" * 1_900_000


@workflow.defn(sandboxed=False)
class Crowded:
    """Has a turn after so much else that its history is nearly full."""

    @workflow.run
    async def run(self) -> Any:
        for _ in range(22):
            await workflow.execute_activity(fill, start_to_close_timeout=timedelta(minutes=1))
        return await turn(PromptAgent.model_validate(read_pages(1, 1)[0]))


@in_event_loop
async def test_a_history_that_is_nearly_full_ends_the_turn_and_says_so(temporal: TemporalServer) -> None:
    queue = new_id()
    async with working(temporal, queue, workflows=[Crowded], activities=[fill]) as client:
        with pytest.raises(WorkflowFailureError) as raised:
            await client.execute_workflow(Crowded.run, id=new_id(), task_queue=queue)
    failure = raised.value.cause
    assert isinstance(failure, ApplicationError)
    assert failure.type == "RunBroken"
    assert "the history of this workflow has 4" in str(failure)
    assert "context_budget" in str(failure)


def read_pages(rounds: int, characters: int) -> tuple[dict[str, Any], Any]:
    """Return an agent that reads a page in each round, and its tool."""

    @tool(idempotent=True)
    async def read(at: str) -> str:
        """Read a page."""
        return "x" * characters

    calls = ([{"call": "read", "arguments": {"at": f"{n}"}}] for n in range(rounds))
    model = {"id": "m", "provider": "scripted", "script": [*calls, "Done."]}
    return {"model": model, "instructions": "user:\nRead."}, read


@pytest.mark.process
def test_a_worker_that_is_told_to_stop_ends_cleanly(temporal: TemporalServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.durable.own_temporal", temporal.address, new_id(), str(tmp_path / "log")]
    with (tmp_path / "stderr").open("w") as errors:
        process = subprocess.Popen(command, stderr=errors)  # noqa: S603  our own
    try:
        until(lambda: (tmp_path / "log").exists(), 120)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        assert (tmp_path / "stderr").read_text() == ""
    finally:
        process.kill()
        process.wait()
