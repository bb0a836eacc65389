"""Convert assertions to checks: one table, for promptfoo and for GitHub Models. Pure functions on plain data."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from prompty.cases.case_file import Check, Level
from prompty.cases.imports.templates import enumerate_entries, shorten, substitute, to_list, to_mapping
from prompty.cases.imports.writing import DraftCheck, Keys, Note
from prompty.cases.reading import find_check_mistakes
from prompty.model.message import Json

# A weight decides nothing without a threshold, which is noted where it stands. A metric is a name for reports.
_KEYS = frozenset({"type", "value", "threshold", "weight", "metric", "description"})
_CODE = ("is code, which is never run", "Write a function, name it with `python:`, and pass its file with --checks.")
_JUDGE = ("asks a model for its opinion", "Write a judge prompt, and name it with `judge: FILE.prompty`.")
_SIMILAR = ("needs an embedding model", "Write `similar: {to: …, prompt: embed.prompty}` with an embedding prompt.")
_JUDGES = (
    "llm-rubric|g-eval|factuality|model-graded-closedqa|model-graded-factuality|answer-relevance|context-faithfulness|"
    "context-recall|context-relevance|conversation-relevance|select-best|search-rubric|max-score|pi|evaluator"
)
_REASONS = dict.fromkeys(_JUDGES.split("|"), _JUDGE)
_REASONS |= {"javascript": _CODE, "python": _CODE, "ruby": _CODE, "webhook": _CODE, "similar": _SIMILAR}


class NoCounterpart(ValueError):
    """An assertion has no counterpart: why, and maybe what to do instead."""


def convert_assertions(
    entries: object, keys: Keys, values: Mapping[str, object], against: str = ""
) -> tuple[list[DraftCheck], list[Note]]:
    """Return a check or a note for each assertion. `values` are those of variables, `against` is a reason for none."""
    checks: list[DraftCheck] = []
    notes: list[Note] = []
    for place, entry in enumerate_entries(entries, keys):
        data = to_mapping(entry)
        if data.get("type") == "assert-set":
            share = "" if data.get("threshold") in (None, 1) else "is one of several of which some may fail"
            inner = convert_assertions(data.get("assert"), (*place, "assert"), values, against or share)
            checks, notes = checks + inner[0], notes + inner[1]
            continue
        try:
            if against:
                raise NoCounterpart(against)
            checks.append(convert_assertion(data, values))
        except NoCounterpart as error:
            shown = ": ".join(shorten(data[key]) for key in ("type", "value") if data.get(key) is not None)
            notes.append(Note(place, f"`{shown or shorten(entry)}` {error.args[0]}", *error.args[1:]))
    return checks, notes


def convert_assertion(data: Json, values: Mapping[str, object]) -> DraftCheck:
    """Return the check of an assertion. Raise NoCounterpart if no check decides the same."""
    kind = str(data.get("type"))
    if found := _REASONS.get(kind.removeprefix("not-")):
        raise NoCounterpart(*found)
    if kind not in _TABLE:
        raise NoCounterpart("has no counterpart" if "type" in data else "has no type")
    if unknown := sorted(map(str, data.keys() - _KEYS)):
        raise NoCounterpart(f"has `{unknown[0]}`, which has no counterpart")
    if data.get("weight") == 0:
        raise NoCounterpart("has the weight 0, so it never fails")
    value = data.get("threshold") if kind in ("cost", "latency") else _fill(data.get("value"), values)
    level: Level = "live" if kind == "latency" else "replay"
    try:
        check = _TABLE[kind](value)
        mistake = next(find_check_mistakes(Check.model_validate(check), level), None)
    except (TypeError, ValueError):
        raise NoCounterpart("has a value of another kind") from None
    if mistake:
        raise NoCounterpart(f"cannot be read: {mistake[1]}", mistake[2])
    return level, check


def _to_text(value: object) -> str:
    if value is None or isinstance(value, dict | list):
        raise TypeError
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escape(value: object) -> str:
    return re.escape(_to_text(value)).replace("\\ ", " ")  # spaces stay readable


def _to_texts(value: object) -> list[str]:
    return [_to_text(entry) for entry in to_list(value) or [None]]


def _to_data(value: object) -> Any:
    """Return a value as JSON. A text is the JSON in it."""
    return json.loads(value if isinstance(value, str) else json.dumps(value, default=str))


def _any_of(value: object, **options: bool) -> Json:
    checks: list[Json] = [{"contains": text, **options} for text in _to_texts(value)]
    return checks[0] if len(checks) == 1 else {"any_of": checks}


# Checks by the type of the assertion. A type that is not here has no counterpart.
_TABLE: dict[str, Callable[[Any], Json]] = {
    "equals": lambda value: {"equals": _to_data(value) if isinstance(value, dict | list) else _to_text(value)},
    "contains": lambda value: {"contains": _to_text(value)},
    "not-contains": lambda value: {"not_contains": _to_text(value)},
    "icontains": lambda value: {"contains": _to_text(value), "ignore_case": True},
    "not-icontains": lambda value: {"not_contains": _to_text(value), "ignore_case": True},
    "contains-all": lambda value: {"contains": _to_texts(value)},
    "icontains-all": lambda value: {"contains": _to_texts(value), "ignore_case": True},
    "contains-any": _any_of,
    "icontains-any": lambda value: _any_of(value, ignore_case=True),
    "not-contains-any": lambda value: {"not_contains": _to_texts(value)},
    "not-icontains-any": lambda value: {"not_contains": _to_texts(value), "ignore_case": True},
    "starts-with": lambda value: {"regex": f"^{_escape(value)}"},
    "startsWith": lambda value: {"regex": f"^{_escape(value)}"},
    "endsWith": lambda value: {"regex": f"{_escape(value)}$"},
    "regex": lambda value: {"regex": _to_text(value)},
    "is-json": lambda value: {"json_schema": {} if value is None else _to_data(value)},
    "cost": lambda threshold: {"cost": {"max": float(threshold)}},
    "latency": lambda threshold: {"seconds": {"max": float(threshold) / 1000}},
}


def _fill(value: Any, values: Mapping[str, object]) -> Any:
    """Return a value with its variables replaced. A file that it names is not read."""
    if isinstance(value, list):
        return [_fill(entry, values) for entry in value]
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if text.startswith("file://"):
        raise NoCounterpart("names a file", "Copy its content into the test file.")
    filled = substitute(text, values) if isinstance(value, str) else None
    if filled is None and re.search(r"\{[{%]", text):
        raise NoCounterpart("has a template that is more than a variable of the test")
    return value if filled is None else filled


def parse_expected(text: str) -> Json:
    """Parse the cell of a column `__expected`: `contains: Ada`, `not-contains: x`, or the exact text."""
    kind, colon, value = (part.strip() for part in text.partition(":"))
    name, _, threshold = kind.partition("(")
    if colon and name in ("fn", "eval", "grade"):
        return {"type": "llm-rubric" if name == "grade" else "javascript", "value": value}
    is_known = name.removeprefix("not-") in {*_TABLE, *_REASONS, "contains-json"}
    if not is_known or (not colon and not name.endswith("-json")):
        return {"type": "equals", "value": text}
    found: Any = [part.strip() for part in value.split(",")] if name.endswith(("-all", "-any")) else value or None
    return {"type": name, "value": found, **({"threshold": threshold.strip(" )")} if threshold else {})}
