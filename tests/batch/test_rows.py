"""Rows come out of files as they went in, and each has a name of its own."""

import csv
import json
import os
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as some

from prompty import PromptAgent
from prompty.batches.records import PlannedRow
from prompty.batches.row_index import RowIndex, hash_prompt, hash_row, mask_sensitive, plan_rows
from prompty.batches.rows import Row, count_rows, get_input_kinds, parse_shard, read_rows, select_rows
from prompty.errors import RequestError

FILES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = some.text(some.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = some.text("abcdef", min_size=1, max_size=3)
VALUES = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(NAMES, inner, max_size=3),
)
ROWS = some.lists(some.dictionaries(NAMES, VALUES, max_size=3), max_size=8)


def agent(**parts: Any) -> PromptAgent:
    model = {"id": "m", "provider": "openai"}
    return PromptAgent.model_validate({"model": model, "instructions": "user:\n{{q}}", **parts})


def read(path: Path, **kinds: str) -> list[Row]:
    found = list(read_rows(path, kinds))
    assert [row.number for row in found] == list(range(1, count_rows(path) + 1))
    return found


@FILES
@given(rows=ROWS, ascii_only=some.booleans(), blank=some.booleans())
def test_jsonl_comes_out_as_it_went_in(rows: list[Any], ascii_only: bool, blank: bool, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    ending = "\n\n" if blank else "\n"
    path.write_text("".join(json.dumps(row, ensure_ascii=ascii_only) + ending for row in rows), encoding="utf-8")
    assert [row.inputs for row in read(path)] == rows


@FILES
@given(cells=some.lists(some.tuples(TEXT, TEXT), max_size=8))
def test_csv_comes_out_as_it_went_in(cells: list[tuple[str, str]], tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("a", "b"), *cells])
    assert [row.inputs for row in read(path)] == [{"a": a, "b": b} for a, b in cells]


@FILES
@given(content=some.binary(max_size=200), ending=some.sampled_from([".jsonl", ".csv"]))
def test_no_file_at_all_ends_the_reading(content: bytes, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows{ending}"
    path.write_bytes(content)
    try:
        found = list(read_rows(path, {}))
    except RequestError as error:
        assert re.search("first line|is not CSV", str(error))
        return
    assert all(row.inputs == {} for row in found if row.problem)


def test_cells_are_read_as_the_prompt_declares_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("\ufeffname,count,on\n12,3,true\nx,,false\ny,many,\n", encoding="utf-8")
    kinds = get_input_kinds(agent(inputs={"count": {"kind": "integer"}, "on": {"kind": "boolean"}}))
    first, second, third = read_rows(path, kinds)
    assert first.inputs == {"name": "12", "count": 3, "on": True}
    assert second.inputs == {"name": "x", "on": False}
    assert third.problem is not None
    assert "'count' is declared as integer" in str(third.problem)


BROKEN = {
    "no JSON": b"{oops}",
    "no object": b"[1]",
    "no text": b'{"a": "\xff"}',
    "a key twice": b'{"a": 1, "a": 2}',
    "too long": b'{"a": "' + b"x" * 4_100_000 + b'"}',
}


@pytest.mark.parametrize("line", BROKEN.values(), ids=BROKEN)
def test_a_row_that_cannot_be_read_is_told_and_the_next_is_read(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(line + b'\n{"a": 1}\n')
    broken, whole = read(path)
    assert "row 1 is invalid" in str(broken.problem)
    assert whole.inputs == {"a": 1}


NOT_CSV = {
    "a cell over the limit": ('a\n"' + "word\n" * 820_000 + '"\nsecond\n', "field larger than field limit"),
    "a quote that is never closed": ('a\n1\n"word\nword\n', "a quote that opens in it is never closed"),
    "text after a quote": ('a\n1\n"word" word\nsecond\n', "',' expected after"),
}


@pytest.mark.parametrize(("text", "cause"), NOT_CSV.values(), ids=NOT_CSV)
def test_after_an_error_of_csv_no_line_of_a_cell_becomes_a_row(text: str, cause: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    line = 2 if text.startswith('a\n"') else 3
    for use in (count_rows, read):
        with pytest.raises(RequestError, match=f"begins in line {line} of 'rows.csv' is not CSV: {cause}"):
            use(path)


def test_a_cell_of_a_long_letter_is_one_cell(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    letter = "word\n" * 30_000
    path.write_text(f'a\n"{letter}"\nsecond\n', encoding="utf-8")
    assert [row.inputs for row in read(path)] == [{"a": letter}, {"a": "second"}]


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"neither the suffix \.jsonl nor \.csv"):
        read_rows(tmp_path / "rows.xlsx", {})


def ids(rows: list[Any], folder: Path, asked: PromptAgent, numbers: Any = range(1, 1000)) -> list[str]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with closing(RowIndex()) as index:
        return [planned.id for planned in plan_rows(path, asked, numbers, index) if isinstance(planned, PlannedRow)]


@FILES
@given(rows=ROWS)
def test_every_row_has_an_id_of_its_own_and_the_same_tomorrow(rows: list[Any], tmp_path: Path) -> None:
    found = ids(rows, tmp_path, agent())
    assert len(set(found)) == len(rows)
    assert found == ids(rows, tmp_path, agent())
    assert found[:3] == ids(rows[:3], tmp_path, agent())
    assert found[1:] == ids(rows, tmp_path, agent(), range(2, 1000))


def test_an_id_depends_on_the_prompt_the_model_and_the_row_and_on_nothing_else() -> None:
    connection = {"kind": "key", "apiKey": "sk-one-0123456789", "endpoint": "https://one.example"}
    here = agent(model={"id": "m", "provider": "openai", "connection": connection})
    assert hash_prompt(here) == hash_prompt(agent())
    assert hash_prompt(agent(model={"id": "n", "provider": "openai"})) != hash_prompt(agent())
    assert hash_prompt(agent(instructions="user:\nElse {{q}}")) != hash_prompt(agent())
    assert hash_row("p", {"a": 1, "b": 2}) == hash_row("p", {"b": 2, "a": 1})
    assert hash_row("p", {"a": 1}) != hash_row("p", {"a": "1"})


def test_what_is_sensitive_is_neither_shown_nor_part_of_an_id() -> None:
    asked = agent(inputs={"q": {"kind": "string"}, "pin": {"kind": "string", "sensitive": True}})
    assert mask_sensitive(asked, {"q": "x", "pin": "1234"}) == {"q": "x", "pin": "••••"}


@given(total=some.integers(0, 500), limit=some.none() | some.integers(1, 600), size=some.none() | some.integers(1, 600))
def test_a_choice_is_made_of_the_rows_there_are(total: int, limit: int | None, size: int | None) -> None:
    numbers = select_rows(total, limit=limit, sample=size)
    most = min(total, total if limit is None else limit)
    assert len(numbers) == min(most, most if size is None else size)
    assert set(numbers) <= set(range(1, most + 1))
    assert set(numbers) == set(select_rows(total, limit=limit, sample=size))


@given(
    some.integers(0, 60), some.integers(1, 70), some.integers(1, 60) | some.none(), some.integers(1, 60) | some.none()
)
def test_shards_have_every_chosen_row_once(total: int, count: int, limit: int | None, size: int | None) -> None:
    shards = [parse_shard(f"{number}/{count}") for number in range(1, count + 1)]
    parts = [select_rows(total, limit=limit, sample=size, shard=shard) for shard in shards]
    assert sorted(row for part in parts for row in part) == sorted(select_rows(total, limit=limit, sample=size))
    if size is None:
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "0/4",
        "5/4",
        "0/0",
        "1/0",
        "-1/4",
        "1/-4",
        "+1/4",
        " 1/4",
        "1 /4",
        "1/4/4",
        "1.0/4",
        "a/b",
        "٢/٤",
        "2/4\n",
        "1/9999999999",
    ],
)
def test_a_shard_that_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="not a part of the rows"):
        parse_shard(text)


@pytest.mark.parametrize("change", ["rewritten", "cut", "longer", "replaced"])
@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_rows_that_change_in_mid_run_are_not_mixed(tmp_path: Path, change: str, suffix: str) -> None:
    rows = tmp_path / f"rows.{suffix}"
    head = "" if suffix == "jsonl" else "q\n"
    line = '{"q": "TEXT"}\n' if suffix == "jsonl" else "TEXT\n"
    write_rows(rows, head, line, "old", 5000)
    with closing(RowIndex()) as index:
        planned = plan_rows(rows, agent(), range(1, 5001), index)
        next(planned)
        if change == "replaced":
            write_rows(tmp_path / "new", head, line, "new", 5000)
            (tmp_path / "new").replace(rows)
        else:
            write_rows(rows, head, line, "new", {"rewritten": 5000, "cut": 3, "longer": 6000}[change])
            os.utime(rows, ns=(0, 0))  # the clock of a file system is coarse
        with pytest.raises(RequestError, match="changed while the batch was running"):
            list(planned)


def write_rows(path: Path, head: str, line: str, text: str, count: int) -> None:
    path.write_text(head + line.replace("TEXT", text) * count)
