"""Check observations. Pure functions, except for the checks by `Evaluators`.

Checks run in the order of their cost: text and data first, then functions, similarity, and judges. The expensive checks
run only if the cheaper ones have passed. A path such as `messages[0].content` leads to one value, without wildcards.

Where a check needs data and the answer is text, the text must be JSON, alone or in one fence.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from prompty.cases.calls import find_missing_call
from prompty.cases.case_file import CallEntry, Check, Level, Range, Similarity, ToolCalls, ValueCheck
from prompty.cases.results import CheckResult
from prompty.safety.json import read_json
from prompty.safety.schemas import get_validator, search

_MAX_SHOWN = 160
_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)```\s*", re.DOTALL)


class _NotJson(ValueError):
    """A check needs data, and the answer is text that is not JSON."""


ToolUse = tuple[str, object]  # the name of a tool, and its arguments


class Observation(NamedTuple):
    """The subject of a level's checks. `read_value` returns it as JSON, and `text` is its readable form."""

    text: str
    read_value: Callable[[], object]
    is_part: bool = False
    dropped: Sequence[str] = ()
    tokens: int | None = None
    calls: Sequence[ToolUse] = ()
    rounds: int | None = None
    read_cost: Callable[[], float | None] = lambda: None
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
    looked: list[tuple[Check, Observation]] = []
    for check in checks:
        seen = observation if check.path is None else _select(check.path, observation)
        if isinstance(seen, str):
            results.append(CheckResult(level, "path", False, seen))
            continue
        looked.append((check, seen))
        for name in check.conditions:
            if name in _CHEAP:
                message = _find_failure(name, check, seen)
                results.append(CheckResult(level, name, not message, _name_part(check, message) if message else ""))
    for name, evaluate in _EXPENSIVE.items():
        for check, seen in looked:
            if name in check.conditions:
                if not all(result.passed or result.advisory for result in results):
                    return results
                verdict = evaluate(evaluators(), check, seen)
                results.append(CheckResult(level, name, *verdict._replace(message=_name_part(check, verdict.message))))
    return results


def _find_first_failure(check: ValueCheck, observation: Observation) -> str:
    """Return the reason for the first failure of a check without expensive conditions, or ""."""
    seen = observation if check.path is None else _select(check.path, observation)
    if isinstance(seen, str):
        return seen
    failures = (_find_failure(name, check, seen) for name in check.conditions if name in _CHEAP)
    return _name_part(check, next(filter(None, failures), ""))


def _find_failure(name: str, check: ValueCheck, seen: Observation) -> str:
    """Return the reason why a condition fails, or ""."""
    try:
        return _CHEAP[name](check, seen)
    except _NotJson as error:
        return str(error)


def _name_part(check: ValueCheck, message: str) -> str:
    return f"`{check.path}`: {message}" if message and check.path is not None else message


_EXPENSIVE: dict[str, Callable[[Evaluators, Any, Observation], CheckOutcome]] = {
    "python": lambda evaluators, check, seen: evaluators.run_function(check.python, seen),
    "similar": lambda evaluators, check, seen: evaluators.measure_similarity(check.similar, seen),
    "judge": lambda evaluators, check, seen: evaluators.ask_judge(check, seen),
    "cost": lambda _, check, seen: _check_cost(check, seen),  # last, since it includes judges and embeddings
}


def _select(path: str, observation: Observation) -> Observation | str:
    """Return the part at a path, or the reason why there is none."""
    try:
        value = get_value(_read_data(observation), path)
    except (LookupError, _NotJson) as error:
        return str(error.args[0])
    text = value if isinstance(value, str) else _write(value)
    return observation._replace(text=text, read_value=lambda: value, is_part=True)


def _read_data(seen: Observation) -> object:
    """Return a value. For the text of a whole answer, return the JSON in it, or raise _NotJson."""
    value = seen.read_value()
    if seen.is_part or not isinstance(value, str):
        return value
    fenced = _FENCE.fullmatch(value)
    try:
        return read_json(fenced[1] if fenced else value)
    except ValueError as error:
        raise _NotJson(f"the answer is not JSON ({error}), found {show_value(value)}") from None


def _check_equals(check: ValueCheck, seen: Observation) -> str:
    wanted = check.equals
    value = _read_data(seen) if isinstance(wanted, dict | list) else seen.read_value()
    if check.ignore_case and isinstance(value, str) and isinstance(wanted, str):
        same = value.casefold() == wanted.casefold()
    else:
        same = _is_same(value, wanted)
    return "" if same else f"expected {show_value(wanted)}, found {show_value(value)}"


def _is_same(value: object, wanted: object) -> bool:
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


def _check_contains(check: ValueCheck, seen: Observation) -> str:
    for wanted in check.contains:
        if wanted not in seen.text and not (check.ignore_case and wanted.casefold() in seen.text.casefold()):
            return f"expected text that contains {show_value(wanted)}, found {show_value(seen.text)}"
    return ""


def _check_not_contains(check: ValueCheck, seen: Observation) -> str:
    for unwanted in check.not_contains:
        if unwanted in seen.text or (check.ignore_case and unwanted.casefold() in seen.text.casefold()):
            return f"expected text without {show_value(unwanted)}, found {show_value(seen.text)}"
    return ""


def _check_any_of(check: ValueCheck, seen: Observation) -> str:
    reasons: list[str] = []
    for alternative in check.any_of or ():
        reasons.append(_find_first_failure(alternative, seen))
        if not reasons[-1]:
            return ""
    return f"none of {len(reasons)} checks holds: {'; '.join(reasons)}"


def _check_regex(check: ValueCheck, seen: Observation) -> str:
    try:
        found = search(check.regex or "", seen.text)
    except ValueError as error:
        return str(error)
    return "" if found else f"expected text that matches {check.regex!r}, found {show_value(seen.text)}"


def _check_length(check: ValueCheck, seen: Observation) -> str:
    value = seen.text if check.path is None else seen.read_value()
    return _compare("length", check.length, len(value) if isinstance(value, str | list | dict) else None)


def _check_cost(check: Check, seen: Observation) -> CheckOutcome:
    message = _compare("cost", check.cost, seen.read_cost())
    return CheckOutcome(not message, message)


def _check_dropped(check: Check, seen: Observation) -> str:
    wanted, found = sorted(check.dropped or ()), sorted(seen.dropped)
    return "" if wanted == found else f"dropped options: expected {_list(wanted)}, found {_list(found)}"


# The conditions on data by their keys. Each returns the reason for a failure, or "".
_CHEAP: dict[str, Callable[[Any, Observation], str]] = {
    "equals": _check_equals,
    "contains": _check_contains,
    "not_contains": _check_not_contains,
    "regex": _check_regex,
    "json_schema": lambda check, seen: _validate(_write(check.json_schema), _read_data(seen)),
    "length": _check_length,
    "any_of": _check_any_of,
    "dropped": _check_dropped,
    "tools": lambda check, seen: _check_calls(check.tools, seen.calls),
    "tokens": lambda check, seen: _compare("tokens", check.tokens, seen.tokens),
    "rounds": lambda check, seen: _compare("rounds", check.rounds, seen.rounds),
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


def _check_calls(wanted: ToolCalls, found: Sequence[ToolUse]) -> str:
    """Return the first difference between expected and actual calls. Arguments that are not listed are ignored."""
    if wanted.equals is not None and (message := _compare_calls(wanted.equals, found, wanted.any_order)):
        return message
    if missing := _find_missing_call(wanted.contains, found, wanted.any_order):
        return missing
    for entry in wanted.not_contains:
        for made in found:
            if not _compare_call(entry, made):
                return f"expected no call {_show_call(*_split_entry(entry))}, found {_show_call(*made)}"
    return ""


def _compare_calls(wanted: Sequence[CallEntry], found: Sequence[ToolUse], any_order: bool) -> str:
    names, called = [_split_entry(entry)[0] for entry in wanted], [name for name, _ in found]
    if names != called and (not any_order or sorted(names) != sorted(called)):
        return f"expected the calls {_list(names)}{' in any order' if any_order else ''}, found {_list(called)}"
    if any_order:
        return _find_missing_call(wanted, found, any_order)
    return next(filter(None, map(_compare_call, wanted, found)), "")


def _find_missing_call(wanted: Sequence[CallEntry], found: Sequence[ToolUse], any_order: bool) -> str:
    missing = find_missing_call(
        len(wanted),
        len(found),
        lambda expected, position: not _compare_call(wanted[expected], found[position]),
        any_order=any_order,
    )
    if missing is None:
        return ""
    same = [made for made in found if made[0] == _split_entry(wanted[missing])[0]]
    difference = _compare_call(wanted[missing], same[0]) if len(same) == 1 else ""
    expected = ", ".join(_show_call(*_split_entry(entry)) for entry in wanted)
    calls = ", ".join(_show_call(*made) for made in found) or "none"
    order = "in any order" if any_order else "in this order"
    return difference or f"expected at least the calls {expected} {order}, found {calls}"


def _compare_call(entry: CallEntry, made: ToolUse) -> str:
    """Return the difference between an expected and an actual call, or ""."""
    (name, arguments), (called, given) = _split_entry(entry), made
    if name != called:
        return f"expected a call of `{name}`, found `{called}`"
    if not isinstance(arguments, dict):
        part = Observation(_write(given), lambda: given, is_part=True)
        failure = next(filter(None, (_find_first_failure(check, part) for check in arguments)), "")
        return f"the arguments of `{name}`: {failure}" if failure else ""
    for key, value in arguments.items():
        actual = given.get(key, _ABSENT) if isinstance(given, dict) else _ABSENT
        if not _is_same(actual, value):
            shown = "nothing" if actual is _ABSENT else show_value(actual)
            return f"expected `{name}` to be called with `{key}` = {show_value(value)}, found {shown}"
    return ""


def _split_entry(entry: CallEntry) -> tuple[str, dict[str, Any] | tuple[ValueCheck, ...]]:
    return (entry, {}) if isinstance(entry, str) else next(iter(entry.items()))


def _show_call(name: str, arguments: object) -> str:
    if isinstance(arguments, tuple):
        arguments = [check.model_dump(exclude_unset=True) for check in arguments]
    return f"{name} {show_value(arguments)}" if arguments else name


_ABSENT = object()


def _validate(schema: str, value: object) -> str:
    try:
        validator = get_validator(schema)
    except ValueError as unusable:
        return f"the JSON Schema is invalid: {unusable}"
    if validator.is_valid(value):
        return ""
    try:
        error = next(validator.iter_errors(value))
    except ValueError:
        return "the value is not valid, and too deeply nested to say where"
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path).lstrip(".")
    return f"the value is not valid{f' at `{place}`' if place else ''}: {error.message[:_MAX_SHOWN]}"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _write(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def show_value(value: object) -> str:
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
