"""What the steps of a durable turn store is read as what it was."""

import json
from decimal import Decimal
from typing import Any, get_args

import pytest

from prompty import Message, assistant, deny
from prompty.drivers.target import resolve_base
from prompty.durable.codec import (
    answer_from,
    answer_to_json,
    error_from,
    error_to_json,
    result_from,
    result_to_json,
)
from prompty.durable.delta_stream import delta_from, delta_to_json
from prompty.durable.record import new_record, stored_plan
from prompty.errors import (
    InputError,
    InputProblem,
    LoadError,
    ModelError,
    Problem,
    Refused,
    RunRefused,
    StreamCut,
    TextEdit,
)
from prompty.loop.effects import (
    AskGate,
    CallModel,
    CheckGuardrail,
    DescribeTools,
    Effect,
    OfferedTool,
    OutcomeUnknown,
    Rewrite,
    Summarise,
    Verdict,
)
from prompty.loop.options import RunOptions
from prompty.loop.stop import Budget
from prompty.model.agent import PromptAgent
from prompty.model.citation import Citation, ProviderCall
from prompty.model.delta import (
    CitationAdded,
    Delta,
    ProviderCallDone,
    ProviderCallStarted,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from prompty.model.message import Reply, Usage
from prompty.model.request import Function, WireRequest

AGENT = PromptAgent.model_validate({"model": {"id": "gpt-5", "provider": "openai"}, "instructions": "user:\nHi"})
CALL = ProviderCall(id="s1", tool="web_search", input={"query": "x"})
OFFERED = OfferedTool(
    function=Function(name="pay", description="Pay.", parameters={"type": "object"}),
    bound=("token",),
    defaults={"cents": 5},
    approval=(True, {"pay": {"when": {}}}),
    timeout=1.5,
)


def through_json(value: object) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize(
    ("effect", "answer"),
    [
        (CallModel(WireRequest(path="/", body={}, headers={})), Reply(text="Hello.")),
        (DescribeTools(), (OFFERED,)),
        (AskGate(()), []),
        (CheckGuardrail("input", ()), Rewrite([Message("user", ())])),
        (CheckGuardrail("output", None), Rewrite(assistant("Hello."))),
        (CheckGuardrail("tool", None), Rewrite({"cents": 5})),
        (CheckGuardrail("tool", None), deny("no")),
        (Summarise((), 100), "They said hello."),
    ],
    ids=lambda one: type(one).__name__,
)
def test_an_answer_to_an_effect_is_read_as_it_was(effect: Effect[object], answer: object) -> None:
    assert answer_from(effect, through_json(answer_to_json(effect, answer)), "a step") == answer


@pytest.mark.parametrize("effect", [CallModel(WireRequest(path="/", body={}, headers={})), DescribeTools()])
@pytest.mark.parametrize("value", [None, 5, [{}], {"text": 5}])
def test_an_answer_of_another_shape_is_refused(effect: Effect[object], value: object) -> None:
    with pytest.raises(RunRefused, match="a step is refused: it cannot be read"):
        answer_from(effect, value, "a step")


@pytest.mark.parametrize("result", [Message("tool", ()), OutcomeUnknown()], ids=["message", "unknown"])
def test_the_result_of_a_call_is_read_as_it_was(result: Message | OutcomeUnknown) -> None:
    assert type(result_from(through_json(result_to_json(result)), "a step")) is type(result)


def test_errors_keep_what_a_program_asks_them_for() -> None:
    problem = Problem(
        code="x",
        message="wrong",
        fix="Mend it.",
        path="a.prompty",
        line=3,
        edits=(TextEdit(line=3, column=1, end_line=3, end_column=2, text="b"),),
    )
    for error in (
        LoadError([problem]),
        InputError("city", "missing", "Pass it.", others=[InputProblem("day", "missing", "Pass it, too.")]),
        StreamCut("cut", Reply(text="Hel")),
        ModelError("busy", retryable=True, status=503, retry_after=2.0),
    ):
        found = error_from(through_json(error_to_json(error)), "a step")
        assert (type(found), str(found)) == (type(error), str(error))
        assert {name: vars(found)[name] for name in vars(error)} == vars(error)


@pytest.mark.parametrize("value", [None, {}, {"class": "Nothing"}, {"class": "ModelError", "arguments": 5}])
def test_an_error_of_another_shape_is_refused(value: object) -> None:
    with pytest.raises(RunRefused):
        error_from(value, "a step")


DELTAS: list[Delta] = [
    TextDelta("Hel"),
    ReasoningDelta("Let me see"),
    ToolCallDelta(0, "c1", "pay", '{"cents"'),
    ProviderCallStarted(CALL),
    ProviderCallDone(CALL),
    CitationAdded(Citation(kind="web", url="https://example.com", start=0, raw={"index": 1})),
]


def test_every_delta_is_read_as_it_was() -> None:
    assert {type(delta) for delta in DELTAS} == set(get_args(Delta))
    assert [delta_from(through_json(delta_to_json(delta))) for delta in DELTAS] == DELTAS


def test_a_budget_keeps_every_digit_of_its_money() -> None:
    options: RunOptions = {"budget": Budget(tokens=1000, cost=Decimal("0.10000000000000000001")), "max_iterations": 3}
    record = new_record("run", AGENT, None, options, {})  # type: ignore[arg-type]  # the options of a turn are among them
    plan, _ = stored_plan(record, {"gate": False, "guardrails": [], "summary": False}, resolve_base)
    assert plan.settings.budget == options["budget"]


def test_a_verdict_is_stored_with_its_reason() -> None:
    stored = [{"allowed": False, "reason": "no", "deferred": False}]
    assert answer_from(AskGate(()), stored, "a step") == [Verdict(False, "no")]


def test_a_stored_refusal_has_what_it_used() -> None:
    refused = Refused("No.", Reply(refusal="No.", usage=Usage(input_tokens=7)))
    stored = error_from(json.loads(json.dumps(error_to_json(refused))), "a step")
    assert isinstance(stored, Refused)
    assert stored.reply == refused.reply
