"""The records of a batch survive the process that wrote them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as some

from prompty.batches.ledger import Ledger
from prompty.batches.records import encode_record
from prompty.batches.row_index import FinishedRow
from prompty.errors import RequestError


@contextmanager
def opened(out: Path, *, retry_failed: bool = False, complete: bool = False) -> Iterator[Ledger]:
    ledger = Ledger(out, retry_failed=retry_failed)
    try:
        yield ledger
    finally:
        ledger.complete = complete
        ledger.close()


def line(id: str, **more: object) -> bytes:
    return encode_record({"id": id, "result": None, **more})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=some.lists(some.text(max_size=30), min_size=1, max_size=5), cut=some.integers(0, 400))
def test_an_output_that_is_cut_anywhere_keeps_its_whole_lines(texts: list[str], cut: int, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    lines = [line(f"r{at}", result=text) for at, text in enumerate(texts)]
    ends = list(accumulate(map(len, lines)))
    out.write_bytes(b"".join(lines)[:cut])
    with opened(out) as ledger:
        finished = [at for at in range(len(texts)) if ledger.index.find_finished(f"r{at}")]
        ledger.finish(line("new"), None)
    kept = [json.loads(text) for text in out.read_bytes().splitlines(keepends=False) if text]
    assert [entry["id"] for entry in kept] == [*(f"r{at}" for at in finished), "new"]
    assert finished == [at for at, end in enumerate(ends) if cut >= end - 1]  # the end of the line may be missing


@pytest.mark.parametrize(
    "content",
    [
        '{"id": "r0"}\n',
        '{"id": "r0", "usage": {}}\n',
        "a letter to somebody",
        "a letter\nwith lines\n",
        '{"name": 1}\n',
        '{"x": 1',
    ],
)
def test_a_file_that_is_no_output_is_left_alone(content: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(content)
    with pytest.raises(RequestError, match="not a record of a batch"):
        Ledger(out)
    assert out.read_text() == content


def test_a_second_process_is_refused_and_may_come_later(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with opened(out), pytest.raises(RequestError, match="another process is writing to"):
        Ledger(out)
    with opened(out):
        pass


def test_rows_that_were_begun_and_not_finished_are_known(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    for _ in range(2):
        with opened(out) as ledger:
            ledger.begin("cut")
    with opened(out) as ledger:
        ledger.begin("done")
        ledger.finish(line("done", cost=0.5), Decimal("0.5"))
        assert ledger.index.count_interruptions("cut") == 2
    with opened(out) as ledger:
        assert (ledger.index.count_interruptions("cut"), ledger.index.count_interruptions("done")) == (2, 0)
        assert ledger.spent == Decimal("0.5")
        assert (tmp_path / "out.started").read_text() == "cut\ncut\n"


def test_what_is_complete_leaves_nothing_but_its_output(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with opened(out, complete=True) as ledger:
        ledger.begin("one")
        ledger.finish(line("one"), None)
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_failed_rows_are_finished_until_they_are_to_be_tried_again(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with opened(out) as ledger:
        ledger.begin("bad")
        ledger.fail(line("bad"), None)
    with opened(out) as ledger:
        assert ledger.index.find_finished("bad") == FinishedRow(failed=True)
    with opened(out, retry_failed=True) as ledger:
        assert not ledger.index.find_finished("bad")
        assert ledger.index.count_interruptions("bad") == 0
    assert not (tmp_path / "out.failed.jsonl").exists()


def test_the_files_are_private(tmp_path: Path) -> None:
    with opened(tmp_path / "out.jsonl") as ledger:
        ledger.fail(line("bad"), None)
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}
