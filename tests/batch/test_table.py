"""The results of a batch as CSV."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from prompty.batches.ledger import read_records
from prompty.batches.table import write_csv
from prompty.errors import RequestError


def write_records(path: Path, *results: tuple[int, dict[str, Any], Any]) -> Path:
    lines = [{"id": f"r{row}", "row": row, "inputs": inputs, "result": value} for row, inputs, value in results]
    path.write_text("".join(json.dumps({**line, "cost": "0.001"}) + "\n" for line in lines))
    return path


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_row_has_a_column_for_each_input_and_field_in_the_order_of_the_rows(tmp_path: Path) -> None:
    records = write_records(
        tmp_path / "out.jsonl",
        (2, {"q": "second"}, {"label": "good", "notes": ["a", "b"]}),
        (1, {"q": "first\nline", "page": 3}, {"label": "bad", "score": 0.5}),
    )
    write_csv(records, tmp_path / "out.csv")
    first, second = read_table(tmp_path / "out.csv")
    assert first == {
        "row": "1",
        "q": "first\nline",
        "page": "3",
        "result.label": "bad",
        "result.score": "0.5",
        "result.notes": "",
        "cost": "0.001",
    }  # fmt: skip  a row of a table
    assert (second["q"], second["page"], second["result.notes"]) == ("second", "", '["a", "b"]')


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_is_a_formula(text: str, tmp_path: Path) -> None:
    write_csv(write_records(tmp_path / "out.jsonl", (1, {"q": text}, text)), tmp_path / "out.csv")
    [row] = read_table(tmp_path / "out.csv")
    assert (row["q"], row["result"]) == (f"'{text}", f"'{text}")


@pytest.mark.parametrize(("value", "cell"), [(None, ""), (True, "true"), (7, "7"), ({}, "{}"), ([1], "[1]")])
def test_a_result_is_written_as_the_json_that_it_is(value: Any, cell: str, tmp_path: Path) -> None:
    write_csv(write_records(tmp_path / "out.jsonl", (1, {"q": "x"}, value)), tmp_path / "out.csv")
    [row] = read_table(tmp_path / "out.csv")
    assert row.get("result", "") == cell


def test_an_old_table_is_replaced_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("old")
    write_csv(write_records(tmp_path / "out.jsonl", (1, {"q": "x"}, "y")), tmp_path / "out.csv")
    assert [row["result"] for row in read_table(tmp_path / "out.csv")] == ["y"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "out.jsonl"]


@pytest.mark.parametrize("line", ["{", "5", '{"id": 5, "result": 1}', '{"id": "a"}'])
def test_a_line_that_is_no_record_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(f'{{"id": "a", "result": 1}}\n{line}\n')
    with pytest.raises(RequestError, match="line 2"):
        list(read_records(path))
