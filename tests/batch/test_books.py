"""What is written of a batch survives whoever wrote it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from prompty.batch.books import Books, encoded
from prompty.errors import RequestError


@contextmanager
def opened(out: Path, *, retry_failed: bool = False, complete: bool = False) -> Iterator[Books]:
    books = Books(out, retry_failed=retry_failed)
    try:
        yield books
    finally:
        books.close(complete=complete)


def line(id: str, **more: object) -> bytes:
    return encoded({"id": id, **more})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=some.lists(some.text(max_size=30), min_size=1, max_size=5), cut=some.integers(0, 400))
def test_an_output_that_is_cut_anywhere_keeps_its_whole_lines(texts: list[str], cut: int, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    lines = [line(f"r{at}", result=text) for at, text in enumerate(texts)]
    ends = list(accumulate(map(len, lines)))
    out.write_bytes(b"".join(lines)[:cut])
    with opened(out) as books:
        finished = [at for at in range(len(texts)) if books.index.is_finished(f"r{at}")]
        books.finish(line("new"), None)
    kept = [json.loads(text) for text in out.read_bytes().splitlines(keepends=False) if text]
    assert [entry["id"] for entry in kept] == [*(f"r{at}" for at in finished), "new"]
    assert finished == [at for at, end in enumerate(ends) if cut >= end - 1]  # the end of the line may be missing


@pytest.mark.parametrize("content", ["a letter to somebody", "a letter\nwith lines\n", '{"name": 1}\n', '{"x": 1'])
def test_a_file_that_is_no_output_is_left_alone(content: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(content)
    with pytest.raises(RequestError, match="no result of a batch"):
        Books(out)
    assert out.read_text() == content


def test_a_second_process_is_refused_and_may_come_later(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with opened(out), pytest.raises(RequestError, match="another process writes to"):
        Books(out)
    with opened(out):
        pass


def test_rows_that_were_begun_and_not_finished_are_known(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    for _ in range(2):
        with opened(out) as books:
            books.begin("cut")
    with opened(out) as books:
        books.begin("done")
        books.finish(line("done", cost=0.5), Decimal("0.5"))
        assert books.index.interrupted("cut") == 2
    with opened(out) as books:
        assert (books.index.interrupted("cut"), books.index.interrupted("done")) == (2, 0)
        assert books.spent == Decimal("0.5")
        assert (tmp_path / "out.started").read_text() == "cut\ncut\n"


def test_what_is_complete_leaves_nothing_but_its_output(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with opened(out, complete=True) as books:
        books.begin("one")
        books.finish(line("one"), None)
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_failed_rows_are_finished_until_they_are_to_be_tried_again(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with opened(out) as books:
        books.begin("bad")
        books.fail(line("bad"), None)
    with opened(out) as books:
        assert books.index.is_finished("bad")
    with opened(out, retry_failed=True) as books:
        assert not books.index.is_finished("bad")
        assert books.index.interrupted("bad") == 0
    assert not (tmp_path / "out.failed.jsonl").exists()


def test_the_files_are_private(tmp_path: Path) -> None:
    with opened(tmp_path / "out.jsonl") as books:
        books.fail(line("bad"), None)
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}
