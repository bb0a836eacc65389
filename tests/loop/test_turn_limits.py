"""What ends a turn although the model would go on: rounds, stop conditions, budgets, failures."""

import logging
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from prompty import Budget, ModelError, Stop, Usage, turn, turn_async
from prompty.errors import BudgetSpent, IterationsExceeded, RequestError, ResultError, StreamCut
from prompty.events import Done, Event, IterationStarted, ModelReply, Retry, RunFailed, ToolStarted
from prompty.loop.stop import Progress
from prompty.pipeline import invoke_agent, invoke_agent_async
from prompty.testing import Fault, Script, answer, call
from tests.ways import Way, agent_of, every_way, every_wire, one_way, whole_and_streamed

AGENT = agent_of()
Condition = Callable[[Progress], bool]


def look(at: str = "it") -> str:
    return f"saw {at}"


def submit() -> str:
    return "submitted"


def using(tokens: int, *calls: Any) -> Any:
    return answer("", *(calls or [call("look")]), usage=Usage(input_tokens=tokens - 1, output_tokens=1))


@one_way
@pytest.mark.parametrize("limit", [1, 3])
def test_the_model_may_ask_for_tools_so_often(way: Way, limit: int) -> None:
    with Script(*[call("look")] * limit, "Done."):
        assert way.turn(AGENT, tools=[look], max_iterations=limit).result == "Done."
    with Script(*[call("look")] * (limit + 1)) as script:
        seen = way.turn(AGENT, tools=[look], max_iterations=limit)
    assert isinstance(seen.error, IterationsExceeded)
    assert str(seen.error).startswith(f"Agent loop exceeded {limit} iterations\n")
    assert (len(script.requests), len(seen.of(ToolStarted))) == (limit + 1, limit)
    assert seen.told[:limit] == ["saw it"] * limit
    assert seen.told[limit:] == [f"Error: Tool 'look' was not run: Agent loop exceeded {limit} iterations"]


def test_ten_rounds_are_the_limit_unless_somebody_says_otherwise() -> None:
    with Script(*[call("look")] * 11), pytest.raises(IterationsExceeded, match="exceeded 10"):
        turn(AGENT, tools=[look])


CONDITIONS: dict[str, tuple[Condition, int]] = {
    "steps": (Stop.steps(2), 2),
    "a tool": (Stop.tool_called("submit"), 3),
    "one of two tools": (Stop.tool_called("other", "submit"), 3),
    "tokens": (Stop.tokens(20), 2),
    "either": (lambda progress: Stop.steps(4)(progress) or Stop.tool_called("submit")(progress), 3),
    "never": (Stop.tool_called("other"), 4),
    "a function": (lambda progress: len(progress.messages) > 4, 2),
    "a condition and a function": (lambda progress: Stop.steps(1)(progress) and progress.rounds > 1, 2),
    "an unknown cost": (Stop.cost(0), 4),
}


@pytest.mark.spec("001 tool — one result per call", "stop conditions can match the name of a tool")
@one_way
@pytest.mark.parametrize(("condition", "rounds"), CONDITIONS.values(), ids=CONDITIONS)
def test_a_condition_ends_a_turn_after_a_round_of_tools(way: Way, condition: Condition, rounds: int) -> None:
    items = [using(10), using(10), answer("So.", call("submit"), usage=Usage(input_tokens=5)), using(10), "Done."]
    with Script(*items[: 5 if rounds == 4 else rounds]) as script:
        seen = way.turn(AGENT, tools=[look, submit], stop=condition)
    assert len(seen.told) == rounds
    assert len(script.requests) == (5 if rounds == 4 else rounds)
    assert seen.result == {2: "", 3: "So.", 4: "Done."}[rounds]
    assert seen.of(Done)[0].iterations == len(script.requests)


@one_way
def test_a_turn_that_has_used_its_tokens_runs_no_tool_and_asks_no_model(way: Way) -> None:
    with Script(using(40), using(60)) as script:
        seen = way.turn(AGENT, tools=[look], budget=Budget(tokens=100))
    assert isinstance(seen.error, BudgetSpent)
    assert (len(script.requests), len(seen.of(ToolStarted))) == (2, 1)
    assert seen.told[1].startswith("Error: Tool 'look' was not run: the turn has used 100 tokens")


@one_way
def test_an_answer_is_given_out_even_if_it_takes_the_last_token(way: Way) -> None:
    with Script(answer("Done.", usage=Usage(input_tokens=500))):
        assert way.turn(AGENT, budget=Budget(tokens=100)).result == "Done."


PRICED = agent_of(model={"id": "gpt-4o", "connection": {"kind": "anonymous", "endpoint": "https://api.openai.com/v1"}})


@one_way
def test_a_turn_that_has_cost_too_much_ends(way: Way) -> None:
    with Script(using(1_000), using(1_000_000)):
        seen = way.turn(PRICED, tools=[look], budget=Budget(cost=0.5))
    assert isinstance(seen.error, BudgetSpent)
    assert "its budget is $0.5" in str(seen.error)
    assert len(seen.of(ToolStarted)) == 1


@one_way
def test_what_a_turn_used_is_summed_up(way: Way) -> None:
    with Script(using(1_000), answer("Done.", usage=Usage(input_tokens=999, output_tokens=1, reasoning_tokens=1))):
        done = way.turn(PRICED, tools=[look]).of(Done)[0]
    assert done.usage == Usage(input_tokens=1998, output_tokens=2, reasoning_tokens=1)
    assert done.cost == Decimal("0.005015")
    with Script("Done."):
        assert way.turn(AGENT).of(Done)[0].cost is None


@one_way
def test_a_budget_of_money_for_a_model_without_a_price_is_an_error_at_once(way: Way) -> None:
    with Script() as script:
        seen = way.turn(AGENT, budget=Budget(cost=1))
    assert isinstance(seen.error, RequestError)
    assert "the price of the model 'm' is unknown" in str(seen.error)
    assert script.requests == []


@every_way
def test_a_turn_that_has_used_its_time_runs_no_further_tool(way: Way) -> None:
    def slow() -> str:
        time.sleep(0.51)
        return "slow"

    with Script([call("slow"), call("look")]) as script:
        seen = way.turn(AGENT, tools=[slow, look], budget=Budget(seconds=0.5), tool_execution="sequential")
    assert isinstance(seen.error, BudgetSpent)
    assert seen.told == ["slow", "Error: Tool 'look' was not run: the turn has used its budget of 0.5 seconds"]
    assert len(script.requests) == 1


BUSY = ModelError("busy", retryable=True, retry_after=0.001)
WRONG = ModelError("wrong", status=400)


@whole_and_streamed
@every_wire
def test_a_failure_that_may_pass_is_tried_again(way: Way, wire: str) -> None:
    with Script(Fault(BUSY), call("look"), Fault(BUSY), Fault(BUSY), "Done.") as script:
        seen = way.turn(agent_of(wire), tools=[look])
    assert seen.result == "Done."
    assert [event.attempt for event in seen.of(Retry)] == [1, 1, 2]
    assert {(event.seconds, event.reason.rstrip()) for event in seen.of(Retry)} == {(0.001, "busy")}
    assert len(seen.of(ModelReply)) == 2
    assert [event.iteration for event in seen.of(IterationStarted)] == [1, 2]
    assert script.requests[2] == script.requests[3] == script.requests[4]


@whole_and_streamed
@every_wire
@pytest.mark.parametrize(("failure", "retries"), [(BUSY, 2), (WRONG, 0)], ids=["passing", "permanent"])
def test_a_failure_that_stays_is_raised_with_what_was_done(
    way: Way, wire: str, failure: ModelError, retries: int
) -> None:
    with Script(call("look"), *[Fault(failure)] * (retries + 1)) as script:
        seen = way.turn(agent_of(wire), tools=[look], max_retries=2)
    assert isinstance(seen.error, ModelError)
    assert str(failure) in str(seen.error)
    assert len(seen.of(Retry)) == retries
    assert [message.role for message in seen.messages] == ["user", "assistant", "tool"]
    assert seen.told == ["saw it"]
    assert isinstance(seen.events[-1], RunFailed)
    with Script("Done."):
        assert way.turn(agent_of(wire), tools=[look], messages=seen.messages).result == "Done."
    assert len(script.requests) == retries + 2


@pytest.mark.spec(
    "001 Arguments are a string until the moment of execution",
    "an answer whose stream failed is a message marked as an error",
)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@every_wire
def test_nothing_half_received_runs(asynchronous: bool, wire: str) -> None:
    cut = Fault(BUSY, after=5, reply=answer("One moment.", call("look", at="a"), call("look", at="b")))
    with Script(cut):
        seen = Way(asynchronous, streamed=True).turn(agent_of(wire), tools=[look], max_retries=0)
    assert isinstance(seen.error, StreamCut)
    assert not seen.of(ToolStarted)
    assert [message.role for message in seen.messages] == ["user"]


class City(BaseModel):
    name: str


@one_way
def test_a_result_can_be_of_a_type(way: Way) -> None:
    with Script(call("look"), '{"name": "Oslo"}'):
        assert way.turn(AGENT, tools=[look], output_type=City).result == City(name="Oslo")


@one_way
def test_an_answer_that_does_not_fit_its_type_is_an_error_with_the_messages(way: Way) -> None:
    with Script(call("look"), *["Oslo"] * 2):
        seen = way.turn(AGENT, tools=[look], output_type=City)
    assert isinstance(seen.error, ResultError)
    assert [message.role for message in seen.messages][:4] == ["user", "assistant", "tool", "assistant"]


@every_way
def test_a_listener_that_raises_changes_nothing(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    def hear(_: Event) -> None:
        raise RuntimeError("I do not want to know")

    with Script([call("look"), call("look")], "Done."), caplog.at_level(logging.ERROR, "prompty"):
        seen = way.turn(AGENT, tools=[look], on_event=hear)
    assert (seen.result, seen.told) == ("Done.", ["saw it"] * 2)
    assert "I do not want to know" in caplog.text


@pytest.mark.parametrize(
    "option", [{"max_iterations": 0}, {"max_parallel": 0}, {"max_parallel": -1}, {"tool_execution": "serial"}], ids=str
)
def test_options_that_make_no_sense_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(option))):
        turn(AGENT, **option)


def test_the_documents_other_name_is_the_same_function() -> None:
    assert invoke_agent is turn
    assert invoke_agent_async is turn_async
