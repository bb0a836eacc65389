"""Cases in a CSV or JSONL file, one per row.

In CSV the columns `case`, `label`, `tags` and `expect.LEVEL.CHECK` describe the case, and every other column is an
input. A line of JSONL is a case if it has `inputs`, and otherwise the inputs of a case.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from prompty.batches.rows import Kinds, read_rows
from prompty.cases.case_file import Case
from prompty.errors import InputError

_CASE_KEYS = frozenset(field.alias or name for name, field in Case.model_fields.items())
_COLUMNS = frozenset({"case", "label", "tags"})
_INPUT_PREFIX = "inputs."


def read_case_rows(path: Path, kinds: Kinds) -> list[dict[str, object]]:
    """Return the cases in a file as under `cases:`. Raise InputError for an invalid row.

    `kinds` are the kinds of the prompt's inputs, which decide how a CSV cell is parsed.
    """
    cases: list[dict[str, object]] = []
    is_csv = path.suffix.lower() == ".csv"
    prefixed = {f"{_INPUT_PREFIX}{name}": kind for name, kind in kinds.items()}
    inputs = {name: kind for name, kind in kinds.items() if name not in _COLUMNS and not name.startswith("expect.")}
    for row in read_rows(path, {**prefixed, **inputs}):
        if row.problem is not None:
            raise InputError("", f"{path.name}: {row.problem.problems[0].cause}", row.problem.problems[0].fix)
        if is_csv:
            cases.append(_parse_columns(row.inputs))
        elif isinstance(row.inputs.get("inputs"), dict) and row.inputs.keys() <= _CASE_KEYS:
            cases.append(row.inputs)
        else:
            cases.append({"inputs": row.inputs})
    return cases


def _parse_columns(columns: Mapping[str, object]) -> dict[str, object]:
    """Return the case of a CSV row. An empty cell is ignored unless its column is an input."""
    case: dict[str, object] = {}
    inputs: dict[str, object] = {}
    expect: dict[str, dict[str, object]] = {}
    for name, cell in columns.items():
        text = cell if isinstance(cell, str) else ""
        if name.startswith("expect.") and name.count(".") == 2:
            if text:
                _, level, check = name.split(".")
                expect.setdefault(level, {})[check] = _parse_cell(text) if check not in _TEXT_CHECKS else text
        elif name == "case":
            case["name"] = text or None
        elif name == "label":
            case["label"] = _parse_cell(text) if text else None
        elif name == "tags":
            case["tags"] = text.split()
        else:
            inputs[name.removeprefix(_INPUT_PREFIX)] = cell
    if expect:
        case["expect"] = expect
    return {**{key: value for key, value in case.items() if value is not None}, "inputs": inputs}


_TEXT_CHECKS = frozenset({"contains", "not_contains", "regex", "path", "python", "judge"})


def _parse_cell(text: str) -> object:
    """Return the JSON of a cell, or its text."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value
