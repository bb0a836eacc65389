"""The gate: asked once about all calls of an answer, before any of them runs; only a yes lets a call run."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from prompty import ToolCall, deny
from prompty.errors import BudgetSpent, RequestError
from prompty.events import GatedCall, ToolGated, ToolStarted, Verdict
from prompty.safety.redaction import MASK
from prompty.testing import Script, call
from tests.loop.bodies import results_in
from tests.ways import Way, agent_of, every_way, every_wire, one_way, whole_and_streamed

AGENT = agent_of()
Gate = Callable[[list[GatedCall]], object]
gate_kinds = pytest.mark.parametrize("kind", ["a function", "a coroutine"])


class Tools:
    """A tool that notes what it was called with."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def look(self, at: str) -> str:
        self.ran.append(at)
        return f"saw {at}"


def gate_of(kind: str, decide: Gate) -> Gate:
    async def later(calls: list[GatedCall]) -> object:
        return decide(calls)

    def judge(calls: list[GatedCall]) -> Awaitable[object] | object:
        return later(calls) if kind == "a coroutine" else decide(calls)

    return judge


BATCH = [call("look", at="a"), call("look", at="b"), call("look", at="c")]


@every_way
@gate_kinds
@pytest.mark.spec("001 Parallel Tool Calling", "the gate is asked once about the whole batch, before anything runs")
def test_the_gate_is_asked_once_about_the_whole_batch_before_anything_runs(way: Way, kind: str) -> None:
    tools, asked = Tools(), []

    def decide(calls: list[GatedCall]) -> list[bool]:
        asked.append([(one.id, one.name, one.arguments) for one in calls])
        assert len(tools.ran) == (3 if len(asked) == 2 else 0)
        return [True] * len(calls)

    with Script(BATCH, call("look", at="d"), "Done."):
        seen = way.turn(AGENT, tools=[tools.look], gate=gate_of(kind, decide))
    assert asked == [
        [(f"call_{number}", "look", {"at": at}) for number, at in enumerate("abc", 1)],
        [("call_4", "look", {"at": "d"})],
    ]
    assert seen.told == ["saw a", "saw b", "saw c", "saw d"]


@whole_and_streamed
@every_wire
@gate_kinds
@pytest.mark.spec("001 Pairing: One Result per Call", "a denied call has its result in its own place")
def test_a_call_that_is_denied_does_not_run_and_the_model_is_told(way: Way, wire: str, kind: str) -> None:
    tools = Tools()
    decide = gate_of(kind, lambda _: [False, True, deny("not at night")])
    with Script(BATCH, "Done.") as script:
        seen = way.turn(agent_of(wire), tools=[tools.look], gate=decide)
    said = ["Tool 'look' was denied", "saw b", "Tool 'look' was denied: not at night"]
    assert (tools.ran, seen.told, seen.result) == (["b"], said, "Done.")
    assert [one["content"] for one in results_in(wire, script.requests[1])] == said
    assert [(event.allowed, event.reason) for event in seen.of(ToolGated)] == [
        (False, ""),
        (True, ""),
        (False, "not at night"),
    ]
    assert seen.tool_events == [("ToolGated", "look")] * 3 + [("ToolStarted", "look"), ("ToolFinished", "look")]


UNCLEAR: dict[str, Callable[[int], object]] = {
    "nothing": lambda _: None,
    "a single yes": lambda _: True,
    "a single verdict": lambda _: Verdict(True),
    "too few": lambda count: [True] * (count - 1),
    "too many": lambda count: [True] * (count + 1),
    "text": lambda count: "y" * count,
    "bytes": lambda count: b"y" * count,
    "a dict": lambda count: dict.fromkeys(range(count), True),
    "a generator": lambda count: (True for _ in range(count)),
    "ones": lambda count: [1] * count,
    "words": lambda count: ["yes"] * count,
    "nothings": lambda count: [None] * count,
    "verdicts of ones": lambda count: [Verdict(1)] * count,  # type: ignore[arg-type]  # what a careless gate may say
}


@one_way
@gate_kinds
@pytest.mark.parametrize("answer", UNCLEAR.values(), ids=UNCLEAR)
def test_a_gate_that_returns_no_verdict_for_each_call_is_an_error_and_nothing_runs(
    way: Way, kind: str, answer: Callable[[int], object]
) -> None:
    tools = Tools()
    with Script(BATCH):
        seen = way.turn(AGENT, tools=[tools.look], gate=gate_of(kind, lambda calls: answer(len(calls))))
    assert isinstance(seen.error, RequestError)
    assert "gate" in seen.error.cause
    assert "[True for call in calls]" in seen.error.fix or "deny" in seen.error.fix
    assert tools.ran == []
    assert all(text.startswith("Error: Tool 'look' was not run: ") for text in seen.told)
    assert seen.of(ToolGated) == []


@every_way
@gate_kinds
def test_a_gate_that_raises_denies_everything(way: Way, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def fall(_: list[GatedCall]) -> object:
        raise RuntimeError("the gate fell over")

    tools = Tools()
    with Script(BATCH, "Done."), caplog.at_level(logging.ERROR, "prompty"):
        seen = way.turn(AGENT, tools=[tools.look], gate=gate_of(kind, fall))
    assert (tools.ran, seen.told) == ([], ["Tool 'look' was denied: the gate failed"] * 3)
    assert "the gate fell over" in caplog.text


@one_way
@gate_kinds
def test_a_gate_may_end_the_turn(way: Way, kind: str) -> None:
    def end(_: list[GatedCall]) -> object:
        raise BudgetSpent("enough for today")

    tools = Tools()
    with Script(BATCH):
        seen = way.turn(AGENT, tools=[tools.look], gate=gate_of(kind, end))
    assert isinstance(seen.error, BudgetSpent)
    assert (tools.ran, seen.told) == ([], ["Error: Tool 'look' was not run: enough for today"] * 3)


@one_way
def test_the_gate_is_asked_only_about_what_could_run(way: Way) -> None:
    asked: list[list[str]] = []

    def decide(calls: list[GatedCall]) -> list[bool]:
        asked.append([str(one.arguments["at"]) for one in calls])
        return [True] * len(calls)

    tools = Tools()
    wrong = ToolCall(id="w", name="look", arguments='{"at": 5}')
    fenced = ToolCall(id="f", name="look", arguments='```json\n{"at": "f"}\n```')
    with Script([call("nobody"), wrong, fenced], [call("nobody")], "Done."):
        seen = way.turn(AGENT, tools=[tools.look], gate=decide)
    assert (asked, tools.ran) == ([["f"]], ["f"])
    assert len(seen.told) == 4


DECLARED = {
    "name": "pay",
    "kind": "function",
    "parameters": [{"name": "amount", "kind": "integer"}, {"name": "account", "kind": "string"}],
    "bindings": {"account": {"input": "account"}},
}


@whole_and_streamed
@every_wire
@pytest.mark.spec("003 §2.9.1", "a binding wins over the model")
def test_what_the_host_fills_in_is_shown_to_nobody_but_the_tool(way: Way, wire: str) -> None:
    asked: list[dict[str, Any]] = []
    paid: list[tuple[int, str]] = []

    def pay(amount: int, account: str) -> str:
        paid.append((amount, account))
        return "paid"

    def decide(calls: list[GatedCall]) -> list[bool]:
        asked.extend(one.arguments for one in calls)
        return [True] * len(calls)

    agent = agent_of(wire, tools=[DECLARED], inputs=[{"name": "account", "kind": "string"}])
    batch = [call("pay", amount=5), call("pay", amount=6, account="of the thief")]
    with Script(batch, "Done.") as script:
        seen = way.turn(agent, {"account": "of Ada"}, tools=[pay], gate=decide)
    assert sorted(paid) == [(5, "of Ada"), (6, "of Ada")]
    assert asked == [{"amount": 5, "account": MASK}, {"amount": 6, "account": MASK}]
    assert "of Ada" not in repr(seen.events) + repr(script.requests)
    assert "account" not in repr(script.requests[0])
    assert [event.call.arguments for event in seen.of(ToolStarted)] == [one.arguments for one in batch]
