"""The results of a batch as CSV, made from its records.

The records stay the file that a batch continues from: a line of CSV can span lines, so a truncated one cannot be found.
"""

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prompty.batches.ledger import read_records
from prompty.model.message import Json
from prompty.safety.write_files import check_target, name_temporary, open_to_append

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs text that begins with one of them


def write_csv(records: Path, table: Path) -> None:
    """Write records as CSV, in the order of the rows, with a column for each input and each field of the results."""
    names: dict[str, None] = {}
    places: list[tuple[int, int]] = []
    position = 0
    for record, length in _measure_records(records):
        names |= dict.fromkeys(_flatten(record))
        places.append((record["row"], position))
        position += length
    check_target(table)
    fresh = name_temporary(table)
    try:
        with (
            records.open("rb") as lines,
            os.fdopen(open_to_append(fresh, new=True), "w", encoding="utf-8", newline="") as file,
        ):
            writer = csv.DictWriter(file, [*names])
            writer.writeheader()
            for _, place in sorted(places):
                lines.seek(place)
                writer.writerow(_flatten(json.loads(lines.readline())))
        fresh.replace(table)
    finally:
        fresh.unlink(missing_ok=True)


def _measure_records(records: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each record and the length of its line."""
    with records.open("rb") as lines:
        for record, line in zip(read_records(records), lines, strict=True):
            yield record, len(line)


def _flatten(record: Json) -> dict[str, str | float]:
    """Return a record's cells by column."""
    result: Any = record["result"]
    fields = {f"result.{name}": value for name, value in result.items()} if isinstance(result, dict) else None
    inputs: Any = record["inputs"]
    cells = {"row": record["row"], **inputs, **(fields or {"result": result}), "cost": record["cost"]}
    return {name: _write_cell(value) for name, value in cells.items()}


def _write_cell(value: object) -> str | float:
    match value:
        case None:
            return ""
        case str():
            return f"'{value}" if value.startswith(_FORMULA) else value
        case bool() | dict() | list():
            return json.dumps(value, ensure_ascii=False)
        case int() | float():
            return value
        case _:
            raise TypeError(f"a record holds JSON, and not {value!r}")
