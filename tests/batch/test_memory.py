"""Rows stream: how many there are does not show in the memory of the process."""

import os
import subprocess
from pathlib import Path

from tests.batch.folder import Folder

ROWS = 200_000 if os.environ.get("PROMPTY_SOAK") else 5_000
MOST_MEGABYTES = 200
PROMPT = """\
---
model: {id: m, provider: scripted, options: {additionalProperties: {script: [Fine., Good., Well.]}}}
---
user:
question {{q}}
"""


def peak_megabytes(folder: Folder, *words: str) -> float:
    """The most memory that the command has had."""
    process = subprocess.Popen(folder.command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603  our own code
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss / 1024


def test_many_rows_take_no_more_memory_than_few(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "")
    folder.prompt.write_text(PROMPT)
    folder.write_rows({"q": f"number {number}", "text": "x" * 500} for number in range(ROWS))
    few, many, again = peak_megabytes(folder, "--limit", "500"), peak_megabytes(folder), peak_megabytes(folder)
    print(f"peak MB: {few:.0f} for 500 rows, {many:.0f} for {ROWS:,}, {again:.0f} to find all finished")  # noqa: T201  the figures of a soak
    with folder.out.open("rb") as lines:
        assert sum(1 for _ in lines) == ROWS
    assert max(many, again) < MOST_MEGABYTES
    assert max(many, again) < few + 60
