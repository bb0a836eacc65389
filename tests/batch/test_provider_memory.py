"""Rows of a provider batch stream: a full batch of 50,000 takes little memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.batch.billing import Billing
from tests.batch.test_provider_batch import Rows
from tests.soak import SOAK, Keep

pytestmark = [pytest.mark.process, pytest.mark.nightly]
ROWS = 50_000 if SOAK else 3_000
MOST_MEGABYTES = 150
# A process counts the memory of the one it was forked from, so a small one stands between.
MEASURE = """
import json, resource, subprocess, sys, time
begun = time.monotonic()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([used.ru_maxrss / 1024, used.ru_utime + used.ru_stime, time.monotonic() - begun]))
"""


def test_fifty_thousand_rows_fit_in_little_memory(tmp_path: Path, keep: Keep) -> None:
    with Billing() as provider:
        rows = Rows(tmp_path, provider)
        lines = (json.dumps({"q": f"n{number}", "long": "x" * 500}) + "\n" for number in range(ROWS))
        rows.rows.write_text("".join(lines))
        rows.job()
        rows.prompt.write_text(rows.prompt.read_text() + "{{long}}\n")
        settings = json.dumps({"grace": 1.0, "poll": 0.5})
        place = [str(rows.prompt), str(rows.rows), "-o", str(rows.out), "--provider-batch"]
        command = [sys.executable, "-m", "tests.batch.provider_process", settings, "batch", *place]
        measured = subprocess.run([sys.executable, "-c", MEASURE, *command], stdout=subprocess.PIPE, check=True)  # noqa: S603  our own code
        megabytes, processor, seconds = json.loads(measured.stdout)
        [made] = provider.batches.values()
        assert len(made.rows) == ROWS
        assert provider.billed.total() == ROWS
    with rows.out.open("rb") as results:
        assert sum(1 for _ in results) == ROWS
    keep(
        rows=ROWS,
        peak_megabytes=round(megabytes),
        seconds=round(seconds),
        rows_per_second_of_processor=round(ROWS / processor),
    )
    assert megabytes < MOST_MEGABYTES
