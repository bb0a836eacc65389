"""Turns that wait for a person: paused as plain data, gone on with anywhere, by anybody (L2)."""

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from prompty import Paused, deny, later, tool
from prompty.errors import PausedRefused, RequestError
from prompty.events import RunPaused, ToolGated
from prompty.loop.policy import needs_approval
from prompty.memory import InProcessMemory
from prompty.testing import Script, answer, call
from tests.conversations.turns import scripted
from tests.ways import SYNC, Way, sync_and_async

PAY = {
    "name": "pay",
    "kind": "function",
    "parameters": [{"name": "amount", "kind": "integer"}, {"name": "account", "kind": "string"}],
    "bindings": {"account": "DE-SECRET-1"},
}
BATCH = [call("pay", amount=5), call("pay", amount=500)]


class Bank:
    """Pays, and remembers."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    @tool
    def pay(self, amount: int, account: str = "") -> str:
        self.paid.append(amount)
        return f"paid {amount} from {account[-1:]}"


def allow_all(calls: list[Any]) -> list[bool]:
    return [True] * len(calls)


def stored(paused: Paused) -> Paused:
    """What is left of a paused turn after a night in a database."""
    return Paused.from_json(json.loads(json.dumps(paused.to_json())))


@sync_and_async
def test_a_gate_that_answers_later_pauses_the_turn_before_anything_runs(way: Way) -> None:
    bank = Bank()
    with Script(BATCH, "Done."):
        seen = way.turn(scripted(), tools=[bank.pay], gate=lambda calls: [True, later()])
        assert bank.paid == []
        assert isinstance(seen.result, Paused)
        assert seen.events[-1] == RunPaused(seen.result)
        assert [one.arguments for one in seen.result.pending] == [{"amount": 500, "account": ""}]
        gone_on = way.resume(scripted(), stored(seen.result), [True], tools=[bank.pay], gate=allow_all)
    assert gone_on.result == "Done."
    assert bank.paid == [5, 500]
    assert gone_on.texts == ["Be brief.", "Hi", "", "paid 5 from ", "paid 500 from ", "Done."]


@sync_and_async
def test_decisions_of_a_pause_hold_for_its_own_calls_alone(way: Way) -> None:
    bank = Bank()
    rounds = [call("pay", amount=5)], [call("pay", amount=6), call("pay", amount=500)]
    with Script(*rounds, "Done."):
        paused = way.turn(scripted(), tools=[bank.pay], gate=lambda calls: [later()]).result
        gone_on = way.resume(
            scripted(), stored(paused), [True], tools=[bank.pay], gate=lambda calls: [True] * (len(calls) - 1) + [False]
        )
    assert gone_on.result == "Done."
    assert bank.paid == [5, 6]


@sync_and_async
def test_a_no_that_comes_later_is_told_to_the_model(way: Way) -> None:
    bank = Bank()
    with Script(BATCH, "Sorry."):
        seen = way.turn(scripted(), tools=[bank.pay], gate=lambda calls: [later(), deny("too small")])
        key = seen.result.pending[0].key
        gone_on = way.resume(scripted(), seen.result, {key: deny("no money")}, tools=[bank.pay], gate=allow_all)
    assert bank.paid == []
    assert gone_on.texts[3:5] == ["Tool 'pay' was denied: no money", "Tool 'pay' was denied: too small"]
    assert [event.allowed for event in gone_on.of(ToolGated)] == [False, False]


@sync_and_async
def test_calls_of_equal_ids_are_decided_one_by_one(way: Way) -> None:
    bank = Bank()
    same = [call("pay", id="call_0", amount=1), call("pay", id="call_0", amount=2), call("pay", id="", amount=3)]
    with Script(same, "Done."):
        seen = way.turn(scripted(), tools=[bank.pay], approval="always", tool_execution="sequential")
        assert len({one.key for one in seen.result.pending}) == 3
        first = way.resume(scripted(), seen.result, {seen.result.pending[1].key: True}, tools=[bank.pay])
        assert bank.paid == []
        assert [one.arguments["amount"] for one in first.result.pending] == [1, 3]
        last = way.resume(scripted(), first.result, [False, True], tools=[bank.pay], tool_execution="sequential")
    assert last.result == "Done."
    assert bank.paid == [2, 3]


@sync_and_async
def test_a_paused_turn_holds_no_secret(way: Way) -> None:
    bank = Bank()
    agent = scripted(tools=[{**PAY, "approvalMode": "always"}])
    with Script([call("pay", amount=5)], "Done."):
        seen = way.turn(agent, tools=[bank.pay])
        assert "SECRET" not in json.dumps(seen.result.to_json())
        assert seen.result.pending[0].arguments == {"amount": 5, "account": "••••"}
        gone_on = way.resume(agent, stored(seen.result), [True], tools=[bank.pay])
    assert gone_on.texts[3] == "paid 5 from 1"


@sync_and_async
def test_reasoning_survives_a_pause(way: Way) -> None:
    agent = scripted(model={"apiType": "messages"})
    thought = answer("", call("pay", amount=1), reasoning="It is little.", signature="signed")
    with Script(thought, "Done.") as script:
        seen = way.turn(agent, tools=[Bank().pay], approval="always")
        way.resume(agent, stored(seen.result), [True], tools=[Bank().pay])
    body: Any = script.requests[1]
    [block] = [one for one in body["messages"][1]["content"] if one["type"] == "thinking"]
    assert (block["thinking"], block["signature"]) == ("It is little.", "signed")


POLICIES: dict[str, tuple[list[object], bool]] = {
    "nobody says anything": ([None, None], False),
    "never": (["never", "never"], False),
    "the file says always": (["always", "never"], True),
    "the host says always": ([None, "always"], True),
    "the argument fits": ([{"when": {"amount": {"minimum": 100}}}, None], True),
    "the argument does not fit": ([{"when": {"amount": {"minimum": 1000}}}, "never"], False),
    "one of two fits": ([{"when": {"amount": {"minimum": 1000}}}, {"when": {"amount": {"type": "integer"}}}], True),
    "the argument is not there": ([{"when": {"other": {"const": 1}}}, None], True),
    "one argument is not there, and another does not fit": (
        [{"when": {"other": {}, "amount": {"minimum": 1000}}}, None],
        False,
    ),
    "a word nobody knows": (["sometimes", None], True),
    "a mapping nobody knows": ([{"if": {}}, None], True),
    "no schema": ([{"when": {"amount": {"type": "nonsense"}}}, None], True),
}


@pytest.mark.parametrize(("policies", "asks"), POLICIES.values(), ids=POLICIES)
def test_the_stricter_policy_wins(policies: list[object], asks: bool) -> None:
    assert needs_approval(policies, {"amount": 500}) is asks


@sync_and_async
def test_without_a_gate_only_what_needs_approval_waits(way: Way) -> None:
    bank = Bank()
    with Script(BATCH, "Done."):
        seen = way.turn(scripted(), tools=[bank.pay], approval={"pay": {"when": {"amount": {"minimum": 100}}}})
        assert [one.arguments["amount"] for one in seen.result.pending] == [500]
        gone_on = way.resume(scripted(), seen.result, [True], tools=[bank.pay])
    assert gone_on.result == "Done."
    assert sorted(bank.paid) == [5, 500]


@sync_and_async
def test_a_gate_is_told_which_calls_need_approval(way: Way) -> None:
    told: list[bool] = []

    def gate(calls: list[Any]) -> list[bool]:
        told.extend(one.needs_approval for one in calls)
        return [True] * len(calls)

    agent = scripted(tools=[{**PAY, "approvalMode": {"when": {"amount": {"minimum": 100}}}}])
    with Script(BATCH, "Done."):
        assert way.turn(agent, tools=[Bank().pay], gate=gate).result == "Done."
    assert told == [False, True]


@pytest.mark.parametrize("verdicts", [[], [True, True], True, {"no such key": True}])
def test_verdicts_that_belong_to_no_call_are_an_error(verdicts: Any) -> None:
    with Script([call("pay", amount=1)]):
        seen = SYNC.turn(scripted(), tools=[Bank().pay], approval="always")
    assert isinstance(SYNC.resume(scripted(), seen.result, verdicts, tools=[Bank().pay]).error, RequestError)


def test_a_paused_turn_of_another_version_is_refused() -> None:
    with pytest.raises(PausedRefused, match="its version is 99"):
        Paused.from_json({"version": 99})


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (["pauses"], -1, "one of its counts is negative"),
        (["saved"], 99, "it has fewer messages than it counts as stored"),
        (["cost"], "NaN", "its cost is not a number"),
        (["usage", "requests"], {"here": 1.5}, "a count of its usage has the wrong type"),
        (["carry_over"], {"later": 1}, "its state has unknown entries"),
        (["carry_over"], {"overhead": -1}, "its state has a number out of range"),
        (["carry_over"], {"dropped": [99]}, "its state drops messages that it does not have"),
        (["policy", "later"], True, "its policies have unknown or missing entries"),
        (["policy", "guardrails"], ["later"], "it names unknown guardrails"),
        (["results"], [], "the number of its results differs from that of its calls"),
        (["results"], [{"role": "user", "content": "Hi"}], "one of its results is not a tool message"),
        (["calls", 0, "name"], "steal", "the call 'steal' is not in its reply"),
    ],
)
def test_a_paused_turn_with_parts_that_do_not_fit_is_refused(path: list[Any], value: Any, problem: str) -> None:
    with Script([call("pay", amount=1)]):
        content = SYNC.turn(scripted(), tools=[Bank().pay], approval="always").result.to_json()
    del content["checksum"]
    part: Any = content
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    checksum = sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    with pytest.raises(PausedRefused, match=problem):
        Paused.from_json({**content, "checksum": checksum})


PROCESS = """
import json, sys
from prompty import Paused, resume, tool
from prompty.testing import Script
from tests.conversations.turns import scripted

@tool
def pay(amount: int) -> str:
    return f"paid {amount}"

events = []
with Script("Done."):
    resume(scripted(), Paused.from_json(json.load(sys.stdin)), [True, False], tools=[pay], on_event=events.append)
json.dump([message.to_json() for message in events[-1].messages], sys.stdout)
"""


@pytest.mark.process
def test_a_turn_resumed_in_another_process_is_the_turn_without_a_pause() -> None:
    @tool
    def pay(amount: int) -> str:
        return f"paid {amount}"

    with Script(BATCH, "Done."):
        whole = SYNC.turn(scripted(), tools=[pay], gate=lambda calls: [True, False])
    with Script(BATCH):
        paused = SYNC.turn(scripted(), tools=[pay], approval="always").result
    done = subprocess.run(  # noqa: S603  our own code
        [sys.executable, "-c", PROCESS],
        input=json.dumps(paused.to_json()),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert json.loads(done.stdout) == [message.to_json() for message in whole.messages]


@sync_and_async
@pytest.mark.parametrize("own", [None, "mine"])
def test_a_paused_turn_continues_in_its_own_session_and_in_no_other(way: Way, own: str | None) -> None:
    bank, memory = Bank(), InProcessMemory()
    session: Any = {} if own is None else {"memory": memory, "session_id": own}
    with Script([call("pay", amount=5)], "Done."):
        paused = way.turn(scripted(), tools=[bank.pay], gate=lambda calls: [later()], **session).result
        error = way.resume(scripted(), paused, [True], tools=[bank.pay], memory=memory, session_id="other").error
        assert isinstance(error, RequestError)
        named = "no session" if own is None else "the session 'mine'"
        assert str(error).startswith(f"the paused turn belongs to {named}, not to the session 'other'\n")
        assert bank.paid == []
        again = {"memory": memory, "session_id": own} if own else {}
        assert way.resume(scripted(), paused, [True], tools=[bank.pay], gate=allow_all, **again).result == "Done."
