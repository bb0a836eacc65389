"""Verdicts that arrive as JSON."""

import json

import pytest

from prompty import deny, later
from prompty.durable import use_result, verdict_from_json, verdict_to_json
from prompty.errors import RequestError
from prompty.loop.effects import Verdict


@pytest.mark.parametrize("verdict", [deny("no"), later(), use_result({"paid": 5}), use_result(None)])
def test_a_verdict_survives_its_way_as_json(verdict: object) -> None:
    assert verdict_from_json(json.loads(json.dumps(verdict_to_json(verdict)))) == verdict


def test_plain_answers_are_verdicts() -> None:
    assert [verdict_from_json(answer) for answer in (True, False)] == [Verdict(True), Verdict(False)]
    assert verdict_from_json({"allowed": False, "reason": "no"}) == deny("no")
    assert verdict_from_json(verdict_to_json(True)) == Verdict(True)


@pytest.mark.parametrize(
    "value",
    [None, 1, "yes", [], {}, {"allowed": "yes"}, {"allowed": 1}, {"allowed": True, "result": 1}, {"reason": "x"}],
)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match="is not a verdict"):
        verdict_from_json(value)
