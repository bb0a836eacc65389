"""Rows stream: how many there are does not show in the memory of the process."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.batch.folder import Folder
from tests.soak import SOAK, Keep

pytestmark = [pytest.mark.process, pytest.mark.nightly]

ROWS = 200_000 if SOAK else 5_000
MOST_MEGABYTES = 200
PROMPT = """\
---
model: {id: m, provider: scripted, script: [Fine., Good., Well.]}
---
user:
question {{q}}
"""


# A process counts the memory of the one it was forked from, so a small one stands between.
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


def peak_megabytes(folder: Folder, *words: str) -> float:
    """The most memory that the command has had."""
    command = [sys.executable, "-c", MEASURE, *folder.command(*words)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)  # noqa: S603  our own code


STREAM = """
import sys
from prompty import load
from prompty.batches import batch_stream
count = int(sys.argv[2])
rows = ({"q": f"number {number}", "text": "x" * 500} for number in range(count))
assert sum(row.value in ("Fine.", "Good.", "Well.") for row in batch_stream(load(sys.argv[1]), rows)) == count
"""
STREAMED = 1_000_000 if SOAK else 20_000


def test_a_stream_of_rows_from_a_generator_takes_no_more_memory_than_few(tmp_path: Path, keep: Keep) -> None:
    folder = Folder(tmp_path, "")
    folder.prompt.write_text(PROMPT)
    command = [sys.executable, "-c", MEASURE, sys.executable, "-c", STREAM, str(folder.prompt), str(STREAMED)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603  our own code
    keep(rows=STREAMED, peak_megabytes=round(float(done.stdout)))
    assert float(done.stdout) < 150


def test_many_rows_take_no_more_memory_than_few(tmp_path: Path, keep: Keep) -> None:
    folder = Folder(tmp_path, "")
    folder.prompt.write_text(PROMPT)
    folder.write_rows({"q": f"number {number}", "text": "x" * 500} for number in range(ROWS))
    few, many, again = peak_megabytes(folder, "--limit", "500"), peak_megabytes(folder), peak_megabytes(folder)
    keep(rows=ROWS, peak_megabytes={"500 rows": round(few), "all": round(many), "all are finished": round(again)})
    with folder.out.open("rb") as lines:
        assert sum(1 for _ in lines) == ROWS
    assert max(many, again) < MOST_MEGABYTES
    assert max(many, again) < few + 60
