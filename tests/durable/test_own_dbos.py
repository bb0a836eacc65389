"""Turns inside a user's own DBOS workflows: what the workflow sees, however often it is executed."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, Serializer, SetWorkflowTimeout

import prompty
from prompty import Guardrails, Message, Paused, deny, rewrite, tool
from prompty.durable import use_result
from prompty.durable.dbos import answer, find_pause, find_retry_step, read_deltas, steer, turn
from prompty.durable.performer import Performer
from prompty.durable.record import TurnOptions
from prompty.durable.steps import WrongWorker
from prompty.errors import DeadlineExceeded, GuardrailError, InputError, PromptyError, RequestError
from prompty.events import Retry, TextDelta
from prompty.mcp import register_mcp_server
from prompty.memory import SqliteMemory
from tests.drivers.wires import KEY, Chat
from tests.durable.databases import Databases
from tests.durable.own import launched, until, wrap_model_calls
from tests.durable.own_program import end, orders, reply_to
from tests.durable.runs import Desk, rounds, scripted
from tests.internet import Internet
from tests.loopback import Server, json_reply
from tests.tools.test_mcp_http import OwnServer

DONE = ["Done."]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/own.db"


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"call": name, "arguments": arguments}


class Bank:
    """Pays, remembers, and may take its time."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.is_slow = False

    @tool
    async def pay(self, amount: int) -> str:
        """Pay an amount."""
        self.paid.append(amount)
        while self.is_slow:
            await asyncio.sleep(0.01)
        return f"paid {amount}"


class Barrier:
    """A place in a workflow that the first execution does not get past."""

    def __init__(self) -> None:
        self.is_open = False
        self.reached = 0

    async def pass_by(self) -> None:
        self.reached += 1
        while not self.is_open:
            await asyncio.sleep(0.01)


def test_calls_of_turns_are_steps_beside_those_of_the_program(url: str) -> None:
    desk = Desk()
    noted: list[str] = []

    async def note(text: str) -> str:
        noted.append(text)
        return text

    async def order(ticket: str) -> list[str]:
        await DBOS.run_step_async({"name": "before"}, note, ticket)
        first = await turn(scripted(rounds("look", 3, 4)), {"q": ticket}, tools=[desk.look])
        await DBOS.run_step_async({"name": "between"}, note, first)
        return [first, await turn(scripted(["Bye."]))]

    with launched(url, order) as program:
        assert program.run("order", "T1") == ["Done.", "Bye."]
        round_of_calls = [f"tool:{{n}}:{at}" for at in range(4)]
        wanted = ["before", "prompty.open", "tools:1"]
        for n in range(1, 4):
            wanted += [f"model:{n + 1}", f"intent:{n}:0", *(step.format(n=n) for step in round_of_calls)]
        assert program.steps() == [*wanted, "model:5", "between", "prompty.open", "tools:1", "model:2"]
    assert (len(desk.seen), noted) == (12, ["T1", "Done."])


def test_a_workflow_that_is_executed_again_repeats_nothing(url: str) -> None:
    desk, barrier = Desk(), Barrier()

    async def order() -> list[str]:
        first = await turn(scripted(rounds("look", 3, 4)), tools=[desk.look])
        await barrier.pass_by()
        return [first, await turn(scripted(rounds("look", 1, 1)), tools=[desk.look])]

    with launched(url, order) as program:
        program.start("order")
        until(lambda: barrier.reached == 1)
    barrier.is_open = True
    with launched(url, order) as program:
        assert program.result() == ["Done.", "Done."]
    assert (barrier.reached, len(desk.seen)) == (2, 13)


def test_turns_that_are_awaited_together_run_one_after_the_other_in_every_execution(url: str) -> None:
    bank, desk = Bank(), Desk()

    async def order() -> tuple[Any, ...]:
        return await asyncio.gather(
            turn(scripted(rounds("look", 2, 2)), tools=[desk.look]),
            turn(scripted([call("pay", amount=3), "Paid."]), tools=[bank.pay]),
            turn(scripted(rounds("look", 2, 2)), tools=[desk.look]),
        )

    bank.is_slow = True
    with launched(url, order) as program:
        program.start("order")
        until(lambda: bank.paid == [3])
        assert len(desk.seen) == 4
    bank.is_slow = False
    with launched(url, order) as program:
        assert program.pause().pending[0].unknown
        answer(DBOS, "mine", [use_result("paid")])
        assert program.result() == ["Done.", "Paid.", "Done."]
    assert (len(desk.seen), bank.paid) == (8, [3])


def test_a_turn_outside_of_a_workflow_says_where_it_belongs(url: str) -> None:
    with pytest.raises(RequestError, match="not in a workflow of DBOS"):
        asyncio.run(turn(scripted(DONE)))

    async def step() -> str:
        return str(await turn(scripted(DONE)))

    async def order() -> str:
        return await DBOS.run_step_async({"name": "step"}, step)

    with launched(url, order) as program, pytest.raises(RequestError, match="in a step of DBOS"):
        program.run("order")


# A person decides.


async def pays(amount: int = 500) -> Any:
    return await turn(scripted([call("pay", amount=amount), "Done."]), tools=[BANK.pay], approval="always")


BANK = Bank()


@pytest.fixture
def bank() -> Bank:
    BANK.paid.clear()
    return BANK


def test_a_pause_is_answered_in_a_later_process(url: str, bank: Bank) -> None:
    with launched(url, pays) as program:
        program.start("pays")
        assert [one.arguments for one in program.pause().pending] == [{"amount": 500}]
    client = DBOSClient(system_database_url=url)
    paused = find_pause(client, "mine")
    assert paused is not None
    with pytest.raises(RequestError, match="1 calls wait for a verdict"):
        answer(client, "mine", [])
    answer(client, "mine", [True])
    answer(client, "mine", [False])  # the first answer counts
    with launched(url, pays) as program:
        assert program.result() == "Done."
    assert bank.paid == [500]
    assert find_pause(client, "mine") is None
    with pytest.raises(RequestError, match="'mine' does not wait for an answer"):
        answer(client, "mine", [True])
    client.destroy()


def test_without_an_answer_in_time_calls_are_denied(url: str, bank: Bank) -> None:
    async def order() -> Any:
        agent = scripted([call("pay", amount=1), "Done."])
        return await turn(agent, tools=[bank.pay], approval="always", pause_timeout=timedelta(seconds=0.2))

    with launched(url, order) as program:
        assert program.run("order") == "Done."
    assert bank.paid == []


def test_a_workflow_that_gets_the_pause_goes_on_with_it_in_another_one(url: str, bank: Bank) -> None:
    agent = scripted([call("pay", amount=1), call("pay", amount=2), "Done."])

    async def begin() -> Any:
        return await turn(agent, tools=[bank.pay], approval="always", on_pause="return")

    async def go_on(paused: Paused, verdict: bool) -> Any:
        return await turn(agent, tools=[bank.pay], paused=paused, verdicts=[verdict], on_pause="return")

    with launched(url, begin, go_on) as program:
        paused = program.run("begin", id="a")
        again = program.run("go_on", paused, True, id="b")
        assert isinstance(again, Paused), "its policy still holds"
        assert (again.run_id, [one.arguments for one in again.pending]) == (paused.run_id, [{"amount": 2}])
        assert program.run("go_on", again, False, id="c") == "Done."
    assert bank.paid == [1]


def test_what_must_not_be_repeated_is_asked_about(url: str) -> None:
    bank = Bank()

    async def order() -> Any:
        return await turn(scripted([call("pay", amount=7), "Done."]), tools=[bank.pay])

    bank.is_slow = True
    with launched(url, order) as program:
        program.start("order")
        until(lambda: bank.paid == [7])
    bank.is_slow = False
    with launched(url, order) as program:
        [pending] = program.pause().pending
        assert (pending.name, pending.unknown) == ("pay", True)
        answer(DBOS, "mine", [use_result("paid 7")])
        assert program.result() == "Done."
    assert bank.paid == [7]


# Functions and stores of the program.


def test_gates_guardrails_and_summaries_are_asked_once(url: str) -> None:
    desk, barrier = Desk(), Barrier()
    asked: list[str] = []

    def note(name: str, verdict: object) -> Callable[..., object]:
        def ask(*_: object) -> object:
            asked.append(name)
            return verdict

        return ask

    async def order() -> Any:
        result = await turn(
            scripted(rounds("look", 2, 1)),
            tools=[desk.look],
            approval="always",
            gate=note("gate", [True]),
            guardrails=Guardrails(tool=note("tool", True), output=note("output", rewrite("Rewritten."))),
        )
        words = [{"role": "user", "content": "word " * 100} for _ in range(3)]
        await turn(scripted(DONE), messages=words, summary=note("summary", "short"), context_budget=600)
        await barrier.pass_by()
        return result

    with launched(url, order) as program:
        program.start("order")
        until(lambda: barrier.reached == 1)
        before = list(asked)
        assert set(before) == {"gate", "tool", "output", "summary"}
    barrier.is_open = True
    with launched(url, order) as program:
        assert program.result() == "Rewritten."
    assert asked == before


def test_a_turn_of_a_process_with_other_functions_says_which_it_lacks(url: str, bank: Bank) -> None:
    hooks: list[Any] = [lambda calls: [True] * len(calls)]

    async def order() -> Any:
        agent = scripted([call("pay", amount=1), "Done."])
        return await turn(agent, tools=[bank.pay], approval="always", on_pause="wait", gate=hooks[0])

    bank.is_slow = True
    with launched(url, order) as program:
        program.start("order")
        until(lambda: bank.paid == [1])
    bank.is_slow, hooks[0] = False, None
    with launched(url, order) as program, pytest.raises(WrongWorker, match=r"begun with a gate, .* has no functions"):
        program.result()


def test_a_turn_of_a_process_without_its_tool_says_which(url: str, bank: Bank) -> None:
    tools: list[Any] = [bank.pay]

    async def order() -> Any:
        return await turn(scripted([call("pay", amount=1), "Done."]), tools=tools)

    bank.is_slow = True
    with launched(url, order) as program:
        program.start("order")
        until(lambda: bank.paid == [1])
    bank.is_slow = False
    tools.clear()
    with launched(url, order) as program, pytest.raises(RequestError, match="has no tool 'pay'"):
        program.result()


def test_turns_of_one_session_wait_for_each_other(url: str, tmp_path: Path) -> None:
    memory, bank = SqliteMemory(tmp_path / "sessions.db"), Bank()

    async def order(text: str) -> Any:
        script = [call("pay", amount=1), f"Re: {text}"] if text == "first" else [f"Re: {text}"]
        return await turn(scripted(script), {"q": text}, tools=[bank.pay], memory=memory, session_id="s")

    bank.is_slow = True
    with launched(url, order) as program:
        program.start("order", "first", id="a")
        until(lambda: bank.paid == [1])
        program.start("order", "second", id="b")
        time.sleep(0.3)
        assert "model:3" not in program.steps("b")
        bank.is_slow = False
        assert [program.result("a"), program.result("b")] == ["Re: first", "Re: second"]
    stored = [Message.from_json(message).text for message in memory.load("s")]
    assert stored == ["first", "", "paid 1", "Re: first", "second", "Re: second"]


def test_a_turn_takes_messages_on_its_way(url: str) -> None:
    bank = Bank()
    bank.is_slow = True

    async def order() -> Any:
        return await turn(scripted([call("pay", amount=1), "Done."]), tools=[bank.pay], steering=True, stream=True)

    with launched(url, order) as program:
        program.start("order")
        until(lambda: bank.paid == [1])
        steer(DBOS, "mine", "Hurry!")
        bank.is_slow = False
        assert program.result() == "Done."
        received = [step["output"] for step in DBOS.list_workflow_steps("mine") if step["function_name"] == "DBOS.recv"]
        assert "Hurry!" in received


def test_deltas_of_all_turns_are_read_in_order(url: str) -> None:
    async def order() -> list[Any]:
        return [await turn(scripted([text]), stream=True) for text in ("One.", "Two.")]

    with launched(url, order) as program:
        program.start("order")
        assert "".join(one.text for one in read_deltas(DBOS, "mine") if isinstance(one, TextDelta)) == "One.Two."


def test_deltas_of_a_call_that_is_made_again_follow_a_retry(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    release: list[bool] = []

    async def delay(events: Any) -> Any:
        """Delay the end of an answer."""
        async for event in events:
            yield event
            await asyncio.sleep(0.15)
            while isinstance(event, TextDelta) and not release:
                yield TextDelta(" ")
                await asyncio.sleep(0.15)

    async def order() -> Any:
        return await turn(scripted(["One."]), stream=True)

    wrap_model_calls(monkeypatch, delay)
    with launched(url, order) as program:
        program.start("order")
        next(iter(read_deltas(DBOS, "mine")))
    release.append(True)
    with launched(url, order) as program:
        assert program.result() == "One."
        deltas = list(read_deltas(DBOS, "mine"))
    [at] = [position for position, one in enumerate(deltas) if isinstance(one, Retry)]
    assert at > 0
    assert "".join(one.text for one in deltas[at:] if isinstance(one, TextDelta)) == "One."


# Cancellation and timeouts are those of DBOS.


def test_cancelling_a_workflow_ends_the_call_that_is_under_way(url: str) -> None:
    begun, ended = list[str](), list[str]()

    @tool
    async def wait() -> str:
        begun.append("wait")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("wait")
        return "waited"

    async def order() -> Any:
        return await turn(scripted([call("wait"), "Done."]), tools=[wait])

    with launched(url, order) as program:
        program.start("order", id="cancelled")
        until(lambda: begun == ["wait"])
        DBOS.cancel_workflow("cancelled")
        until(lambda: ended == ["wait"], within=20)
        with SetWorkflowTimeout(5):
            program.start("order", id="late")
        until(lambda: ended == ["wait", "wait"], within=20)
        statuses = {one.workflow_id: one.status for one in DBOS.list_workflows()}
    assert statuses == {"cancelled": "CANCELLED", "late": "CANCELLED"}


def test_an_execution_ends_when_another_one_has_taken_its_workflow(url: str) -> None:
    begun, ended = list[str](), list[str]()

    @tool(idempotent=True)
    async def wait() -> str:
        begun.append("wait")
        try:
            while len(begun) < 2:
                await asyncio.sleep(0.02)
        finally:
            ended.append("wait")
        return "waited"

    async def order() -> Any:
        return await turn(scripted([call("wait"), "Done."]), tools=[wait])

    with launched(url, order) as program:
        program.start("order")
        until(lambda: begun == ["wait"])
        DBOS.cancel_workflow("mine")
        DBOS.resume_workflow("mine")  # before anybody has seen that it was cancelled
        assert program.result() == "Done."
        until(lambda: len(ended) == 2)


def test_a_turn_ends_at_its_deadline_and_does_so_in_every_execution(url: str) -> None:
    bank, barrier, caught = Bank(), Barrier(), list[str]()
    bank.is_slow = True

    async def order() -> Any:
        for options in (TurnOptions(tools=[bank.pay]), TurnOptions(tools=[bank.pay], approval="always")):
            agent = scripted([call("pay", amount=1), "Done."])
            try:
                await turn(agent, deadline=timedelta(seconds=0.5), pause_timeout=timedelta(days=1), **options)
            except DeadlineExceeded as error:
                caught.append(str(error))
        await barrier.pass_by()
        return "Ended."

    with launched(url, order) as program:
        program.start("order")
        until(lambda: barrier.reached == 1)
    barrier.is_open = True
    with launched(url, order) as program:
        assert program.result() == "Ended."
    assert (bank.paid, len(caught), caught[:2]) == ([1], 4, caught[2:])


def test_a_failed_workflow_goes_on_after_its_last_good_step(url: str) -> None:
    bank = Bank()

    async def order(endpoint: str) -> Any:
        agent = Chat().agent(endpoint, tools=[])
        return await turn(agent, tools=[bank.pay], secrets={"key": KEY}, max_retries=0)

    calls = [{"id": "1", "type": "function", "function": {"name": "pay", "arguments": json.dumps({"amount": 5})}}]
    with Server() as server, launched(url, order) as program:
        asked = json_reply(Chat().whole("", "tool_calls", tool_calls=calls))
        server.answer(asked, json_reply({"error": {"message": "no credit"}}, status=402))
        with pytest.raises(PromptyError, match="no credit"):
            program.run("order", server.url)
        server.answer(json_reply(Chat().whole("Done.")))
        step = find_retry_step(DBOS.list_workflow_steps("mine"))
        assert DBOS.list_workflow_steps("mine")[step - 1]["function_name"] == "model:3"
        DBOS.rewind_workflow("mine", start_step=step)
        assert program.result() == "Done."
        assert (bank.paid, len(server.requests)) == ([5], 3)


# Errors and serializers.


class Letters(Serializer):
    """A serializer that knows next to nothing."""

    def name(self) -> str:
        return "letters"

    def serialize(self, data: Any) -> str:
        return json.dumps(data if not isinstance(data, BaseException) else [type(data).__name__, str(data)])

    def deserialize(self, serialized_data: str) -> Any:
        return json.loads(serialized_data)


SERIALIZERS: dict[str, Callable[[], dict[str, Any]]] = {
    "pickle": dict,
    "portable": lambda: {"serializer": DBOSPortableJSONSerializer()},
    "own": lambda: {"serializer": Letters()},
}


@pytest.mark.parametrize("config", SERIALIZERS.values(), ids=SERIALIZERS)
def test_errors_of_a_turn_are_the_same_in_every_execution(url: str, config: Callable[[], dict[str, Any]]) -> None:
    barrier, seen = Barrier(), list[list[str]]()

    async def order(endpoint: str) -> str:
        agent = Chat().agent(endpoint, tools=[])
        refuse = Guardrails(input=lambda _: deny("no"))
        caught: list[str] = []
        for source, inputs, options in (
            (agent, None, TurnOptions(secrets={"key": KEY}, max_retries=0)),
            (scripted(DONE), {"nope": 1}, TurnOptions()),
            (scripted(DONE), None, TurnOptions(guardrails=refuse)),
        ):
            try:
                await turn(source, inputs, **options)
            except PromptyError as error:
                caught.append(f"{type(error).__name__} {getattr(error, 'status', '')} {error}")
        seen.append(caught)
        await barrier.pass_by()
        return str(await turn(scripted(DONE)))

    with Server() as server:
        server.answer(json_reply({"error": {"message": "no credit"}}, status=402))
        with launched(url, order, **config()) as program:
            program.start("order", server.url)
            until(lambda: barrier.reached == 1)
        barrier.is_open = True
        with launched(url, order, **config()) as program:
            assert program.result() == "Done."
        assert len(server.requests) == 1
    first, second = seen
    assert first == second
    assert [text.split()[0] for text in first] == ["ModelError", "InputError", "GuardrailError"]
    assert "402" in first[0]


def test_an_error_that_ends_the_workflow_can_be_read_by_every_process(url: str) -> None:
    async def order(kind: str) -> Any:
        if kind == "guardrail":
            return await turn(scripted(DONE), guardrails=Guardrails(input=lambda _: deny("no")))
        return await turn(scripted(DONE), {"nope": 1})

    with launched(url, order) as program:
        for kind in ("guardrail", "input"):
            program.start("order", kind, id=kind)
    with launched(url, order) as program:
        with pytest.raises(GuardrailError, match="no") as raised:
            program.result("guardrail")
        assert [message.role for message in raised.value.messages] == ["system", "user"]
        with pytest.raises(InputError, match="nope") as unknown:
            program.result("input")
        assert unknown.value.problems


@dataclass
class Parcel:
    """What JSON cannot represent."""

    weights: set[int]


def test_a_program_with_pickles_keeps_working_beside_our_turns(url: str) -> None:
    async def weigh(parcel: Parcel) -> Parcel:
        return Parcel(parcel.weights | {3})

    async def order(parcel: Parcel) -> Parcel:
        await turn(scripted(DONE))
        return await DBOS.run_step_async({"name": "weigh"}, weigh, parcel)

    with launched(url, order) as program:
        program.start("order", Parcel({1}), id="before").get_result()
        assert program.run("order", Parcel({2})) == Parcel({2, 3})
        assert program.result("before") == Parcel({1, 3})
    with launched(url, order) as program:
        [stored] = DBOS.list_workflows(workflow_ids=["mine"])
        assert stored.output == Parcel({2, 3})


# In processes, with real connections.


@pytest.fixture(scope="module")
def mcp() -> Iterator[OwnServer]:
    server = OwnServer()
    server.start()
    yield server
    server.stop()


@pytest.mark.process
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_two_turns_with_tls_and_mcp_in_one_workflow_survive_a_kill(
    kind: str, databases: Databases, tmp_path: Path, mcp: OwnServer
) -> None:
    with orders(databases.new(kind), tmp_path, mcp.url, pace=0.2) as shop:
        process = shop.launch()
        shop.order()
        until(lambda: "begin T0-b/1/0" in shop.lines())
        end(process)
        shop.launch()
        shop.finish()
        assert shop.asked >= 1, "the pause was answered by a message after the restart"
        assert shop.check() == {"workflows": 1, "model_requests": 8, "payments": 12}
        assert [line for line in shop.lines() if line.startswith("step ")] == ["step T0-a", "step T0-b"]


class Connections:
    """Where this process connects to, and whether a step was being performed then."""

    def __init__(self) -> None:
        self.steps = 0
        self.found: dict[int, list[bool]] = {}
        self.is_listening = False

    def hear(self, event: str, arguments: Any) -> None:
        if event == "socket.connect" and self.is_listening and isinstance(arguments[1], tuple):
            self.found.setdefault(arguments[1][1], []).append(self.steps > 0)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        perform = Performer.perform

        async def performed(*arguments: Any, **named: Any) -> Any:
            self.steps += 1
            try:
                return await perform(*arguments, **named)
            finally:
                self.steps -= 1

        monkeypatch.setattr(Performer, "perform", performed)


CONNECTIONS = Connections()
sys.addaudithook(CONNECTIONS.hear)  # for the rest of the process


def test_only_steps_connect(
    url: str, tmp_path: Path, mcp: OwnServer, clean_registry: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_mcp_server("own", url=mcp.url)
    CONNECTIONS.watch(monkeypatch)
    barrier, log = Barrier(), tmp_path / "log"

    async def order() -> list[Any]:
        declared = [{"name": "own", "kind": "mcp", "allowedTools": ["add"]}]
        agent = Chat().agent(internet.url, instructions="user:\n{{q}}", inputs={"q": ""}, tools=declared)
        results = []
        for name in ("a", "b"):
            if name == "b":
                await barrier.pass_by()
            found = await turn(agent, {"q": name}, tools=[pay, look], secrets={"key": KEY})
            results.append(found)
        return results

    @tool
    async def pay(at: str) -> str:
        return f"paid {at}"

    @tool
    async def look(at: str) -> str:
        return f"seen {at}"

    with Internet(tmp_path, ["models.test"], reply_to(log)) as internet:
        CONNECTIONS.is_listening = True
        try:
            with launched(url, order) as program:
                program.start("order")
                until(lambda: barrier.reached == 1)
            barrier.is_open = True
            with launched(url, order) as program:
                assert program.result() == ["Done with a.", "Done with b."]
        finally:
            CONNECTIONS.is_listening = False
            prompty.close()
        model = int(internet.url.rpartition(":")[2])
    assert CONNECTIONS.found.keys() >= {model, mcp.port}
    assert all(all(inside) for inside in CONNECTIONS.found.values())
    assert len([line for line in log.read_text().splitlines() if line.startswith("model a/")]) == 4
