"""Guardrails, steering, models that stand in, and answers that are asked for again."""

from typing import Any

import pytest
from pydantic import BaseModel

from prompty import Guardrails, Message, ModelError, Steering, deny, rewrite, tool, user
from prompty.errors import GuardrailError, RequestError, ResultError
from prompty.events import Done, FellBack, GatedCall, MessagesChanged, Retry, ToolFinished
from prompty.testing import Fault, Script, answer, call
from tests.conversations.turns import assert_history_is_legal, scripted
from tests.ways import SYNC, Way, sync_and_async


@tool
def pay(amount: int) -> str:
    return f"paid {amount}"


async def refuse(_: object) -> object:
    return deny("not today")


REFUSALS: dict[str, Any] = {
    "deny": lambda _: deny("not today"),
    "an async one": refuse,
    "False": lambda _: False,
    "nothing": lambda _: None,
    "nonsense": lambda _: "yes",
    "an error": lambda _: 1 / 0,
}


@sync_and_async
@pytest.mark.parametrize("guardrail", REFUSALS.values(), ids=REFUSALS)
def test_what_a_guardrail_does_not_clearly_allow_is_refused(way: Way, guardrail: Any) -> None:
    with Script("never", "never") as script:
        seen = way.turn(scripted(), guardrails=Guardrails(input=guardrail))
    assert isinstance(seen.error, GuardrailError)
    assert script.requests == []
    with Script("said"):
        seen = way.turn(scripted(), guardrails=Guardrails(output=guardrail))
    assert isinstance(seen.error, GuardrailError)
    assert seen.texts == ["Be brief.", "Hi"]
    with Script(call("pay", amount=1), "Sorry."):
        seen = way.turn(scripted(), tools=[pay], guardrails=Guardrails(tool=guardrail))
    assert seen.result == "Sorry."
    assert seen.of(ToolFinished) == []
    assert seen.texts[3].startswith("Tool denied by guardrail: ")


@sync_and_async
def test_guardrails_may_put_something_else_in_the_place_of_what_they_see(way: Way) -> None:
    def hidden(messages: list[Message]) -> object:
        return rewrite([user("[hidden]") if message.text == "Hi" else message for message in messages])

    guardrails = Guardrails(
        input=hidden,
        output=lambda message: rewrite(message.text.upper()),
        tool=lambda seen: rewrite({"amount": 7}),
    )
    with Script(call("pay", amount=5), "done") as script:
        seen = way.turn(scripted(), tools=[pay], guardrails=guardrails)
    assert seen.result == "DONE"
    assert [body["messages"][1]["content"] for body in script.requests] == ["[hidden]", "[hidden]"]
    assert seen.texts == ["Be brief.", "Hi", "", "paid 7", "DONE"]


@sync_and_async
def test_arguments_that_a_guardrail_writes_must_fit_too(way: Way) -> None:
    guardrails = Guardrails(tool=lambda seen: rewrite({"amount": "much"}))
    with Script(call("pay", amount=5), "Sorry."):
        seen = way.turn(scripted(), tools=[pay], guardrails=guardrails)
    assert "are invalid" in seen.texts[3]
    assert seen.of(ToolFinished) == []


@sync_and_async
@pytest.mark.parametrize("value", ['{"amount": 1}', None, [1], call("pay", amount=1)], ids=repr)
def test_arguments_that_a_guardrail_rewrites_to_no_mapping_are_a_denial(way: Way, value: object) -> None:
    @tool
    def pay(amount: int = 1_000) -> str:
        return f"paid {amount}"

    with Script(call("pay", amount=5), "Sorry."):
        seen = way.turn(scripted(), tools=[pay], guardrails=Guardrails(tool=lambda _: rewrite(value)))
    assert seen.texts[3] == "Tool denied by guardrail: its rewritten arguments are not a mapping"
    assert seen.of(ToolFinished) == []


@sync_and_async
def test_a_guardrail_comes_before_the_gate(way: Way) -> None:
    judged: list[GatedCall] = []

    def gate(calls: list[GatedCall]) -> list[bool]:
        judged.extend(calls)
        return [True] * len(calls)

    guardrails = Guardrails(tool=lambda seen: seen.arguments["amount"] < 100 or deny("too much"))
    with Script([call("pay", amount=5), call("pay", amount=500)], "Done."):
        way.turn(scripted(), tools=[pay], guardrails=guardrails, gate=gate)
    assert [one.arguments["amount"] for one in judged] == [5]


@sync_and_async
def test_what_a_person_says_meanwhile_reaches_the_next_request_and_follow_ups_the_answer(way: Way) -> None:
    steering = Steering()

    @tool
    def pay(amount: int) -> str:
        steering.send("In euros.")
        steering.send("Quickly.")
        steering.follow_up("And now?")
        return "paid"

    with Script(call("pay", amount=1), "First.", "Second.") as script:
        seen = way.turn(scripted(), tools=[pay], steering=steering)
    assert seen.result == "Second."
    assert seen.texts[3:] == ["paid", "In euros.", "Quickly.", "First.", "And now?", "Second."]
    assert [message["content"] for message in script.requests[1]["messages"][-2:]] == ["In euros.", "Quickly."]
    assert len(seen.of(MessagesChanged)) == 3
    assert_history_is_legal(seen.messages)


@sync_and_async
def test_what_came_too_late_to_be_sent_is_still_answered(way: Way) -> None:
    steering = Steering()

    def first(_: object) -> str:
        steering.send("Wait!")
        return "First."

    with Script(first, "Second."):
        seen = way.turn(scripted(), steering=steering)
    assert seen.texts[2:] == ["First.", "Wait!", "Second."]


@sync_and_async
def test_another_model_stands_in_for_one_that_cannot_be_reached(way: Way) -> None:
    down = Fault(ModelError("overloaded", status=529, retryable=True))
    with Script(down, down, call("pay", amount=1), "Done.") as script:
        seen = way.turn(scripted(), tools=[pay], fallbacks=["second"], max_retries=1)
    assert seen.result == "Done."
    assert seen.of(FellBack) == [FellBack("second", "overloaded")]
    assert len(seen.of(Retry)) == 1
    assert [body["model"] for body in script.requests] == ["m", "m", "second", "second"]


@sync_and_async
def test_a_file_can_name_the_models_that_stand_in(way: Way) -> None:
    stand_in = {"id": "third", "provider": "scripted", "apiType": "messages"}
    agent = scripted(metadata={"fallbacks": ["second", stand_in]})
    down = Fault(ModelError("gone", status=404))
    with Script(down, down, "Done.") as script:
        seen = way.turn(agent, max_retries=0)
    assert seen.result == "Done."
    assert "system" in script.requests[2]


@sync_and_async
@pytest.mark.parametrize("error", [ModelError("bad request", status=400), ModelError("too long", status=413)])
def test_no_other_model_is_asked_when_the_request_is_at_fault(way: Way, error: ModelError) -> None:
    with Script(Fault(error), "never") as script:
        seen = way.turn(scripted(), fallbacks=["second"])
    assert seen.error is not None
    assert len(script.requests) == 1


def test_a_stand_in_that_is_no_model_is_an_error() -> None:
    seen = SYNC.turn(scripted(), fallbacks=[{"id": ["no"]}])
    assert isinstance(seen.error, RequestError)


class Sum(BaseModel):
    total: int


OUTPUTS = {"total": {"kind": "integer", "required": True}}


@sync_and_async
def test_an_answer_that_does_not_fit_is_sent_back_once_with_what_is_wrong(way: Way) -> None:
    with Script("three", '{"total": 3}') as script:
        seen = way.turn(scripted(), output_type=Sum)
    assert seen.result == Sum(total=3)
    assert "not a Sum" in script.requests[1]["messages"][-1]["content"]
    assert seen.of(Done)[0].iterations == 2
    with Script('{"total": "3"}', '{"total": 3}') as script:
        seen = way.turn(scripted(outputs=OUTPUTS))
    assert seen.result == {"total": 3}
    assert "integer" in script.requests[1]["messages"][-1]["content"]


@sync_and_async
def test_an_answer_that_never_fits_is_an_error_with_the_messages(way: Way) -> None:
    for shape in ({"output_type": Sum}, {"outputs": OUTPUTS}):
        with Script("three", "four"):
            seen = way.turn(scripted(outputs=shape.get("outputs", {})), output_type=shape.get("output_type"))
        assert isinstance(seen.error, ResultError)
        assert seen.error.text == "four"
        assert [seen.texts[at] for at in (2, 4)] == ["three", "four"]


@sync_and_async
def test_an_answer_that_fits_is_not_asked_for_again(way: Way) -> None:
    with Script(call("pay", amount=1), answer('{"total": 1}')) as script:
        assert way.turn(scripted(outputs=OUTPUTS), tools=[pay]).result == {"total": 1}
    assert len(script.requests) == 2
