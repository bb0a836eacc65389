"""A person approves what runs: the final arguments, in this process and after a pause, and nothing else (L2)."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from prompty import Guardrails, Paused, PromptAgent, deny, later, loads, rewrite, tool
from prompty.analysis.check import check_text
from prompty.errors import LoadError, PausedRefused, RequestError, ToolError
from prompty.events import GatedCall
from prompty.memory import InProcessMemory
from prompty.testing import Script, call
from tests.conversations.turns import scripted
from tests.ways import SYNC, Way, sync_and_async

no_json = pytest.mark.filterwarnings("ignore:Default value")  # pydantic leaves such a default out of the schema
WHEN = {"when": {"amount": {"minimum": 100}}}


def pay_tool(*parameters: dict[str, Any], **parts: Any) -> dict[str, Any]:
    amount = {"name": "amount", "kind": "integer"}
    return {"name": "pay", "kind": "function", "parameters": list(parameters) or [amount], **parts}


class Bank:
    """Pays, and remembers."""

    def __init__(self) -> None:
        self.paid: list[object] = []

    @tool
    def pay(self, amount: int = 1000) -> str:
        self.paid.append(amount)
        return f"paid {amount}"


def stored(paused: Paused) -> Paused:
    return Paused.from_json(json.loads(json.dumps(paused.to_json())))


# What a condition sees.


@sync_and_async
@pytest.mark.parametrize("declared", [{"default": 1000}, {}], ids=["default of the file", "default of the function"])
def test_a_condition_sees_the_default_of_an_argument_that_the_model_leaves_out(
    way: Way, declared: dict[str, Any]
) -> None:
    bank = Bank()
    agent = scripted(tools=[pay_tool({"name": "amount", "kind": "integer", **declared}, approvalMode=WHEN)])
    with Script(call("pay"), "Done."):
        seen = way.turn(agent, tools=[bank.pay])
        assert isinstance(seen.result, Paused)
        assert [one.arguments for one in seen.result.pending] == [{"amount": 1000}]
        assert way.resume(agent, stored(seen.result), [True], tools=[bank.pay]).result == "Done."
    assert bank.paid == [1000]


@sync_and_async
def test_a_default_below_the_limit_of_a_condition_is_not_asked_about(way: Way) -> None:
    bank = Bank()
    agent = scripted(tools=[pay_tool({"name": "amount", "kind": "integer", "default": 5}, approvalMode=WHEN)])
    with Script(call("pay"), "Done."):
        assert way.turn(agent, tools=[bank.pay]).result == "Done."
    assert bank.paid == [5]


@sync_and_async
@pytest.mark.spec("003 §2.7", "the default of a parameter is passed where the model leaves it out")
def test_the_default_of_the_file_is_passed_where_the_model_leaves_an_argument_out(way: Way) -> None:
    taken: list[int] = []

    def orders(limit: int) -> str:
        taken.append(limit)
        return "none"

    declared = {"name": "limit", "kind": "integer", "default": 10, "required": True}
    agent = scripted(tools=[{"name": "orders", "kind": "function", "parameters": [declared]}])
    with Script([call("orders"), call("orders", limit=3)], "Done."):
        assert way.turn(agent, tools=[orders], tool_execution="sequential").told == ["none", "none"]
    assert taken == [10, 3]


class Nothing:
    """A value that has no JSON."""


@no_json
def test_a_default_that_is_no_json_is_neither_shown_nor_replaced() -> None:
    nothing = Nothing()
    seen: list[dict[str, Any]] = []
    ran: list[tuple[object, ...]] = []

    def look(at: str, how: Any = nothing, secret_key: str = "hunter2", day: Any = None) -> str:  # noqa: S107  not a password
        ran.append((at, how, secret_key, day))
        return "seen"

    def gate(calls: list[GatedCall]) -> list[bool]:
        seen.extend(one.arguments for one in calls)
        return [True]

    with Script(call("look", at="it"), "Done."):
        SYNC.turn(scripted(), tools=[look], gate=gate)
    assert seen == [{"at": "it", "day": None}]
    assert ran == [("it", nothing, "hunter2", None)]


def test_a_function_that_changes_its_default_gets_the_one_that_was_shown() -> None:
    seen: list[object] = []
    ran: list[object] = []
    caches: list[object] = []

    def look(at: list[int] = [], cache: list[int] = []) -> str:  # noqa: B006  both are changed on purpose
        ran.append(list(at))
        caches.append(len(cache))
        at.append(1)
        cache.append(1)
        return "seen"

    def gate(calls: list[GatedCall]) -> list[bool]:
        seen.extend(one.arguments for one in calls)
        return [True]

    agent = scripted(tools=[{"name": "look", "kind": "function", "parameters": [{"name": "at", "kind": "array"}]}])
    with Script(call("look"), call("look"), "Done."):
        SYNC.turn(agent, tools=[look], gate=gate)
    assert seen == [{"at": []}, {"at": []}]
    assert ran == [[], []]
    assert caches == [0, 1], "what the file does not declare is the function's own"


@no_json
def test_a_condition_on_an_argument_without_a_value_asks() -> None:
    paid: list[object] = []

    def pay(amount: Any = Nothing()) -> str:  # noqa: B008  a value that no JSON can hold, so that nobody knows it
        paid.append(amount)
        return "paid"

    agent = scripted(tools=[pay_tool(approvalMode=WHEN)])
    with Script(call("pay"), "Done."):
        assert isinstance(SYNC.turn(agent, tools=[pay]).result, Paused)
    assert paid == []


CONDITIONS = {
    "a typo": ({"amout": {"minimum": 100}}, {}, "names 'amout'.*Did you mean `amount`"),
    "another case": ({"Amount": {"minimum": 100}}, {}, "names 'Amount'.*Did you mean `amount`"),
    "a bound parameter": ({"user": {"const": "ada"}}, {"user": {"value": "ada"}}, "names 'user', which .*bindings"),
}


@pytest.mark.parametrize(("conditions", "bindings", "message"), CONDITIONS.values(), ids=CONDITIONS)
def test_a_condition_of_the_file_on_an_unknown_or_bound_name_is_an_error_at_load(
    conditions: dict[str, Any], bindings: dict[str, Any], message: str
) -> None:
    parameters = [{"name": "amount", "kind": "integer"}, {"name": "user", "kind": "string"}]
    one = {"name": "pay", "kind": "function", "parameters": parameters, "bindings": bindings}
    text = "---\ntools: " + json.dumps([{**one, "approvalMode": {"when": conditions}}]) + "\n---\nuser:\nHi\n"
    with pytest.raises(LoadError, match=f"(?s){message}") as caught:
        loads(text)
    assert [problem.code for problem in caught.value.problems] == ["approval-parameter"]
    [found] = check_text(text)
    assert (found.code, found.severity) == ("approval-parameter", "error")
    assert found == caught.value.problems[0]


@pytest.mark.parametrize(("conditions", "bindings", "message"), CONDITIONS.values(), ids=CONDITIONS)
@pytest.mark.parametrize("by_name", [False, True], ids=["for all tools", "by tool"])
def test_a_condition_of_the_host_on_an_unknown_or_bound_name_is_an_error_before_the_model_is_asked(
    conditions: dict[str, Any], bindings: dict[str, Any], message: str, by_name: bool
) -> None:
    parameters = [{"name": "amount", "kind": "integer"}, {"name": "user", "kind": "string"}]
    agent = scripted(tools=[pay_tool(*parameters, bindings=bindings)])
    approval: Any = {"when": conditions}
    with Script() as script:
        error = SYNC.turn(
            agent, tools={"pay": lambda amount, user: "paid"}, approval={"pay": approval} if by_name else approval
        ).error
    assert isinstance(error, ToolError)
    assert script.requests == []
    with pytest.raises(ToolError, match=f"(?s){message}"):
        raise error


def test_a_condition_for_all_tools_asks_about_a_tool_without_that_parameter() -> None:
    with Script(call("look", at="it")):
        seen = SYNC.turn(scripted(), tools={"pay": Bank().pay, "look": lambda at: at}, approval=WHEN)
    assert [one.name for one in seen.result.pending] == ["look"]


# What a pause keeps.


def halve(one: GatedCall) -> object:
    return rewrite({"amount": 1})


@sync_and_async
def test_a_resumed_call_runs_with_the_arguments_that_a_guardrail_left_it(way: Way) -> None:
    bank, asked = Bank(), []

    def guardrail(one: GatedCall) -> object:
        asked.append(one.arguments)
        return rewrite({"amount": asked[-1]["amount"] // 2})

    guardrails = Guardrails(tool=guardrail)
    with Script(call("pay", amount=500), "Done."):
        seen = way.turn(scripted(), tools=[bank.pay], approval="always", guardrails=guardrails)
        assert seen.result.pending[0].arguments == {"amount": 250}
        way.resume(scripted(), stored(seen.result), [True], tools=[bank.pay], guardrails=guardrails)
    assert bank.paid == [250]
    assert len(asked) == 1, "a guardrail is asked once about a call"


LOST: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no guardrails any more": ({"guardrails": Guardrails(tool=halve)}, {}, "guardrails"),
    "a guardrail more": ({}, {"guardrails": Guardrails(tool=halve)}, "guardrails"),
    "other guardrails": (
        {"guardrails": Guardrails(tool=halve)},
        {"guardrails": Guardrails(input=lambda messages: True)},
        "guardrails",
    ),
    "no gate any more": ({"gate": lambda calls: [later()]}, {}, "gate"),
}


@sync_and_async
@pytest.mark.parametrize(("before", "after", "named"), LOST.values(), ids=LOST)
def test_a_turn_is_not_resumed_under_other_policies(
    way: Way, before: dict[str, Any], after: dict[str, Any], named: str
) -> None:
    bank, store = Bank(), InProcessMemory()
    with Script(call("pay", amount=500), "Done."):
        options: dict[str, Any] = {"tools": [bank.pay], "memory": store}
        paused = way.turn(scripted(), approval="always", session_id="s", **options, **before).result
        kept = store.load("s")
        refused = way.resume(scripted(), paused, [True], **options, **after)
        assert isinstance(refused.error, PausedRefused)
        assert named in str(refused.error)
        assert (bank.paid, store.load("s")) == ([], kept)
        assert way.resume(scripted(), paused, [True], **options, **before).result == "Done."


@sync_and_async
def test_the_approval_of_the_host_holds_for_the_calls_after_a_pause(way: Way) -> None:
    bank = Bank()
    with Script(call("pay", amount=500), call("pay", amount=700), "Done."):
        paused = way.turn(scripted(), tools=[bank.pay], approval={"pay": WHEN}).result
        again = way.resume(scripted(), stored(paused), [True], tools=[bank.pay]).result
        assert [one.arguments for one in again.pending] == [{"amount": 700}]
        assert bank.paid == [500]
        assert way.resume(scripted(), stored(again), [False], tools=[bank.pay], approval="never").result == "Done."
    assert bank.paid == [500]


def test_what_a_default_was_when_a_person_was_asked_is_what_runs() -> None:
    ran: list[int] = []

    def before(amount: int = 1000) -> str:
        return "never called"

    def after(amount: int = 9000) -> str:
        ran.append(amount)
        return "paid"

    with Script(call("pay"), "Done."):
        paused = SYNC.turn(scripted(), tools={"pay": before}, approval="always").result
        assert SYNC.resume(scripted(), stored(paused), [True], tools={"pay": after}).result == "Done."
    assert ran == [1000]


def paused_payment(**options: Any) -> Paused:
    with Script(call("pay", amount=500)):
        paused = SYNC.turn(scripted(), tools=[Bank().pay], approval="always", **options).result
    assert isinstance(paused, Paused)
    return paused


def forged(paused: Paused, forge: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(json.dumps(paused.to_json()))
    forge(value)
    return value


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "other arguments": lambda value: value["calls"][0]["arguments"].update(amount=5),
    "another reply": lambda value: value["reply"]["tool_calls"][0].update(arguments='{"amount": 7}'),
    "decided already": lambda value: value["decided"].update({value["calls"][0]["key"]: [True, ""]}),
    "no call waits": lambda value: value.update(calls=[]),
    "no policies": lambda value: value.update(policy=None),
    "another session": lambda value: value.update(session_id="other"),
    "no signature": lambda value: value.update(signature=""),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_stored_pause_that_was_edited_is_refused(forge: Callable[[dict[str, Any]], object]) -> None:
    value = forged(paused_payment(paused_key=b"of the host"), forge)
    with pytest.raises(PausedRefused, match="was changed"):
        Paused.from_json(value)


@sync_and_async
def test_a_pause_signed_by_the_host_is_resumed_with_the_same_key_alone(way: Way) -> None:
    bank = Bank()
    options: dict[str, Any] = {"tools": [bank.pay], "approval": "always"}
    with Script(call("pay", amount=500), "Done."):
        paused = way.turn(scripted(), paused_key=b"of the host", **options).result
        for lacking in (replace(paused, signature=""), replace(paused, signature="0" * 64), replace(paused, pauses=7)):
            assert isinstance(
                way.resume(scripted(), lacking, [True], paused_key=b"of the host", **options).error, PausedRefused
            )
        wrong = way.resume(scripted(), stored(paused), [True], paused_key=b"of somebody", **options)
        assert isinstance(wrong.error, PausedRefused)
        assert "paused_key" in str(wrong.error)
        assert bank.paid == []
        right = way.resume(scripted(), stored(paused), [True], paused_key=b"of the host", **options)
    assert (right.result, bank.paid) == ("Done.", [500])
    assert "of the host" not in json.dumps(paused.to_json())


@pytest.mark.parametrize("key", [b"", "text", 5])
def test_a_key_that_is_no_bytes_is_an_error(key: Any) -> None:
    error = SYNC.turn(scripted(), tools=[Bank().pay], paused_key=key).error
    assert isinstance(error, RequestError)
    assert "paused_key" in str(error)


def test_a_yes_runs_what_was_shown_whatever_the_reply_says() -> None:
    bank = Bank()
    paused = paused_payment()
    [shown] = paused.calls
    edited = replace(paused, calls=(replace(shown, arguments={"amount": 5}),))
    with Script("Done."):
        SYNC.resume(scripted(), edited, [True], tools=[bank.pay])
    assert bank.paid == [5]


def test_a_pause_in_which_nothing_waits_is_refused() -> None:
    bank = Bank()
    paused = paused_payment()
    edited = replace(paused, decided={paused.calls[0].key: (True, "")})
    assert isinstance(SYNC.resume(scripted(), edited, [], tools=[bank.pay]).error, PausedRefused)
    assert bank.paid == []


def test_bindings_that_changed_during_a_pause_are_an_error() -> None:
    bank: list[str] = []

    def pay(amount: int, account: str) -> str:
        bank.append(account)
        return "paid"

    parameters = [{"name": "amount", "kind": "integer"}, {"name": "account", "kind": "string"}]
    bound = scripted(tools=[pay_tool(*parameters, bindings={"account": "mine"}, approvalMode="always")])
    free = scripted(tools=[pay_tool(*parameters, approvalMode="always")])
    with Script(call("pay", amount=1, account="evil"), "Done."):
        paused = SYNC.turn(bound, tools=[pay]).result
        assert paused.pending[0].bound == ("account",)
        assert isinstance(SYNC.resume(free, paused, [True], tools=[pay]).error, PausedRefused)
        assert bank == []
        assert SYNC.resume(bound, paused, [True], tools=[pay]).result == "Done."
    assert bank == ["mine"]


BOUND_FILE = """---
model: {provider: scripted}
tools:
  - name: pay
    kind: function
    approvalMode: always
    bindings: BINDINGS
    parameters: [{name: amount, kind: integer}, {name: account}, {name: key}]
---
user:
Hi
"""
BOUND_VARIABLES = {
    "a text": "{account: mine, key: '${env:BANK_KEY}'}",
    "a value": "{account: mine, key: {value: 'Bearer ${env:BANK_KEY}'}}",
    "a list": "[{name: account, value: mine}, {name: key, value: '${env:BANK_KEY}'}]",
    "a part of a value": "{account: mine, key: {value: {a: ['${env:BANK_KEY}', '${env:BANK_KEY}']}}}",
}


@sync_and_async
@pytest.mark.parametrize("bindings", BOUND_VARIABLES.values(), ids=BOUND_VARIABLES)
def test_the_gate_sees_the_name_of_a_bound_variable_and_not_its_value(bindings: str, way: Way) -> None:
    seen: list[GatedCall] = []
    agent = loads(BOUND_FILE.replace("BINDINGS", bindings), env={"BANK_KEY": "hunter2-hunter2"})

    def pay(amount: int, account: str, key: Any) -> str:
        return "paid"

    def gate(calls: list[GatedCall]) -> list[Any]:
        seen.extend(calls)
        return [later()]

    with Script(call("pay", amount=5), "Done."):
        paused = way.turn(agent, tools=[pay], gate=gate).result
        assert isinstance(paused, Paused)
        assert way.resume(agent, stored(paused), [True], tools=[pay], gate=gate).result == "Done."
    shown = {"amount": 5, "account": "••••", "key": "•••• from BANK_KEY"}
    assert [one.arguments for one in (*seen, *paused.pending)] == [shown, shown]
    assert "hunter2" not in json.dumps(paused.to_json())


def test_the_gate_names_the_variable_of_a_tool_that_the_program_has_renamed() -> None:
    agent = loads(BOUND_FILE.replace("BINDINGS", BOUND_VARIABLES["a text"]), env={"BANK_KEY": "hunter2-hunter2"})
    renamed = agent.model_copy(update={"tools": [agent.tools[0].model_copy(update={"name": "spend"})]})

    def spend(amount: int, account: str, key: str) -> str:
        return "paid"

    with Script(call("spend", amount=5), "Done."):
        paused = SYNC.turn(renamed, tools=[spend]).result
    assert paused.pending[0].arguments["key"] == "•••• from BANK_KEY"


def test_a_variable_that_changed_during_a_pause_is_an_error() -> None:
    ran: list[str] = []

    def pay(amount: int, account: str, key: str) -> str:
        ran.append(key)
        return "paid"

    text = BOUND_FILE.replace("BINDINGS", BOUND_VARIABLES["a text"])
    agent, other = (
        loads(one, env={"BANK_KEY": "x", "ADMIN_KEY": "y"}) for one in (text, text.replace("BANK", "ADMIN"))
    )
    with Script(call("pay", amount=5), "Done."):
        paused = SYNC.turn(agent, tools=[pay]).result
        assert isinstance(SYNC.resume(other, stored(paused), [True], tools=[pay]).error, PausedRefused)
        assert ran == []
        assert SYNC.resume(agent, stored(paused), [True], tools=[pay]).result == "Done."
    assert ran == ["x"]


def test_a_pause_of_a_release_that_named_no_variables_is_resumed() -> None:
    agent = loads(BOUND_FILE.replace("BINDINGS", BOUND_VARIABLES["a text"]), env={"BANK_KEY": "x"})

    def pay(amount: int, account: str, key: str) -> str:
        return "paid"

    with Script(call("pay", amount=5), "Done."):
        paused = SYNC.turn(agent, tools=[pay]).result
        [shown] = paused.calls
        older = replace(paused, calls=(replace(shown, arguments={**shown.arguments, "key": "••••"}),))
        assert SYNC.resume(agent, stored(older), [True], tools=[pay]).result == "Done."


def test_another_variable_in_a_binding_is_another_definition() -> None:
    """So that a yes to all calls of a tool with one variable is none for another."""
    found = set[str]()

    def pay(amount: int, account: str, key: str) -> str:
        return "paid"

    for name in ("BANK_KEY", "ADMIN_KEY"):
        text = BOUND_FILE.replace("BINDINGS", BOUND_VARIABLES["a text"].replace("BANK_KEY", name))
        with Script(call("pay", amount=5), "Done."):
            paused = SYNC.turn(loads(text, env={name: "x"}), tools=[pay]).result
        found.add(paused.pending[0].definition)
    assert len(found) == 2


DAMAGED: list[Any] = [None, 5, "text", [], {}, {"version": 2}, {"version": True}, {"version": 1}, {"version": 3}]


@pytest.mark.parametrize("value", DAMAGED)
def test_a_pause_that_cannot_be_read_is_refused_by_an_error_of_ours(value: Any) -> None:
    with pytest.raises(PausedRefused):
        Paused.from_json(value)


def test_what_is_no_pause_cannot_be_resumed() -> None:
    error = SYNC.resume(scripted(), {"version": 2}, [True], tools=[]).error
    assert isinstance(error, RequestError)
    assert "Paused.from_json" in str(error)


# Once.


@sync_and_async
def test_a_pause_resumed_twice_with_its_memory_runs_its_calls_once(way: Way) -> None:
    bank, store = Bank(), InProcessMemory()
    options: dict[str, Any] = {"tools": [bank.pay], "approval": "always", "memory": store}
    with Script([call("pay", amount=1), call("pay", amount=2)], "Done.", "Never said."):
        paused = way.turn(scripted(), session_id="s", **options).result
        partly = way.resume(scripted(), stored(paused), {paused.pending[0].key: True}, **options).result
        assert way.resume(scripted(), stored(paused), [True, False], **options).result == "Done."
        after = store.load("s")
        for again, verdicts in ((paused, [True, True]), (partly, [True])):
            refused = way.resume(scripted(), stored(again), verdicts, **options).error
            assert isinstance(refused, PausedRefused)
            assert "resumed already" in str(refused)
    assert (bank.paid, store.load("s")) == ([1], after)


@sync_and_async
def test_a_resume_that_fails_before_its_calls_run_can_be_repeated(way: Way) -> None:
    bank, store = Bank(), InProcessMemory()
    options: dict[str, Any] = {"tools": [bank.pay], "memory": store}
    with Script(call("pay", amount=1), "Done."):
        paused = way.turn(scripted(), session_id="s", approval="always", **options).result
        kept = store.load("s")
        assert isinstance(
            way.resume(scripted(), paused, [True], approval={"when": {"x": {}}}, **options).error, ToolError
        )
        assert (bank.paid, store.load("s")) == ([], kept)
        assert way.resume(scripted(), paused, [True], **options).result == "Done."
    assert bank.paid == [1]


# The gate.


@sync_and_async
def test_a_gate_or_guardrail_that_edits_what_it_sees_changes_nothing(way: Way) -> None:
    ran: list[object] = []

    def look(at: dict[str, Any]) -> str:
        ran.append(at)
        return "seen"

    def edit(one: GatedCall) -> bool:
        one.arguments["at"]["deep"].append("edited")
        one.arguments["more"] = 1
        return True

    def gate(calls: list[GatedCall]) -> list[bool]:
        return [edit(one) for one in calls]

    with Script([call("look", at={"deep": [1]})], "Done."):
        way.turn(scripted(), tools=[look], gate=gate, guardrails=Guardrails(tool=edit))
    assert ran == [{"deep": [1]}]


def test_a_gate_that_edits_a_default_changes_nothing_for_the_next_call() -> None:
    ran: list[object] = []

    def look(at: dict[str, Any]) -> str:
        ran.append(json.loads(json.dumps(at)))
        at["deep"].append("by the tool")
        return "seen"

    def gate(calls: list[GatedCall]) -> list[bool]:
        calls[0].arguments["at"]["deep"].append("by the gate")
        return [True]

    declared = {"name": "at", "kind": "object", "default": {"deep": [1]}}
    agent = scripted(tools=[{"name": "look", "kind": "function", "parameters": [declared]}])
    with Script(call("look"), call("look"), "Done."):
        SYNC.turn(agent, tools=[look], gate=gate)
    assert ran == [{"deep": [1]}, {"deep": [1]}]


WRONG: dict[str, object] = {"retry": "retry", "nothing": None, "one": 1, "text": "yes"}


@pytest.mark.parametrize("verdict", WRONG.values(), ids=WRONG)
def test_a_verdict_that_cannot_be_read_is_an_error_and_the_turn_still_waits(verdict: object) -> None:
    bank = Bank()
    with Script(call("pay", amount=1), "Done."):
        paused = SYNC.turn(scripted(), tools=[bank.pay], approval="always").result
        refused = SYNC.resume(scripted(), paused, [verdict], tools=[bank.pay]).error
        assert isinstance(refused, RequestError)
        assert "'pay'" in str(refused)
        assert SYNC.resume(scripted(), paused, [deny("no")], tools=[bank.pay]).result == "Done."
    assert bank.paid == []


def test_a_definition_has_the_same_hash_until_it_changes() -> None:
    seen: list[str] = []

    def gate(calls: list[GatedCall]) -> list[bool]:
        seen.extend(one.definition for one in calls)
        return [True]

    def agent(description: str) -> PromptAgent:
        return scripted(tools=[pay_tool(description=description)])

    for description in ("Pay.", "Pay.", "Pay, and tell nobody."):
        with Script(call("pay", amount=1), "Done."):
            SYNC.turn(agent(description), tools=[Bank().pay], gate=gate)
    assert seen[0] == seen[1] != seen[2]
