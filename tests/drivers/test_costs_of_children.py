"""What prompts that run as tools use is counted in the run that calls them, also when they fail."""

from decimal import Decimal
from pathlib import Path

import pytest

from prompty import Budget, CancelToken, Context, Message, PromptAgent, assistant, loads, turn, user
from prompty.errors import BudgetSpent, Cancelled, PromptyError, ResultError
from prompty.events import Done
from prompty.model.message import Reply, Usage
from prompty.testing import Script, answer, call
from tests.ways import Way, every_way, sync_and_async

SMALL = Usage(input_tokens=1_000, output_tokens=100)
BIG = Usage(input_tokens=50_000, output_tokens=100)
ASK = answer("", call("child", q="x"), usage=SMALL)
HEAD = "---\nmodel: gpt-5\n{}---\nuser:\nhi\n"


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """A prompt whose tool is a prompt that promises a number."""
    (tmp_path / "child.prompty").write_text(HEAD.format("inputs: {q: string}\noutputs: {a: {kind: integer}}\n"))
    path = tmp_path / "parent.prompty"
    path.write_text(HEAD.format("tools: [{name: child, kind: prompty, path: child.prompty}]\n"))
    return path


@sync_and_async
def test_a_child_that_fails_after_its_calls_has_used_the_budget(parent: Path, way: Way) -> None:
    with Script(ASK, answer("no number", usage=BIG)) as script:
        seen = way.turn(parent, budget=Budget(tokens=20_000))
    assert isinstance(seen.error, BudgetSpent)
    assert seen.error.usage == SMALL + BIG
    assert len(script.requests) == 2


@sync_and_async
def test_the_usage_of_a_turn_has_that_of_a_child_that_failed(parent: Path, way: Way) -> None:
    with Script(ASK, answer("no number", usage=BIG), answer("Done.", usage=SMALL)):
        seen = way.turn(parent, details=True)
    assert seen.result.usage == SMALL + BIG + SMALL


@sync_and_async
def test_an_error_that_ends_a_run_says_what_its_calls_used(tmp_path: Path, way: Way) -> None:
    path = tmp_path / "promise.prompty"
    path.write_text(HEAD.format("outputs: {a: {kind: integer}}\n"))
    with Script(answer("no number", usage=BIG), answer("still no number", usage=BIG)):
        seen = way.turn(path, budget=Budget(cost=1))
    assert isinstance(seen.error, ResultError)
    assert (seen.error.usage, seen.error.cost) == (BIG + BIG, 2 * Decimal("0.0635"))


def test_an_error_before_any_call_has_used_nothing() -> None:
    assert (PromptyError("x").usage, PromptyError("x").cost) == (None, None)


def test_a_stream_knows_the_cost_of_its_children(parent: Path) -> None:
    with (
        Script(ASK, answer('{"a": 1}', usage=SMALL), answer("Done.", usage=SMALL)),
        turn(parent, stream=True) as stream,
    ):
        assert stream.result == "Done."
        assert stream.cost == 3 * Decimal("0.00225")


@sync_and_async
def test_parallel_children_share_a_budget(tmp_path: Path, way: Way) -> None:
    (tmp_path / "child.prompty").write_text(HEAD.format("inputs: {q: string}\n"))
    path = tmp_path / "parent.prompty"
    path.write_text(HEAD.format("tools: [{name: child, kind: prompty, path: child.prompty}]\n"))
    eight = answer("", *(call("child", q=str(number)) for number in range(8)), usage=Usage(input_tokens=10))
    nine = answer("x", usage=Usage(input_tokens=9_000))
    with Script(eight, *[nine] * 2) as script:
        seen = way.turn(path, budget=Budget(tokens=10_000))
    assert isinstance(seen.error, BudgetSpent)
    assert seen.error.usage.input_tokens == 18_010
    assert len(script.requests) == 3


def summarizing(folder: Path) -> Context:
    path = folder / "summary.prompty"
    path.write_text(HEAD.format("inputs: {conversation: {kind: string}, characters: {kind: integer}}\n"))
    return Context(limit=1000, summary=path)


LONG = [one for _ in range(10) for one in (user("q" * 300), assistant("a" * 300))] + [user("now")]


@sync_and_async
def test_a_summary_counts_in_the_run_that_it_is_for(tmp_path: Path, way: Way) -> None:
    agent = loads(HEAD.format(""))
    with Script(answer("summary", usage=BIG), answer("Done.", usage=SMALL)) as script:
        seen = way.turn(agent, messages=LONG, context_budget=summarizing(tmp_path), model="gpt-5-mini", details=True)
    assert seen.result.usage == BIG + SMALL
    assert [request["model"] for request in script.requests] == ["gpt-5-mini", "gpt-5-mini"]
    with Script(answer("summary", usage=BIG)):
        seen = way.turn(agent, messages=LONG, context_budget=summarizing(tmp_path), budget=Budget(tokens=2_000))
    assert isinstance(seen.error, BudgetSpent)
    assert seen.error.usage == BIG


@sync_and_async
def test_a_summary_ends_when_its_run_is_cancelled(tmp_path: Path, way: Way) -> None:
    token = CancelToken()

    def cancel(_: object) -> Reply:
        token.cancel()
        return answer("summary")

    with Script(cancel) as script:
        seen = way.turn(loads(HEAD.format("")), messages=LONG, context_budget=summarizing(tmp_path), cancel=token)
    assert isinstance(seen.error, Cancelled)
    assert len(script.requests) == 1


@every_way
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_refusal_has_used_what_it_used(way: Way, api: str) -> None:
    provider = {"provider": "anthropic"} if api == "messages" else {"apiType": api}
    agent = PromptAgent.model_validate({"model": {"id": "m", **provider}, "instructions": "user:\nHi"})
    with Script(Reply(refusal="No.", finish_reason="refusal", usage=SMALL)):
        seen = way.turn(agent, budget=Budget(tokens=10))
    used = seen.error.usage if seen.error else seen.of(Done)[-1].usage
    assert used == SMALL


@sync_and_async
def test_a_summary_function_whose_own_budget_is_spent_does_not_end_the_run(way: Way) -> None:
    def sum_up(messages: list[Message], characters: int) -> str:
        raise BudgetSpent("another run has used 9 tokens; its budget is 5")

    with Script("Done."):
        seen = way.turn(loads(HEAD.format("")), messages=LONG, context_budget=Context(limit=1000, summary=sum_up))
    assert seen.result == "Done."
