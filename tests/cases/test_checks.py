"""Checks on what was observed: what they say, and that they say it only when it is so."""

import json
import re
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from prompty.cases.case_file import Check, Level
from prompty.cases.checks import CheckOutcome, Evaluators, Observation, get_value, parse_path, run_checks


class Recording:
    """Dear checks that note that they ran."""

    def __init__(self, *, passes: bool = True) -> None:
        self.ran: list[str] = []
        self.seen: list[object] = []
        self._passes = passes

    def run_function(self, name: str, observation: Observation) -> CheckOutcome:
        return self._note("python", observation)

    def measure_similarity(self, similar: object, observation: Observation) -> CheckOutcome:
        return self._note("similar", observation)

    def ask_judge(self, check: Check, observation: Observation) -> CheckOutcome:
        return self._note("judge", observation)

    def _note(self, name: str, observation: Observation) -> CheckOutcome:
        self.ran.append(name)
        self.seen.append((observation.text, observation.read_value()))
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

BOUGHT = see("Done.", calls=[("look", {"at": "a"}), ("look", {"at": "b"}), ("pay", {"amount": 5})])

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
    "a part of JSON in a text": ({"path": "a[0]", "equals": 1}, see(' {"a": [1]}\n')),
    "a schema for JSON in a text": ({"json_schema": {"type": "object", "required": ["a"]}}, see('{"a": 1}')),
    "JSON in a fence": ({"path": "a", "equals": "```"}, see('```json\n{"a": "```"}\n```\n')),
    "JSON in a fence without a name": ({"equals": [1, 2]}, see("```\n[1, 2]\n```")),
    "a part that is text": ({"path": "a", "json_schema": {"type": "string"}}, see('{"a": "5"}')),
    "text that looks like a number": ({"equals": "5"}, see("5")),
    "text in another case": ({"contains": ["ADA", "straße"], "ignore_case": True}, see("Ada, STRASSE 1")),
    "equal text in another case": ({"equals": "yes", "ignore_case": True}, see("YES")),
    "equal data, where case means nothing": ({"equals": 5, "ignore_case": True}, see(5)),
    "the second of two": ({"any_of": [{"contains": "x"}, {"regex": "^H"}]}, see("Hello")),
    "alternatives of a part": (
        {"path": "a", "any_of": [{"equals": "b"}, {"path": "c", "equals": 1}]},
        see({"a": {"c": 1}}),
    ),
    "alternatives in alternatives": ({"any_of": [{"any_of": [{"equals": 1}, {"tokens": 2}]}]}, see("x", tokens=2)),
    "tools in order": ({"tools": ["look", "pay"]}, PAID),
    "tools with some arguments": ({"tools": ["look", {"pay": {"amount": 500}}]}, PAID),
    "at least these tools": ({"tools": {"contains": ["look"]}}, PAID),
    "at least these tools, in order": ({"tools": {"contains": ["look", {"pay": {"to": "Ada"}}]}}, PAID),
    "tools in any order": ({"tools": {"equals": ["pay", "look"], "any_order": True}}, PAID),
    "some tools in any order": ({"tools": {"contains": ["pay", "look"], "any_order": True}}, BOUGHT),
    "tools that are never called": ({"tools": {"not_contains": ["delete", {"pay": {"amount": 5}}]}}, PAID),
    "arguments by pattern": (
        {
            "tools": [
                "look",
                {"pay": [{"path": "to", "regex": "^A"}, {"path": "amount", "json_schema": {"minimum": 5}}]},
            ]
        },
        PAID,
    ),
    "arguments by alternatives": (
        {"tools": {"contains": [{"pay": [{"path": "to", "any_of": [{"equals": "Bob"}, {"contains": "d"}]}]}]}},
        PAID,
    ),
    "one tool alone": ({"tools": "look"}, see("x", calls=[("look", {})])),
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
    "unwanted text in another case": (
        {"not_contains": "ELL", "ignore_case": True},
        see("Hello"),
        'expected text without "ELL", found "Hello"',
    ),
    "no alternative": (
        {"any_of": [{"contains": "x"}, {"path": "a", "equals": 2, "length": 3}]},
        see({"a": 1}),
        'none of 2 checks holds: expected text that contains "x", found "{\\"a\\": 1}"; `a`: expected 2, found 1',
    ),
    "too long": ({"length": {"max": 3}}, see("Hello"), "expected length of at most 3, found 5"),
    "too short": ({"length": {"min": 6}}, see("Hello"), "expected length of at least 6, found 5"),
    "a number has no length": ({"path": "a", "length": 1}, see({"a": 1}), "`a`: the length is unknown"),
    "a part that is not there": (
        {"path": "a.b[2]", "equals": 1},
        see({"a": {"b": [0]}}),
        "`a.b` is a list of 1, without `2`",
    ),
    "a part of a text": (
        {"path": "a", "equals": 1},
        see("Hello"),
        'the answer is not JSON (Expecting value at line 1, column 1), found "Hello"',
    ),
    "a part of a part that is text": (
        {"path": "a.b", "equals": 1},
        see({"a": '{"b": 1}'}),
        "`a` is a value, without `b`",
    ),
    "a schema for a text": (
        {"json_schema": {"type": "string"}},
        see("Hello " * 50),
        'the answer is not JSON (Expecting value at line 1, column 1), found "'
        + ("Hello " * 50)[:159]
        + "… (302 characters)",
    ),
    "JSON between other words": (
        {"path": "a", "equals": 1},
        see('Here: {"a": 1}'),
        'the answer is not JSON (Expecting value at line 1, column 1), found "Here: {\\"a\\": 1}"',
    ),
    "two fences": (
        {"json_schema": {}},
        see("```json\n1\n```\n```json\n2\n```"),
        'the answer is not JSON (Extra data at line 2, column 1), found "```json\\n1\\n```\\n```json\\n2\\n```"',
    ),
    "a key twice in JSON": (
        {"path": "a", "equals": 1},
        see('{"a": 1, "a": 2}'),
        'the answer is not JSON (duplicate key \'a\'), found "{\\"a\\": 1, \\"a\\": 2}"',
    ),
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
    "a tool that was not called": (
        {"tools": {"contains": ["look", "ship"]}},
        PAID,
        "expected at least the calls look, ship in this order, "
        'found look {"at": "a"}, pay {"amount": 500, "to": "Ada"}',
    ),
    "tools in another order": (
        {"tools": {"contains": [{"pay": {"amount": 500}}, "look"]}},
        PAID,
        'expected at least the calls pay {"amount": 500}, look in this order, '
        'found look {"at": "a"}, pay {"amount": 500, "to": "Ada"}',
    ),
    "more calls than expected": (
        {"tools": {"equals": ["pay", "look"], "any_order": True}},
        BOUGHT,
        "expected the calls pay, look in any order, found look, look, pay",
    ),
    "one call for two": (
        {"tools": {"equals": [{"look": {"at": "a"}}, {"look": {"at": "a"}}, "pay"], "any_order": True}},
        BOUGHT,
        'expected at least the calls look {"at": "a"}, look {"at": "a"}, pay in any order, '
        'found look {"at": "a"}, look {"at": "b"}, pay {"amount": 5}',
    ),
    "a tool that must not be called": (
        {"tools": {"not_contains": ["delete", {"pay": [{"path": "amount", "json_schema": {"minimum": 100}}]}]}},
        PAID,
        'expected no call pay [{"path": "amount", "json_schema": {"minimum": 100}}], '
        'found pay {"amount": 500, "to": "Ada"}',
    ),
    "arguments that do not match": (
        {"tools": {"contains": [{"pay": [{"path": "to", "regex": "^B"}]}]}},
        PAID,
        "the arguments of `pay`: `to`: expected text that matches '^B', found \"Ada\"",
    ),
    "arguments that are not JSON": (
        {"tools": [{"look": [{"path": "at", "equals": 1}]}]},
        see("x", calls=[("look", '{"at": 1')]),
        "the arguments of `look`: `it` is a value, without `at`",
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


def test_functions_similarity_and_judges_look_at_the_part_that_the_path_names() -> None:
    dear = {"judge": "j.prompty", "at_least": 4, "similar": {"to": "x", "prompt": "e.prompty"}, "python": "m:f"}
    recording = Recording()
    check = Check.model_validate({**dear, "path": "items[0]"})
    run_checks("replay", [check], see({"items": [{"label": "spam"}], "note": "x"}), lambda: recording)
    assert recording.seen == [('{"label": "spam"}', {"label": "spam"})] * 3
    recording = Recording(passes=False)
    [result] = run_checks("replay", [check], see({"items": ["spam"]}), lambda: recording)
    assert (recording.seen, result.message) == ([("spam", "spam")], "`items[0]`: python")
    recording = Recording()
    [result] = run_checks("replay", [check], see({"items": []}), lambda: recording)
    assert (recording.ran, result.message) == ([], "`items` is a list of 0, without `0`")


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


cheap_checks = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "equals": json_values,
            "contains": st.text("aB ", max_size=2),
            "not_contains": st.text("Ab ", max_size=2),
            "ignore_case": st.booleans(),
            "regex": st.sampled_from(["^a", "b$", "(?i)A", ""]),
        },
    ).filter(lambda check: check.keys() - {"ignore_case"}),
    lambda inner: st.builds(
        lambda one, several: {**one, "any_of": several}, inner, st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=4,
)


@given(st.lists(cheap_checks, min_size=1, max_size=4), json_values | st.text("abAB ", max_size=4))
def test_any_of_passes_exactly_if_one_of_its_checks_does(checks: list[dict[str, Any]], value: Any) -> None:
    passes = not messages_of({"any_of": checks}, see(value))
    assert passes == any(not messages_of(check, see(value)) for check in checks)


@given(st.text(max_size=6), st.text(max_size=12))
def test_ignoring_case_finds_a_text_in_any_case(wanted: str, text: str) -> None:
    for changed in (text, text.upper(), text.lower(), text.casefold()):
        found = not messages_of({"contains": wanted, "ignore_case": True}, see(changed))
        assert found == (wanted.casefold() in changed.casefold())
        assert found != (not messages_of({"not_contains": wanted, "ignore_case": True}, see(changed)))


call_names = st.sampled_from(["look", "pay"])
call_arguments = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 1), max_size=2)
made_calls = st.lists(st.tuples(call_names, call_arguments), max_size=5)
wanted_calls = st.lists(
    st.one_of(call_names, st.builds(lambda name, given: {name: given}, call_names, call_arguments)), max_size=4
)


def fits(wanted: str | dict[str, Any], made: tuple[str, dict[str, int]]) -> bool:
    [(name, arguments)] = [(wanted, {})] if isinstance(wanted, str) else wanted.items()
    return name == made[0] and arguments.items() <= made[1].items()


@settings(max_examples=400)
@given(wanted_calls, wanted_calls, made_calls, st.booleans(), st.booleans())
def test_expected_calls_match_as_trying_every_choice_of_calls_does(
    wanted: list[Any], unwanted: list[Any], made: list[Any], exact: bool, any_order: bool
) -> None:
    choose = permutations if any_order else combinations
    choices = [choice for choice in choose(made, len(wanted)) if all(map(fits, wanted, choice))]
    holds = bool(choices) and (not exact or len(made) == len(wanted))
    holds = holds and not any(fits(entry, call) for entry in unwanted for call in made)
    check = {"equals" if exact else "contains": wanted, "not_contains": unwanted, "any_order": any_order}
    assert (not messages_of({"tools": check}, see("x", calls=made))) == holds


def test_evaluators_of_tests_fit_the_protocol(tmp_path: Path) -> None:
    evaluators: Evaluators = Recording()
    assert evaluators.run_function("m:f", see("x")).passed
