"""Read rows of CSV or JSONL as cases of a prompt that exists.

A column or key is an input of the prompt. `__expected` and `__description` mean what they mean to promptfoo, and so do
`vars` and `assert` of a JSONL line. The columns of `prompty test` work, too.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from prompty.cases.imports.assertions import Unsupported, convert_assertion, parse_expected
from prompty.cases.imports.draft import DraftCase, DraftCheck, DraftPrompt, Import, Note
from prompty.model.message import Json

_EXPECTED = re.compile(r"__expected\d*")
_DESCRIPTION = "__description"


def read_case_list(rows: list[dict[str, Any]], name: str, inputs: set[str]) -> Import:
    """Read rows as they would stand under `cases:`. `inputs` are those of the prompt."""
    notes: list[Note] = []
    cases = [_read_case(row, number, inputs, notes) for number, row in enumerate(rows, 1)]
    return Import([DraftPrompt(name=name, cases=cases)], notes)


def _read_case(row: Mapping[str, Any], number: int, inputs: set[str], notes: list[Note]) -> DraftCase:
    values, assertions, description = _split(row["inputs"])
    for key in sorted(row.keys() - {"name", "inputs", "expect"}):
        _add(notes, f"`{key}` of a row is left out")
    for key in sorted(values.keys() - inputs):
        _add(notes, f"the prompt has no input `{key}`, so the cases have none")
    case = DraftCase(name=str(row.get("name") or description))
    case.inputs = {key: value for key, value in values.items() if key in inputs}
    case.checks = list(_read_expect(row.get("expect")))
    for assertion in assertions:
        try:
            case.checks += list(convert_assertion(assertion, values))
        except Unsupported as error:
            _add(notes, f"row {number}: {error}", error.fix)
    return case


def _split(given: Json) -> tuple[Json, list[Any], str]:
    """Return the values of a row, its assertions, and its description."""
    variables = given.get("vars")
    if isinstance(variables, dict) and given.keys() <= {"vars", "assert", "description"}:
        assertions = given.get("assert")
        listed = assertions if isinstance(assertions, list) else []
        return variables, listed, str(given.get("description") or "")
    expected = [str(value) for key, value in given.items() if _EXPECTED.fullmatch(key) and value]
    values = {key: value for key, value in given.items() if key != _DESCRIPTION and not _EXPECTED.fullmatch(key)}
    return values, [parse_expected(cell) for cell in expected], str(given.get(_DESCRIPTION) or "")


def _read_expect(expect: object) -> Iterator[DraftCheck]:
    for level, checks in expect.items() if isinstance(expect, dict) else ():
        for check in checks if isinstance(checks, list) else [checks]:
            yield DraftCheck(level, check)


def _add(notes: list[Note], message: str, fix: str = "") -> None:
    note = Note((), message, fix) if fix else Note((), message)
    if note not in notes:
        notes.append(note)
