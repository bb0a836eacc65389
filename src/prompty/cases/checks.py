"""Check observations. Pure functions, except for the checks by `Evaluators`.

Checks run in the order of their cost: text and data first, then functions, similarity, and judges. The expensive checks
run only if the cheaper ones have passed. A path such as `messages[0].content` leads to one value, without wildcards.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

from prompty.cases.case_file import Check, Level, Range, Similarity
from prompty.cases.results import CheckResult
from prompty.safety.json import read_json
from prompty.safety.schemas import get_validator, search

_MAX_SHOWN = 160


class Observation(NamedTuple):
    """The subject of a level's checks. `read_value` returns it as JSON, and `text` is its readable form."""

    text: str
    read_value: Callable[[], object]
    dropped: Sequence[str] = ()
    tokens: int | None = None
    calls: Sequence[tuple[str, object]] = ()
    rounds: int | None = None
    cost: float | None = None
    seconds: float | None = None


class CheckOutcome(NamedTuple):
    """The outcome of a check that runs code or a model: its reason, and the score if there is one."""

    passed: bool
    message: str = ""
    advisory: bool = False
    score: float | None = None


class Evaluators(Protocol):
    """Checks that run code or models. Each can raise."""

    def run_function(self, name: str, observation: Observation) -> CheckOutcome: ...
    def measure_similarity(self, similar: Similarity, observation: Observation) -> CheckOutcome: ...
    def ask_judge(self, check: Check, observation: Observation) -> CheckOutcome: ...


def run_checks(
    level: Level, checks: Sequence[Check], observation: Observation, evaluators: Callable[[], Evaluators]
) -> list[CheckResult]:
    """Return a result for each condition. Expensive checks run only if the cheaper ones have passed."""
    results: list[CheckResult] = []
    for check in checks:
        seen = observation if check.path is None else _select(check.path, observation)
        if isinstance(seen, str):
            results.append(CheckResult(level, "path", False, seen))
            continue
        for name in check.conditions:
            if name in _CHEAP:
                message = _CHEAP[name](check, seen)
                results.append(_fail(level, name, message, check) if message else _get_passed(level, name))
    for name, evaluate in _EXPENSIVE.items():
        for check in checks:
            if name in check.conditions:
                if not all(result.passed or result.advisory for result in results):
                    return results
                verdict = evaluate(evaluators(), check, observation)
                results.append(CheckResult(level, name, *verdict))
    return results


@cache
def _get_passed(level: Level, name: str) -> CheckResult:
    return CheckResult(level, name, True)


def _fail(level: Level, name: str, message: str, check: Check) -> CheckResult:
    return CheckResult(level, name, False, message if check.path is None else f"`{check.path}`: {message}")


_EXPENSIVE: dict[str, Callable[[Evaluators, Any, Observation], CheckOutcome]] = {
    "python": lambda evaluators, check, seen: evaluators.run_function(check.python, seen),
    "similar": lambda evaluators, check, seen: evaluators.measure_similarity(check.similar, seen),
    "judge": lambda evaluators, check, seen: evaluators.ask_judge(check, seen),
}


def _select(path: str, observation: Observation) -> Observation | str:
    """Return the part at a path, or the reason why there is none."""
    try:
        value = get_value(observation.read_value(), path)
    except LookupError as error:
        return str(error.args[0])
    return observation._replace(text=value if isinstance(value, str) else _write(value), read_value=lambda: value)


def _check_equals(check: Check, seen: Observation) -> str:
    value, wanted = seen.read_value(), check.equals
    same = value == wanted and isinstance(value, bool) == isinstance(wanted, bool)
    return "" if same else f"expected {_show(wanted)}, found {_show(value)}"


def _check_contains(check: Check, seen: Observation) -> str:
    for wanted in check.contains:
        if wanted not in seen.text:
            return f"expected text that contains {_show(wanted)}, found {_show(seen.text)}"
    return ""


def _check_not_contains(check: Check, seen: Observation) -> str:
    for unwanted in check.not_contains:
        if unwanted in seen.text:
            return f"expected text without {_show(unwanted)}, found {_show(seen.text)}"
    return ""


def _check_regex(check: Check, seen: Observation) -> str:
    try:
        found = search(check.regex or "", seen.text)
    except ValueError as error:
        return str(error)
    return "" if found else f"expected text that matches {check.regex!r}, found {_show(seen.text)}"


def _check_length(check: Check, seen: Observation) -> str:
    value = seen.text if check.path is None else seen.read_value()
    return _compare("length", check.length, len(value) if isinstance(value, str | list | dict) else None)


def _check_dropped(check: Check, seen: Observation) -> str:
    wanted, found = sorted(check.dropped or ()), sorted(seen.dropped)
    return "" if wanted == found else f"dropped options: expected {_list(wanted)}, found {_list(found)}"


# The conditions on data by their keys. Each returns the reason for a failure, or "".
_CHEAP: dict[str, Callable[[Check, Observation], str]] = {
    "equals": _check_equals,
    "contains": _check_contains,
    "not_contains": _check_not_contains,
    "regex": _check_regex,
    "json_schema": lambda check, seen: _validate(_write(check.json_schema), seen.read_value()),
    "length": _check_length,
    "dropped": _check_dropped,
    "tools": lambda check, seen: _compare_calls(check.tools or (), seen.calls),
    "tokens": lambda check, seen: _compare("tokens", check.tokens, seen.tokens),
    "rounds": lambda check, seen: _compare("rounds", check.rounds, seen.rounds),
    "cost": lambda check, seen: _compare("cost", check.cost, seen.cost),
    "seconds": lambda check, seen: _compare("seconds", check.seconds, seen.seconds),
}


def _compare(name: str, limits: Range | None, found: float | None) -> str:
    if found is None or limits is None:
        return f"the {name} is unknown"
    low, high = limits.min, limits.max
    if (low is None or found >= low) and (high is None or found <= high):
        return ""
    wanted = f"exactly {low:g}" if low == high else f"at least {low:g}" if low is not None and found < low else ""
    return f"expected {name} of {wanted or f'at most {high:g}'}, found {found:g}"


def _compare_calls(wanted: Sequence[Any], found: Sequence[tuple[str, object]]) -> str:
    """Return the first difference between expected and actual calls. Arguments that are not listed are ignored."""
    expected = [(entry, {}) if isinstance(entry, str) else next(iter(entry.items())) for entry in wanted]
    names, called = [name for name, _ in expected], [name for name, _ in found]
    if names != called:
        return f"expected the calls {_list(names)}, found {_list(called)}"
    for (name, arguments), (_, given) in zip(expected, found, strict=True):
        for key, value in arguments.items():
            actual = given.get(key, _ABSENT) if isinstance(given, dict) else _ABSENT
            if actual != value:
                shown = "nothing" if actual is _ABSENT else _show(actual)
                return f"expected `{name}` to be called with `{key}` = {_show(value)}, found {shown}"
    return ""


_ABSENT = object()


def _validate(schema: str, value: object) -> str:
    try:
        error = next(get_validator(schema).iter_errors(value), None)
    except ValueError as unusable:
        return f"the JSON Schema is invalid: {unusable}"
    if error is None:
        return ""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path).lstrip(".")
    return f"the value is not valid{f' at `{place}`' if place else ''}: {error.message[:_MAX_SHOWN]}"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _write(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _show(value: object) -> str:
    """Return a value as JSON, truncated."""
    text = _write(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text):,} characters)"


_STEP = re.compile(r"\.?([^.\[\]\"]+)|\[(-?\d{1,9})\]|\[(\"(?:[^\"\\]|\\.)*\")\]")


def parse_path(text: str) -> tuple[str | int, ...]:
    """Split a path into names and positions. Raise ValueError if it is invalid."""
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None or (position == 0 and text.startswith(".")):
            raise ValueError(f"the path `{text}` is invalid at character {position + 1}")
        name, index, quoted = step.groups()
        steps.append(name if name is not None else int(index) if index is not None else str(read_json(quoted)))
        position = step.end()
    return tuple(steps)


def get_value(value: object, path: str) -> object:
    """Return the value at a path. Raise LookupError, naming the first missing step."""
    passed = ""
    for step in parse_path(path):
        try:
            if isinstance(step, int) and isinstance(value, list | tuple):
                value = value[step]
            elif isinstance(value, dict):
                value = value[str(step)]
            else:
                raise LookupError
        except LookupError:
            found = "a value"
            if isinstance(value, list | tuple):
                found = f"a list of {len(value)}"
            elif isinstance(value, dict):
                found = f"a mapping with {', '.join(list(value)[:10])}" if value else "a mapping"
            raise LookupError(f"`{passed or 'it'}` is {found}, without `{step}`") from None
        passed += f"[{step}]" if isinstance(step, int) else f".{step}" if passed else step
    return value
