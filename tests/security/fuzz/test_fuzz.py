"""Nothing that a file, a user, a model or a server sends makes a reader raise a foreign error or hang.

Ten million inputs at full size, each made from its seed: `python -m tests.security.fuzz TARGET SEED` runs one again.
"""

import subprocess
from pathlib import Path

import pytest

from tests.security.fuzz.cases import Target
from tests.security.fuzz.runner import Report, run_seeds
from tests.security.fuzz.targets import TARGETS
from tests.soak import SOAK, Keep

pytestmark = pytest.mark.slow

SIZES = {
    "load": 100_000,
    "render": 200_000,
    "parse": 3_000_000,
    "arguments": 3_300_000,
    "paused": 400_000,
    "reply": 1_500_000,
    "stream": 400_000,
    "openapi": 500_000,
    "mcp": 600_000,
}
CI_SIZE = 2_000
BATCH = 20_000  # inputs after which the figures are kept
COMMIT = (
    subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, text=True).strip() if SOAK else ""  # noqa: S607  from the path, as everybody has it
)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_no_input_makes_a_reader_raise_a_foreign_error(target: Target, keep: Keep) -> None:
    report = Report(target.name)
    size = SIZES[target.name] if SOAK else CI_SIZE
    for first in range(0, size, BATCH):
        run_seeds(target, range(first, min(first + BATCH, size)), report)
        keep(commit=COMMIT, **report.figures)
    assert report.foreign == []
    assert not SOAK or report.slow == []  # below for the others


@pytest.mark.timing
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_no_input_takes_50_ms_per_kilobyte(target: Target) -> None:
    assert run_seeds(target, range(CI_SIZE), Report(target.name)).slow == []
