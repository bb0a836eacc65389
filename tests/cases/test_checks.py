"""Checks on what was observed: what they say, and that they say it only when it is so."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prompty.cases.case_file import Check, Level
from prompty.cases.checks import CheckOutcome, Evaluators, Observation, get_value, parse_path, run_checks


class Recording:
    """Dear checks that note that they ran."""

    def __init__(self, *, passes: bool = True) -> None:
        self.ran: list[str] = []
        self._passes = passes

    def run_function(self, name: str, observation: Observation) -> CheckOutcome:
        return self._note("python")

    def measure_similarity(self, similar: object, observation: Observation) -> CheckOutcome:
        return self._note("similar")

    def ask_judge(self, check: Check, observation: Observation) -> CheckOutcome:
        return self._note("judge")

    def _note(self, name: str) -> CheckOutcome:
        self.ran.append(name)
        return CheckOutcome(self._passes, "" if self._passes else name)


def messages_of(check: dict[str, Any], observation: Observation, level: Level = "replay") -> list[str]:
    results = run_checks(level, [Check.model_validate(check)], observation, Recording)
    return [result.message for result in results if not result.passed]


def see(value: object, **more: Any) -> Observation:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Observation(text, lambda: value, **more)


PAID = see(
    "Done.",
    calls=[("look", {"at": "a"}), ("pay", {"amount": 500, "to": "Ada"})],
    rounds=3,
    tokens=12,
    read_cost=lambda: 0.01,
)

PASSING = {
    "equal text": ({"equals": "Hello"}, see("Hello")),
    "equal data": ({"equals": {"a": [1, None]}}, see({"a": [1, None]})),
    "null": ({"path": "a", "equals": None}, see({"a": None})),
    "contained text": ({"contains": ["Hel", "lo"]}, see("Hello")),
    "text that is not there": ({"not_contains": "bye"}, see("Hello")),
    "a match anywhere": ({"regex": "l+o$"}, see("Hello")),
    "a valid value": ({"json_schema": {"type": "object", "required": ["a"]}}, see({"a": 1})),
    "a schema of null says nothing": ({"json_schema": None}, see("Hello")),
    "a length": ({"length": 5}, see("Hello")),
    "entries of a list": ({"path": "a", "length": {"min": 2}}, see({"a": [1, 2]})),
    "a part": ({"path": "choices[0].text", "contains": "Hi"}, see({"choices": [{"text": "Hi!"}]})),
    "tools in order": ({"tools": ["look", "pay"]}, PAID),
    "tools with some arguments": ({"tools": ["look", {"pay": {"amount": 500}}]}, PAID),
    "no tools": ({"tools": []}, see("Hello")),
    "rounds, tokens and cost": ({"rounds": {"max": 3}, "tokens": {"min": 1, "max": 12}, "cost": {"max": 0.01}}, PAID),
    "dropped options in any order": ({"dropped": ["topK", "seed"]}, see({}, dropped=["seed", "topK"])),
}

FAILING = {
    "another text": ({"equals": "Hi"}, see("Hello"), 'expected "Hi", found "Hello"'),
    "true is not 1": ({"equals": 1}, see(True), "expected 1, found true"),
    "one of two texts": ({"contains": ["Hel", "x"]}, see("Hello"), 'expected text that contains "x", found "Hello"'),
    "unwanted text": ({"not_contains": "ell"}, see("Hello"), 'expected text without "ell", found "Hello"'),
    "no match": ({"regex": "^lo"}, see("Hello"), "expected text that matches '^lo', found \"Hello\""),
    "an invalid value": (
        {"json_schema": {"properties": {"a": {"items": {"type": "string"}}}}},
        see({"a": ["x", 1]}),
        'the value is not valid at `a[1]`: 1 is not of type "string"',
    ),
    "too long": ({"length": {"max": 3}}, see("Hello"), "expected length of at most 3, found 5"),
    "too short": ({"length": {"min": 6}}, see("Hello"), "expected length of at least 6, found 5"),
    "a number has no length": ({"path": "a", "length": 1}, see({"a": 1}), "`a`: the length is unknown"),
    "a part that is not there": (
        {"path": "a.b[2]", "equals": 1},
        see({"a": {"b": [0]}}),
        "`a.b` is a list of 1, without `2`",
    ),
    "a part of a text": ({"path": "a", "equals": 1}, see("Hello"), "`it` is a value, without `a`"),
    "a part that differs": ({"path": "a", "equals": 1}, see({"a": 2}), "`a`: expected 1, found 2"),
    "other tools": ({"tools": ["pay", "look"]}, PAID, "expected the calls pay, look, found look, pay"),
    "missing tools": ({"tools": ["look"]}, see("x"), "expected the calls look, found none"),
    "other arguments": (
        {"tools": ["look", {"pay": {"amount": 5}}]},
        PAID,
        "expected `pay` to be called with `amount` = 5, found 500",
    ),
    "missing arguments": (
        {"tools": [{"look": {"on": 1}}, "pay"]},
        PAID,
        "expected `look` to be called with `on` = 1, found nothing",
    ),
    "unknown cost": ({"cost": {"max": 1}}, see("x"), "the cost is unknown"),
    "dropped options": ({"dropped": []}, see({}, dropped=["topK"]), "dropped options: expected none, found topK"),
}


@pytest.mark.parametrize(("check", "observation"), PASSING.values(), ids=PASSING)
def test_a_check_that_holds_passes(check: dict[str, Any], observation: Observation) -> None:
    assert messages_of(check, observation) == []


@pytest.mark.parametrize(("check", "observation", "message"), FAILING.values(), ids=FAILING)
def test_a_check_that_does_not_hold_says_what_was_expected_and_found(
    check: dict[str, Any], observation: Observation, message: str
) -> None:
    assert messages_of(check, observation) == [message]


def test_a_long_value_is_shortened() -> None:
    [message] = messages_of({"contains": "y"}, see("x" * 5000))
    assert len(message) < 300
    assert message.endswith("(5,002 characters)")


def test_dear_checks_run_in_the_order_of_cost_and_only_if_cheaper_ones_passed() -> None:
    dear = {"judge": "j.prompty", "at_least": 4, "similar": {"to": "x", "prompt": "e.prompty"}, "python": "m:f"}
    cheap = Check.model_validate({**dear, "contains": "Hello"})
    recording = Recording()
    run_checks("replay", [cheap], see("Hello"), lambda: recording)
    assert recording.ran == ["python", "similar", "judge"]
    recording = Recording()
    run_checks("replay", [cheap, Check(contains=("x",))], see("Hello"), lambda: recording)
    assert recording.ran == []
    recording = Recording(passes=False)
    results = run_checks("replay", [cheap], see("Hello"), lambda: recording)
    assert recording.ran == ["python"]
    assert [(result.name, result.passed) for result in results] == [("contains", True), ("python", False)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1, max_size=5), inner, max_size=4),
    max_leaves=15,
)


@given(st.data(), json_values)
def test_a_path_of_a_value_leads_to_that_value(data: st.DataObject, value: Any) -> None:
    path, inner = "", value
    while isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
        if isinstance(inner, dict):
            step: Any = data.draw(st.sampled_from(sorted(inner)))
            path += f"[{json.dumps(step)}]" if not re.fullmatch(r"\w+", step) else f".{step}" if path else step
        else:
            step = data.draw(st.integers(0, len(inner) - 1))
            path += f"[{step}]"
        inner = inner[step]
    assert get_value(value, path) == inner


@given(st.text(max_size=20))
def test_any_text_is_a_path_or_an_error(text: str) -> None:
    try:
        parse_path(text)
    except ValueError as error:
        assert "is invalid" in str(error)


@given(json_values, json_values)
def test_equals_passes_exactly_for_equal_json(first: Any, second: Any) -> None:
    passes = not messages_of({"equals": first}, see(second))
    assert passes == (first == second and isinstance(first, bool) == isinstance(second, bool))


def test_evaluators_of_tests_fit_the_protocol(tmp_path: Path) -> None:
    evaluators: Evaluators = Recording()
    assert evaluators.run_function("m:f", see("x")).passed
