"""Whether tests run at their full size (`make soak`), and what is kept of it in `benchmarks/results/soak/`."""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import pytest

SOAK = bool(os.environ.get("PROMPTY_SOAK"))
RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "soak"
COUNTS = RESULTS / "counts.json"
LONG = 30  # seconds
Keep = Callable[..., None]


@pytest.fixture
def keep(request: pytest.FixtureRequest) -> Keep:
    """Keeps what a test has measured in a file of its own, if it ran at its full size."""

    def kept(**figures: object) -> None:
        print(figures)  # noqa: T201  for whoever looks
        if SOAK:
            name = request.node.name.removeprefix("test_").replace("[", "-").rstrip("]")
            _write(RESULTS / f"{name}.json", {"test": request.node.nodeid, **figures})

    return kept


def keep_counts(reports: Mapping[str, Sequence[pytest.TestReport]]) -> None:
    """Keep how often each long test has passed and failed, and how long that took; what ran another time stays."""
    found: dict[str, dict[str, object]] = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    ended = [report for outcome in ("passed", "failed") for report in reports.get(outcome, ())]
    for test, group in groupby(sorted(ended, key=_test), key=_test):
        same = list(group)
        seconds = round(sum(report.duration for report in same))
        if seconds >= LONG:
            counts = Counter[str](report.outcome for report in same)
            found[test] = {"date": datetime.now(UTC).date().isoformat(), **counts, "seconds": seconds}
    _write(COUNTS, dict(sorted(found.items())))


def _test(report: pytest.TestReport) -> str:
    return report.nodeid.partition("[")[0]


def _write(path: Path, content: dict[str, object]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")
