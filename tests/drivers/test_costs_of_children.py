"""What prompts that run as tools use is counted in the run that calls them, also when they fail."""

from decimal import Decimal
from pathlib import Path

import pytest

from prompty import Budget, turn
from prompty.errors import BudgetSpent, PromptyError, ResultError
from prompty.model.message import Usage
from prompty.testing import Script, answer, call
from tests.ways import Way, sync_and_async

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
    with Script(ASK, answer("no number", usage=BIG), ASK) as script:
        seen = way.turn(parent, budget=Budget(tokens=20_000))
    assert isinstance(seen.error, BudgetSpent)
    assert seen.error.usage == SMALL + BIG + SMALL
    assert len(script.requests) == 3


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
